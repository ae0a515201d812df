"""Work is saved, goes on bit for bit, branches off, and can be taken elsewhere."""

import json
import os
import shutil
import signal
import unittest
from pathlib import Path
from typing import Any

import exported
from world import World, wait_until


class CheckpointTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()
        self.world.prepare()

    def submit(self, *settings: str, **train: object) -> str:
        flags = [flag for setting in settings for flag in ("--set", setting)]
        job_file = self.world.job_file(**train)
        return self.world.must("submit", job_file, "-o", "name", *flags).out.strip()

    def must_succeed(self, name: str) -> Any:
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED", "CANCELLED")
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"], job)
        return job

    def wait_for_step(self, name: str, step: int) -> None:
        def there() -> bool:
            last = self.world.job(name).get("lastStep") or {"step": 0}
            return int(last["step"]) >= step

        wait_until(f"{name} is at step {step}", there)

    def checkpoints(self, name: str) -> list[Any]:
        """Newest first."""
        listed = self.world.must("checkpoint", "ls", name, "-o", "json").json()
        checkpoints: list[Any] = listed["checkpoints"]
        return checkpoints

    def weights(self, *source: str) -> str:
        """The digest of what an export writes; of a model or, after --checkpoint, of one."""
        folder = self.world.folder / "-".join(source).strip("-").replace("/", "-")
        self.world.must("model", "export", *source, folder)
        return exported.content(folder)["model.safetensors"]

    def losses(self, name: str) -> dict[int, set[float]]:
        """All that were told of each step: more than one after a step was done again."""
        losses: dict[int, set[float]] = {}
        for line in self.world.must("watch", name, "-o", "json").out.splitlines():
            step = json.loads(line).get("step")
            if step:
                losses.setdefault(int(step["step"]), set()).add(step["loss"])
        return losses

    def check_same_run(self, name: str, undisturbed: str) -> None:
        job, reference = self.world.job(name), self.must_succeed(undisturbed)
        self.assertEqual(self.losses(undisturbed), self.losses(name))
        self.assertEqual(
            self.weights(reference["outputVersion"]), self.weights(job["outputVersion"])
        )

    def test_a_paused_job_goes_on_bit_for_bit(self) -> None:
        world = self.world
        name = self.submit("checkpoint.every_steps=250", steps=300)
        self.wait_for_step(name, 10)
        paused = world.must("pause", name, "--wait")
        self.assertEqual(f"{name} PAUSED\n", paused.out)
        self.assertIn(f"megatrain resume {name.removeprefix('jobs/')}", paused.err)
        job = world.job(name)
        self.assertIn("PAUSED", world.must("ps").out)
        self.assertIn(job["lastCheckpoint"].rpartition("/")[2], world.must("ps").out)
        newest = self.checkpoints(name)[0]
        self.assertEqual(job["lastCheckpoint"], newest["name"])
        self.assertEqual("CHECKPOINT_TRIGGER_PAUSE", newest["trigger"])
        self.assertEqual(job["lastStep"]["step"], newest["step"])
        self.assertEqual(6, world.cli("checkpoint", "create", name).code)
        self.assertEqual("", world.must("server", "-o", "json").json()["runningJob"])
        world.must("resume", name)
        job = self.must_succeed(name)
        self.assertEqual(newest["name"], job["resumedFrom"])
        self.assertEqual(1, job["attempt"])
        self.check_same_run(name, self.submit(steps=300))

    def test_a_killed_engine_goes_on_from_the_last_checkpoint(self) -> None:
        name = self.submit("checkpoint.every_steps=20", steps=300)
        wait_until("it is saved", lambda: self.world.job(name)["lastCheckpoint"])
        pid = self.world.daemon.engine_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        job = self.must_succeed(name)
        self.assertEqual(2, job["attempt"])
        self.assertNotEqual("", job["resumedFrom"])
        self.assertIn("resumed from", self.world.must("show", name).out)
        self.check_same_run(name, self.submit(steps=300))

    def test_an_engine_that_dies_while_it_replaces_a_checkpoint_loses_none(self) -> None:
        name = self.submit(steps=300)
        self.wait_for_step(name, 10)
        self.world.must("pause", name, "--wait")
        (only,) = self.checkpoints(name)
        # Between its two renames.
        path = Path(only["path"])
        shutil.copytree(path, path.with_name(f"tmp-{path.name}"))
        path.rename(path.with_name(f"tmp-replaced-{path.name}"))
        self.world.must("resume", name)
        job = self.must_succeed(name)
        self.assertEqual(only["name"], job["resumedFrom"])
        self.assertNotIn("damaged", self.world.must("logs", name).out)
        self.check_same_run(name, self.submit(steps=300))

    def test_checkpoints_are_kept_checked_fetched_and_removed(self) -> None:
        world = self.world
        name = self.submit("checkpoint={every_steps: 10, keep_last: 2, at_end: true}", steps=35)
        job = self.must_succeed(name)
        checkpoints = self.checkpoints(name)
        self.assertEqual(["35", "30"], [checkpoint["step"] for checkpoint in checkpoints])
        last, older = (checkpoint["name"] for checkpoint in checkpoints)
        world.must("checkpoint", "verify", last)
        folder = world.folder / "fetched"
        world.must("checkpoint", "download", last, folder)
        self.assertEqual(exported.content(Path(checkpoints[0]["path"])), exported.content(folder))
        self.assertEqual(6, world.cli("checkpoint", "download", last, folder).code)
        world.must("checkpoint", "pin", older)
        self.assertEqual(6, world.cli("checkpoint", "rm", older, "--yes").code)
        world.must("checkpoint", "unpin", older)
        world.must("checkpoint", "rm", older, "--dry-run")
        world.must("checkpoint", "rm", older, "--yes")
        self.assertEqual([last], [checkpoint["name"] for checkpoint in self.checkpoints(name)])
        self.assertFalse(Path(checkpoints[1]["path"]).exists())
        self.assertEqual(self.weights(job["outputVersion"]), self.weights("--checkpoint", last))
        exported.load(world.folder / f"checkpoint-{last}".replace("/", "-"))
        self.damage(Path(checkpoints[0]["path"]))
        verified = world.cli("checkpoint", "verify", last)
        self.assertEqual(1, verified.code)
        self.assertIn("CHECKPOINT_CORRUPT", verified.err)
        self.assertIn("damaged", world.must("checkpoint", "ls", name).out)

    def damage(self, checkpoint: Path) -> None:
        """Flips a bit in the middle of its largest file."""
        path = max(checkpoint.rglob("*"), key=lambda file: file.stat().st_size * file.is_file())
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)

    def test_a_download_outlives_its_own_death_and_the_daemons(self) -> None:
        world = self.world
        name = self.submit("checkpoint.at_end=true", steps=2)
        self.must_succeed(name)
        checkpoint = self.checkpoints(name)[0]
        folder = world.folder / "fetched"
        for _ in range(5):
            client = world.start_cli("checkpoint", "download", checkpoint["name"], folder)
            wait_until("it has begun", lambda: any(world.folder.glob("fetched*")))
            client.kill()
            client.communicate()
        self.assertEqual(0, world.daemon.stop())
        world.daemon.start()
        if not folder.exists():
            world.must("checkpoint", "download", checkpoint["name"], folder)
        self.assertEqual(exported.content(Path(checkpoint["path"])), exported.content(folder))
        self.assertEqual([folder], list(world.folder.glob("fetched*")))

    def test_a_fork_of_everything_goes_on_and_one_of_weights_begins_anew(self) -> None:
        world = self.world
        name = self.submit("checkpoint={every_steps: 20, keep_last: 9}", steps=60)
        job = self.must_succeed(name)
        source = next(c["name"] for c in self.checkpoints(name) if c["step"] == "20")
        forked = world.must("fork", source, "--name", "twin", "--wait", "-o", "json").json()
        self.assertEqual("jobs/twin", forked["name"])
        self.assertEqual("models/twin/versions/1", forked["outputVersion"])
        self.assertEqual(source, forked["forkedFrom"])
        self.assertEqual(self.weights(job["outputVersion"]), self.weights("twin"))
        self.assertEqual(
            {step: told for step, told in self.losses(name).items() if step > 20},
            self.losses("jobs/twin"),
        )
        fresh = world.must(
            *("fork", source, "--weights-only", "--wait", "-o", "json"),
            *("--set", "train.steps=3", "--set", "train.seed=5", "--set", "output=models/fresh"),
        ).json()
        self.assertEqual("FORK_MODE_WEIGHTS", fresh["forkMode"])
        losses = self.losses(fresh["name"])
        self.assertEqual([1, 2, 3], sorted(losses))
        first = max(self.losses(name)[1])
        self.assertLess(max(losses[1]), 0.8 * first, "it begins with trained weights")
        for other in ("batch_rows=4", "micro_batch_rows=4", "steps=19"):
            refused = world.cli("fork", source, "--dry-run", "--set", f"train.{other}")
            self.assertEqual(2, refused.code)
            self.assertIn(f"train.{other.partition('=')[0]}", refused.err)
        newest, older = (checkpoint["name"] for checkpoint in self.checkpoints(name)[:2])
        world.must("checkpoint", "rm", newest, "--yes")
        self.assertEqual(older, world.job(name)["lastCheckpoint"])
        world.must("fork", name, "--dry-run")

    def test_create_saves_now_and_resume_takes_an_earlier_one(self) -> None:
        world = self.world
        name = self.submit("checkpoint.keep_last=9", steps=400)
        self.wait_for_step(name, 5)
        created = world.must("checkpoint", "create", name, "-o", "name").out.strip()
        self.wait_for_step(name, int(created[-8:]) + 3)
        world.must("pause", name, "--wait")
        world.must("resume", name, "--from", created.rpartition("/")[2])
        job = self.must_succeed(name)
        self.assertEqual(created, job["resumedFrom"])
        self.check_same_run(name, self.submit(steps=400))

    def flip(self, path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    def test_a_changed_data_set_is_refused_when_its_tokens_are_made_again(self) -> None:
        state = self.world.daemon.state
        name = self.submit(steps=10_000)
        self.wait_for_step(name, 1)
        self.world.must("pause", name, "--wait")
        (tokens,) = (state / "prepared").iterdir()
        shutil.rmtree(tokens)
        rows = (state / "datasets/sums/data.jsonl").read_text().splitlines(keepends=True)
        (state / "datasets/sums/data.jsonl").write_text("".join(rows[:40]))
        self.world.must("resume", name)
        job = self.world.wait_for_job(name, "RUNNING", "FAILED")
        self.assertEqual("JOB_STATE_FAILED", job["state"], job)
        self.assertEqual("DATASET_CHANGED", job["reason"]["code"])

    def test_a_changed_model_is_refused_also_by_who_was_told_of_no_checkpoint(self) -> None:
        daemon = self.world.daemon
        twin = self.submit(steps=10_000)
        self.wait_for_step(twin, 1)
        self.world.must("pause", twin, "--wait")
        name = self.submit(steps=10_000)
        self.wait_for_step(name, 1)
        daemon.kill()
        # As if it had died after the engine's commit, and before the row.
        (saved,) = (daemon.state / twin).glob("checkpoints/step-*")
        shutil.copytree(saved, daemon.state / name / "checkpoints" / saved.name)
        self.flip(daemon.state / "models/toy/versions/1/model.safetensors")
        daemon.start()
        wait_until("it is tried again", lambda: self.world.job(name)["attempt"] == 2)
        job = self.world.wait_for_job(name, "RUNNING", "FAILED")
        self.assertEqual("JOB_STATE_FAILED", job["state"], job)
        self.assertEqual("MODEL_CHANGED", job["reason"]["code"])
        self.assertEqual(f"{name}/checkpoints/{saved.name}", job["lastCheckpoint"])

    def test_what_has_changed_is_refused_when_a_job_goes_on(self) -> None:
        state = self.world.daemon.state
        for pattern, words in (
            ("models/toy/versions/1/model.safetensors", "models/toy/versions/1"),
            ("models/toy/versions/1/tokenizer_config.json", "models/toy/versions/1"),
            ("prepared/*/tokens.bin", "its SHA-256 is not the manifest's"),
        ):
            with self.subTest(pattern):
                name = self.submit(steps=10_000)
                self.wait_for_step(name, 1)
                self.world.must("pause", name, "--wait")
                (path,) = state.glob(pattern)
                self.flip(path)
                self.world.must("resume", name)
                job = self.world.wait_for_job(name, "RUNNING", "FAILED")
                self.assertEqual("JOB_STATE_FAILED", job["state"], job)
                self.assertIn(words, job["reason"]["message"])
                self.flip(path)
        fork = ("fork", name, "--weights-only", "--set", "train.steps=2", "--wait", "-o", "json")
        self.assertEqual("JOB_STATE_SUCCEEDED", self.world.must(*fork).json()["state"])

    def test_a_job_that_gets_no_better_stops_early(self) -> None:
        name = self.submit(
            "evaluation={split: 0.25, every_steps: 2, early_stopping_patience: 2}",
            "checkpoint.at_end=true",
            "train.optimizer.learning_rate=1e-30",
            steps=100,
        )
        job = self.must_succeed(name)
        self.assertTrue(job["stoppedEarly"])
        self.assertEqual("6", job["lastStep"]["step"])
        self.assertEqual("2", job["bestEvaluation"]["step"])
        watched = self.world.must("watch", name)
        self.assertIn("stopped early: best validation loss", watched.err)
        forked = self.world.must(
            *("fork", name, "--wait", "-o", "json", "--set", "train.steps=9"),
            *("--set", "evaluation.early_stopping_patience=0"),
        ).json()
        self.assertEqual("9", forked["lastStep"]["step"], "it trains on")
        self.assertFalse(forked.get("stoppedEarly"))


if __name__ == "__main__":
    unittest.main()
