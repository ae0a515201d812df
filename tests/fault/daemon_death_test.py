"""The daemon dies or is stopped: no accepted job is lost, no half-made thing is seen."""

import unittest
from pathlib import Path
from typing import Any

from world import World, wait_until


class DaemonDeathTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()
        self.world.prepare()

    def submit(self, **train: object) -> str:
        return self.world.must("submit", self.world.job_file(**train), "-o", "name").out.strip()

    def submit_to(self, output: str) -> str:
        settings = ("--set", f"output=models/{output}", "-o", "name")
        return self.world.must("submit", self.world.job_file(steps=3), *settings).out.strip()

    def restart(self) -> None:
        self.world.daemon.kill()
        self.world.daemon.start()

    def must_succeed(self, name: str) -> Any:
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED", "CANCELLED")
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"], job)
        return job

    def steps_done(self, name: str) -> int:
        return int((self.world.job(name).get("lastStep") or {}).get("step", "0"))

    def test_killed_right_after_the_answer(self) -> None:
        names = [self.submit(steps=3), self.submit(steps=3)]
        self.restart()
        self.assertEqual(
            set(names),
            {job["name"] for job in self.world.must("ps", "-a", "-o", "json").json()["jobs"]},
        )
        for name in names:
            self.must_succeed(name)

    def test_killed_while_a_job_does_steps(self) -> None:
        name = self.submit(steps=200)
        wait_until("steps are done", lambda: self.steps_done(name) > 0)
        engine = self.world.daemon.engine_pid()
        self.world.daemon.kill()
        wait_until("the engine is gone", lambda: not Path(f"/proc/{engine}/exe").exists())
        self.world.daemon.start()
        job = self.must_succeed(name)
        self.assertEqual(2, job["attempt"])
        self.assertEqual("models/tuned/versions/1", job["outputVersion"])

    def test_killed_again_and_again(self) -> None:
        names = [self.submit(steps=60) for _ in range(2)]
        for _ in range(2):
            self.restart()
            wait_until(
                "a job is taken up",
                lambda: (
                    self.world.must("ps", "-o", "json").json()["jobs"][-1]["state"]
                    != "JOB_STATE_QUEUED"
                ),
            )
        for name in names:
            self.must_succeed(name)
        versions = self.world.must("model", "ls", "-o", "name").out.split()
        self.assertEqual(2, sum(version.startswith("models/tuned/") for version in versions))
        half_made = [path for path in self.world.leftovers() if path.startswith("tmp/")]
        self.assertEqual([], half_made)

    def test_a_result_without_a_place_outlives_a_death(self) -> None:
        place = self.world.daemon.state / "models/tuned"
        place.write_text("in the way")
        name = self.submit(steps=3)

        def waits() -> bool:
            job = self.world.job(name)
            reason = job.get("reason", {}).get("code")
            return (job.get("phase"), reason) == ("publishing", "OUTPUT_NOT_STORED")

        wait_until("it waits with its result", waits)
        self.restart()
        self.assertTrue(waits())
        self.must_succeed(self.submit_to("other"))
        place.unlink()
        self.world.must("resume", name)
        self.assertEqual(1, self.must_succeed(name)["attempt"])
        self.assertEqual([], list((self.world.daemon.state / "tmp/output").iterdir()))

    def test_killed_while_an_import_and_a_check_run(self) -> None:
        world = self.world
        importing = world.start_cli("model", "import", world.model_folder, "--name", "second")
        importing.communicate()
        self.restart()
        version = wait_until(
            "the import has ended",
            lambda: next(
                (
                    model
                    for model in world.must("model", "ls", "-o", "json").json()["modelVersions"]
                    if model["name"] == "models/second/versions/1"
                    and model["state"] != "MODEL_STATE_IMPORTING"
                ),
                None,
            ),
        )
        self.assertIn(version["state"], ("MODEL_STATE_READY", "MODEL_STATE_FAILED"))
        if version["state"] == "MODEL_STATE_FAILED":
            world.must("model", "import", world.model_folder, "--name", "second", "--wait")

    def test_sigterm_stops_in_order_and_the_job_goes_on_after_it(self) -> None:
        running = self.submit(steps=200)
        waiting = self.submit(steps=3)
        wait_until("steps are done", lambda: self.steps_done(running) > 0)
        self.assertEqual(0, self.world.daemon.stop())
        self.world.daemon.start()
        self.must_succeed(running)
        self.must_succeed(waiting)

    def test_a_follow_outlives_the_daemon(self) -> None:
        follow = self.world.start_cli("submit", self.world.job_file(steps=200), "--follow")
        name = wait_until(
            "the job is there", lambda: self.world.must("ps", "-o", "name").out.strip()
        )
        wait_until("steps are done", lambda: self.steps_done(name) > 0)
        self.restart()
        _, err = follow.communicate(timeout=120)
        self.assertEqual(0, follow.returncode, err)
        self.assertIn("connection lost", err)
        self.assertIn("SUCCEEDED", err)


if __name__ == "__main__":
    unittest.main()
