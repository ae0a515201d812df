"""From a folder and a file to a better model that transformers loads."""

import json
import math
import os
import time
import unittest
from pathlib import Path
from typing import Any

import exported as exported_model
import torch
import toy_model
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from world import World, wait_until


def _reference_loss(model: Any, folder: Path, row_count: int) -> float:
    """Mean loss over the tokens of the answers, their end token included."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    total, count = 0.0, 0
    for row in toy_model.rows(row_count):
        messages: Any = row["messages"]
        prompt = tokenizer.apply_chat_template(
            messages[:-1], add_generation_prompt=True, tokenize=False
        )
        answer = messages[-1]["content"] + "<|im_end|>"
        start = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
        ids = torch.tensor([tokenizer(prompt + answer, add_special_tokens=False)["input_ids"]])
        with torch.no_grad():
            logits = model(ids).logits[0]
        losses = torch.nn.functional.cross_entropy(
            logits[start - 1 : -1].double(), ids[0, start:], reduction="sum"
        )
        total += float(losses)
        count += ids.shape[1] - start
    return total / count


class TrainTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()

    def engine_loss(self, model: str, row_count: int) -> float:
        """Of one step over all rows, before its update."""
        job_file = self.world.job_file(steps=1, batch_rows=row_count)
        job = self.world.must(
            *("submit", job_file, "--wait", "-o", "json", "--set", f"model={model}"),
            *("--set", "output=models/scratch"),
        ).json()
        loss: float = job["lastStep"]["loss"]
        return loss

    def test_the_whole_path(self) -> None:
        world = self.world
        world.prepare(row_count=64)
        plan = world.must("plan", world.job_file())
        self.assertIn("verdict:", plan.out)
        result = world.must("submit", world.job_file(steps=60), "--follow", "-o", "json")
        job = result.json()
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"])
        self.assertEqual("models/tuned/versions/1", job["outputVersion"])
        self.assertLessEqual(int(job["peakHostBytes"]), int(job["plan"]["hostBytes"]))
        self.assertIn("SUCCEEDED", result.err)
        self.check_losses(job["name"])
        self.check_log(job["name"])
        self.check_metrics()
        exported = world.folder / "exported"
        world.must("model", "export", "tuned", exported)
        model = exported_model.load(exported)
        self.assertAlmostEqual(
            1.0,
            self.engine_loss("models/tuned@1", 64) / _reference_loss(model, exported, 64),
            delta=1e-4,
        )

    def check_losses(self, name: str) -> None:
        events = [
            json.loads(line)
            for line in self.world.must("watch", name, "-o", "json").out.splitlines()
        ]
        losses = [event["step"]["loss"] for event in events if "step" in event]
        self.assertEqual(60, len(losses))
        self.assertTrue(all(map(math.isfinite, losses)))
        self.assertLess(sum(losses[-10:]), 0.7 * sum(losses[:10]), losses)

    def check_log(self, name: str) -> None:
        log = self.world.must("logs", name).out
        self.assertIn("the plan fits", log)
        self.assertIn("SUCCEEDED", log)
        followed = self.world.must("logs", "-f", name)
        self.assertEqual(log, followed.out)

    def check_metrics(self) -> None:
        metrics = self.world.daemon.metrics()

        def total(name: str) -> float:
            return sum(value for key, value in metrics.items() if key.startswith(name))

        for stream in ("compute", "h2d", "d2h", "optimizer"):
            busy = [
                value
                for key, value in metrics.items()
                if key.startswith("megatrain_stream_busy_seconds_total")
                and f'stream="{stream}"' in key
            ]
            self.assertGreater(sum(busy), 0, stream)
            waited = sum(
                value
                for key, value in metrics.items()
                if key.startswith("megatrain_stream_wait_seconds_total")
                and f'stream="{stream}"' in key
            )
            self.assertGreater(waited, 0, stream)
            # Of one engine process, which is younger than the daemon.
            uptime = time.time() - total("process_start_time_seconds")
            self.assertLess(sum(busy) + waited, uptime + 1, stream)
        self.assertEqual(60, total("megatrain_steps_total"))
        self.assertGreater(total("megatrain_tokens_total"), 1000)
        self.assertEqual(1, total('megatrain_jobs_finished_total{outcome="succeeded"}'))

    def test_an_untrained_export_is_the_import(self) -> None:
        world = self.world
        world.prepare(row_count=16)
        exported = world.folder / "exported"
        world.must("model", "export", "models/toy/versions/1", exported)
        self.assertEqual(
            exported_model.content(world.model_folder), exported_model.content(exported)
        )
        again = world.cli("model", "export", "toy", exported)
        self.assertNotEqual(0, again.code)
        self.assertEqual(
            exported_model.content(world.model_folder), exported_model.content(exported)
        )
        reference = _reference_loss(exported_model.load(exported), exported, 16)
        self.assertAlmostEqual(1.0, self.engine_loss("models/toy", 16) / reference, delta=1e-4)

    def test_the_same_job_gives_the_same_bits(self) -> None:
        self.world.prepare()
        exports = []
        for version, setting in (
            (1, "placement={weight_slot_count: 2}"),
            (2, "placement={weight_slot_count: 3, order: micro_batch_major, pin: slabs}"),
        ):
            job = self.world.job_file(micro_batch_rows=4)
            self.world.must("submit", job, "--wait", "--set", setting)
            folder = self.world.folder / f"export{version}"
            self.world.must("model", "export", f"tuned/versions/{version}", folder)
            exports.append(exported_model.content(folder)["model.safetensors"])
        self.assertEqual(exports[0], exports[1])

    def test_a_known_file_is_not_sent_again(self) -> None:
        self.world.prepare(row_count=8)
        rows = self.world.folder / "rows.jsonl"
        again = self.world.must("dataset", "upload", rows, "--name", "again")
        self.assertIn("already there", again.err)
        self.assertIn("8 rows", again.err)

    def test_bad_rows_are_skipped_if_asked(self) -> None:
        rows = toy_model.write_rows(self.world.folder / "rows.jsonl", 5)
        rows.write_text(rows.read_text() + "{oops\n")
        result = self.world.must(
            "dataset", "upload", rows, "--name", "skipping", "--on-bad-row", "skip"
        )
        self.assertIn("5 rows, 1 skipped", result.err)

    def test_control_c_detaches_and_the_job_goes_on(self) -> None:
        self.world.prepare()
        follow = self.world.start_cli("submit", self.world.job_file(steps=400), "--follow")
        name = wait_until("the job is there", self.submitted_job)
        self.world.wait_for_job(name, "RUNNING")
        result = self.world.interrupt(follow)
        self.assertEqual(130, result.code, result.err)
        self.assertIn(f"megatrain watch {name.removeprefix('jobs/')}", result.err)
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED")
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"])
        self.assertEqual(1, job["attempt"])

    def submitted_job(self) -> str:
        return self.world.must("ps", "-o", "name").out.strip()

    def test_a_running_and_a_waiting_job_are_cancelled(self) -> None:
        self.world.prepare()
        names = [
            self.world.must("submit", self.world.job_file(steps=100_000), "-o", "name").out.strip()
            for _ in range(2)
        ]
        self.world.wait_for_job(names[0], "RUNNING")
        for name in reversed(names):
            self.world.must("cancel", name)
        for name in names:
            self.world.wait_for_job(name, "CANCELLED")
            self.assertEqual(11, self.world.cli("watch", name).code)
        models = self.world.must("model", "ls", "-o", "name").out
        self.assertNotIn("tuned", models)

    def test_the_tokenizer_of_the_export_is_the_source_s(self) -> None:
        self.world.prepare(row_count=8)
        self.world.must("submit", self.world.job_file(steps=1), "--wait")
        exported = self.world.folder / "exported"
        self.world.must("model", "export", "tuned", exported)
        text = "What is 12 + 34?<|im_end|>"
        ids = [
            Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
            for folder in (self.world.model_folder, exported)
        ]
        self.assertEqual(ids[0], ids[1])
        trained, source = (
            exported_model.content(exported),
            exported_model.content(self.world.model_folder),
        )
        for name in set(source) - {"model.safetensors", "config.json"}:
            self.assertEqual(source[name], trained[name], name)

    def test_the_server_tells_its_state(self) -> None:
        server = self.world.must("server", "-o", "json").json()
        self.assertEqual("SERVER_STATE_READY", server["state"])
        self.assertEqual("cpu", server["engineBackend"])
        self.assertIn(str(self.world.folder), server["allowedPaths"])


if __name__ == "__main__":
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    unittest.main()
