"""Every wrong input gets its message and exit code, and leaves nothing behind."""

import json
import os
import shutil
import struct
import subprocess
import unittest
from pathlib import Path
from typing import ClassVar

import toy_model
from world import Daemon, Result, World, wait_until

_GOOD_ROW = json.dumps(toy_model.rows(1)[0])
_MAX_ROW_BYTES = 1 << 20


class ErrorsTest(unittest.TestCase):
    world: ClassVar[World]

    @classmethod
    def setUpClass(cls) -> None:
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.daemon.start()
        # Until then it may measure the machine, with a file of its own.
        wait_until("the engine is ready", cls.world.engine_ready)

    def setUp(self) -> None:
        self.assertEqual([], self.world.leftovers())

    def check(self, result: Result, code: int, *words: str) -> None:
        """The code, the words, advice in the form of an error, and an untouched state folder."""
        self.assertEqual(code, result.code, result.err)
        self.assertTrue(result.err.startswith("error: "), result.err)
        for word in words:
            self.assertIn(word, result.err)
        self.assertNotIn("Traceback", result.err)
        self.assertEqual("", result.out)
        # What failed is told before its files are removed.
        wait_until("nothing is left of it", lambda: not self.world.leftovers())
        self.assertTrue(self.world.daemon.running)

    def import_model(self, folder: Path) -> Result:
        return self.world.cli("model", "import", folder, "--name", "broken", "--wait")

    def broken_model(self) -> Path:
        folder = self.world.folder / "broken"
        shutil.rmtree(folder, ignore_errors=True)
        return Path(shutil.copytree(self.world.model_folder, folder))

    def upload(self, content: str | bytes) -> Result:
        path = self.world.folder / "rows.jsonl"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.world.cli("dataset", "upload", path, "--name", "broken")

    def test_no_model_at_the_path(self) -> None:
        absent = self.world.folder / "absent"
        self.check(self.import_model(absent), 3, str(absent))

    def test_a_path_that_the_server_does_not_allow(self) -> None:
        self.check(self.import_model(Path("/etc")), 5, "/etc")

    def test_truncated_safetensors(self) -> None:
        folder = self.broken_model()
        weights = folder / "model.safetensors"
        os.truncate(weights, weights.stat().st_size - 100)
        self.check(self.import_model(folder), 1, "model.safetensors")

    def test_safetensors_header_that_lies(self) -> None:
        folder = self.broken_model()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
        self.check(self.import_model(folder), 2, "model.safetensors", "header")

    def test_unknown_architecture(self) -> None:
        folder = self.broken_model()
        config = json.loads((folder / "config.json").read_text())
        config |= {"architectures": ["NovelForCausalLM"], "model_type": "novel"}
        (folder / "config.json").write_text(json.dumps(config))
        self.check(self.import_model(folder), 1, "NovelForCausalLM", "LlamaForCausalLM")

    def test_empty_data_set(self) -> None:
        self.check(self.upload(""), 1, "rows.jsonl", "empty")

    def test_bad_json_names_its_line(self) -> None:
        self.check(self.upload(f"{_GOOD_ROW}\n{_GOOD_ROW}\n{{oops\n"), 1, "line 3")

    def test_a_row_without_an_assistant_turn(self) -> None:
        row = json.dumps({"messages": [{"role": "user", "content": "hello"}]})
        self.check(self.upload(f"{_GOOD_ROW}\n{row}\n"), 1, "line 2", "assistant")

    def test_a_row_of_ten_megabytes(self) -> None:
        message = {"role": "user", "content": "x" * 10_000_000}
        row = json.dumps({"messages": [message, {"role": "assistant", "content": "y"}]})
        self.check(self.upload(f"{_GOOD_ROW}\n{row}\n"), 1, "line 2", str(_MAX_ROW_BYTES))

    def test_json_nested_deeply(self) -> None:
        row = '{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}"
        self.check(self.upload(f"{_GOOD_ROW}\n{row}\n"), 1, "line 2")

    def test_bytes_that_are_no_text(self) -> None:
        self.check(self.upload(_GOOD_ROW.encode() + b"\n\xff\xfe\n"), 1, "line 2", "UTF-8")

    def test_unknown_flag(self) -> None:
        result = self.world.cli("submit", self.world.folder / "job.yaml", "--folow")
        self.check(result, 2, "unknown flag --folow", "try: --follow")

    def test_unknown_flag_of_the_daemon(self) -> None:
        command = [*self.world.daemon.command(), "--lisen=127.0.0.1:0"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(64, result.returncode)
        self.assertIn("--lisen", result.stderr)
        self.assertIn("--listen", result.stderr)

    def test_unknown_field_in_a_job_file(self) -> None:
        path = self.world.folder / "job.yaml"
        path.write_text("model: models/toy\ntrain:\n  stpes: 3\n")
        result = self.world.cli("submit", path)
        self.check(result, 2, "job.yaml:3: unknown key train.stpes", "try: train.steps")

    def test_absent_model_and_data_set(self) -> None:
        result = self.world.cli("submit", self.world.job_file())
        self.check(result, 3, "models/toy", "model ls")

    def test_absent_job(self) -> None:
        for verb in ("watch", "show", "logs", "pause", "resume", "fork", "cancel"):
            self.check(self.world.cli(verb, "absent"), 3, "jobs/absent", "ps -a")

    def test_absent_checkpoint(self) -> None:
        name = "absent/step-00000001"
        for arguments in (
            ("checkpoint", "verify", name),
            ("checkpoint", "pin", name),
            ("checkpoint", "rm", name, "--yes"),
            ("checkpoint", "download", name, self.world.folder / "fetched"),
            ("fork", name),
        ):
            full = "jobs/absent/checkpoints/step-00000001"
            self.check(self.world.cli(*arguments), 3, full, "checkpoint ls")

    def test_port_in_use(self) -> None:
        other = Daemon(self.world.folder)
        other.state = self.world.folder / "other"
        command = other.command()
        command[command.index("127.0.0.1:0")] = self.world.daemon.read_state("address")
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(0, result.returncode)
        self.assertIn(self.world.daemon.read_state("address"), result.stdout + result.stderr)
        self.assertEqual([], self.world.leftovers())

    def test_state_folder_in_use(self) -> None:
        command = self.world.daemon.command()
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(0, result.returncode)
        self.assertIn(str(self.world.daemon.state), result.stdout + result.stderr)


class JobErrorsTest(unittest.TestCase):
    """Wrong jobs over a right model and data set."""

    world: ClassVar[World]

    @classmethod
    def setUpClass(cls) -> None:
        cls.world = World()
        cls.addClassCleanup(cls.world.close)
        cls.world.daemon.start()
        cls.world.prepare(row_count=8)

    def check(self, result: Result, code: int, *words: str) -> None:
        self.assertEqual(code, result.code, result.err)
        for word in words:
            self.assertIn(word, result.err)
        self.assertEqual([], self.world.must("ps", "-a", "-o", "json").json()["jobs"])

    def test_steps_and_epochs(self) -> None:
        self.check(self.world.cli("submit", self.world.job_file(epochs=1)), 2, "epochs")

    def test_every_wrong_field_at_once(self) -> None:
        job = self.world.job_file(batch_rows=-1, compute_dtype="fp8")
        self.check(self.world.cli("submit", job), 2, "batch_rows", "compute_dtype")

    def test_a_job_that_does_not_fit(self) -> None:
        path = self.world.job_file()
        content = json.loads(path.read_text()) | {"placement": {"host_limit": "1MiB"}}
        path.write_text(json.dumps(content))
        self.check(self.world.cli("submit", path), 6, "host")
        plan = self.world.cli("plan", path)
        self.assertEqual(6, plan.code)
        self.assertIn("verdict:", plan.out)

    def test_keys_that_no_server_serves_yet(self) -> None:
        job = self.world.job_file(batch_tokens=65536)
        self.check(self.world.cli("submit", job), 2, "train.batch_tokens is not supported yet")

    def test_keys_near_to_known_ones(self) -> None:
        path = self.world.job_file()
        for key, value, nearest in (
            ("validation", {"split": 0.1}, "evaluation"),
            ("checkpoint", {"every_step": 1}, "checkpoint.every_steps"),
        ):
            path.write_text(json.dumps({"model": "models/toy", key: value}))
            self.check(self.world.cli("submit", path), 2, f"try: {nearest}")

    def test_dry_run_makes_no_job(self) -> None:
        result = self.world.cli("submit", self.world.job_file(), "--dry-run")
        self.assertEqual(0, result.code, result.err)
        self.assertIn("verdict:", result.out)
        self.assertEqual([], self.world.must("ps", "-a", "-o", "json").json()["jobs"])


if __name__ == "__main__":
    unittest.main()
