"""The engine dies in the middle of a step: the reason is kept, the service goes on."""

import json
import os
import signal
import unittest
from pathlib import Path
from typing import Any

from world import World, wait_until


class EngineDeathTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()
        self.world.prepare()

    def submit(self, *settings: str, **train: object) -> str:
        flags = [flag for setting in settings for flag in ("--set", setting)]
        job_file = self.world.job_file(**train)
        return self.world.must("submit", job_file, "-o", "name", *flags).out.strip()

    def kill_engine_mid_step(self, name: str) -> None:
        def stepping() -> Any:
            return (self.world.job(name).get("lastStep") or {}).get("step", "0") != "0"

        wait_until(f"{name} does steps", stepping)
        pid = self.world.daemon.engine_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def events(self, name: str) -> list[Any]:
        return [
            json.loads(line)
            for line in self.world.cli("watch", name, "-o", "json").out.splitlines()
        ]

    def weights(self, version: int) -> bytes:
        folder = self.world.folder / f"export{version}"
        self.world.must("model", "export", f"tuned/versions/{version}", folder)
        return Path(folder / "model.safetensors").read_bytes()

    def test_the_job_is_retried_from_its_start(self) -> None:
        name = self.submit(steps=200)
        self.kill_engine_mid_step(name)
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED")
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"])
        self.assertEqual(2, job["attempt"])
        changes = [event["stateChange"] for event in self.events(name) if "stateChange" in event]
        reasons = [change["reason"] for change in changes if change.get("reason")]
        self.assertTrue(
            any(r["code"] == "ENGINE_DIED" and "signal 9" in r["message"] for r in reasons),
            changes,
        )
        self.assertIn("signal 9", self.world.must("logs", name).out)
        server = self.world.must("server", "-o", "json").json()
        self.assertEqual("1", server["engineRestartCount"])
        undisturbed = self.submit(steps=200)
        self.world.wait_for_job(undisturbed, "SUCCEEDED")
        self.assertEqual(self.weights(2), self.weights(1))

    def test_the_last_attempt_fails_with_the_reason_and_the_next_job_runs(self) -> None:
        name = self.submit("retry.max_attempts=1", steps=100_000)
        waiting = self.submit(steps=5)
        self.kill_engine_mid_step(name)
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED")
        self.assertEqual("JOB_STATE_FAILED", job["state"])
        self.assertIn("signal 9", job["reason"]["message"])
        self.assertTrue(job["reason"]["code"])
        result = self.world.cli("watch", name)
        self.assertEqual(10, result.code)
        self.assertIn("signal 9", result.err)
        next_job = self.world.wait_for_job(waiting, "SUCCEEDED", "FAILED")
        self.assertEqual("JOB_STATE_SUCCEEDED", next_job["state"])

    def test_an_engine_that_dies_idle_is_started_again(self) -> None:
        pid = wait_until("the engine is there", self.world.daemon.engine_pid)
        os.kill(pid, signal.SIGKILL)
        name = self.submit(steps=3)
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED")
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"])


if __name__ == "__main__":
    unittest.main()
