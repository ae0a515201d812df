"""A full disk: a clear error, nothing half-made, and work goes on once there is room."""

import os
import subprocess
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

import toy_model
from world import World, wait_until

_PLANES = ("weights_hi.bin", "weights_lo.bin", "adam_m.bin", "adam_v.bin")


class FullDisk(unittest.TestCase):
    """The state folder lies on a disk of its own."""

    disk_bytes = 0

    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        state = self.world.daemon.state
        state.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={self.disk_bytes}", "tmpfs", str(state)]
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
        if mounted.returncode != 0:
            self.skipTest(f"a small disk cannot be made here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "-l", str(state)], check=True)
        self.addCleanup(self.world.daemon.kill)
        self.world.daemon.start()

    @contextmanager
    def filled(self, left_bytes: int) -> Iterator[None]:
        """The disk with so much room, for a while."""
        disk = os.statvfs(self.world.daemon.state)
        filler = self.world.daemon.state / "filler"
        filler.write_bytes(b"x" * (disk.f_bavail * disk.f_bsize - left_bytes))
        try:
            yield
        finally:
            filler.unlink()


class FullDiskTest(FullDisk):
    disk_bytes = 6 << 20

    def test_an_upload(self) -> None:
        rows = self.world.folder / "rows.jsonl"
        toy_model.write_rows(rows, 80_000)
        self.assertGreater(rows.stat().st_size, self.disk_bytes)
        result = self.world.cli("dataset", "upload", rows, "--name", "large")
        self.assertEqual(7, result.code, result.err)
        self.assertIn("disk", result.err)
        self.assertTrue(self.world.daemon.running)
        self.world.prepare()

    def test_an_import(self) -> None:
        with self.filled(left_bytes=100_000):
            result = self.world.cli(
                "model", "import", self.world.model_folder, "--name", "toy", "--wait"
            )
            self.assertIn(result.code, (1, 7), result.err)
            self.assertIn("disk", result.err)
        files = list((self.world.daemon.state / "models").rglob("*.safetensors"))
        self.assertEqual([], files)
        self.world.prepare()

    def test_a_job(self) -> None:
        self.world.prepare()
        # The first job leaves its prepared rows, so that the second needs room for itself only.
        self.submit(1)
        with self.filled(left_bytes=150_000):
            result = self.world.cli(*self.submission(2))
            self.assertEqual(6, result.code, result.err)
            self.assertIn("there must be room", result.err)
        versions = self.world.must("model", "ls", "-o", "name").out.split()
        self.assertEqual(1, sum(version.startswith("models/tuned/") for version in versions))
        self.submit(2)

    def submission(self, steps: int) -> list[str]:
        """Of a job without checkpoints, for many of which a small disk has no room."""
        file = self.world.job_file(steps=steps)
        return ["submit", str(file), "--set", "checkpoint.every_minutes=0", "--wait"]

    def submit(self, steps: int) -> None:
        self.world.must(*self.submission(steps))


class HoldingTest(FullDisk):
    """R15: a job whose state or result the disk does not take waits with it in memory."""

    disk_bytes = 48 << 20  # for what the database grows by, too

    def submit(self, *settings: str) -> str:
        self.world.prepare()
        return self.make_job(*settings)

    def make_job(self, *settings: str) -> str:
        flags = [flag for setting in settings for flag in ("--set", setting)]
        return self.world.must(
            "submit", self.world.job_file(steps=600), "-o", "name", *flags
        ).out.strip()

    def wait_until_it_holds(self, name: str) -> None:
        wait_until(f"{name} holds", lambda: self.world.job(name).get("phase") == "holding")
        job = self.world.job(name)
        self.assertEqual("JOB_STATE_RUNNING", job["state"])
        self.assertIn("no room for", job["reason"]["message"])
        metric = "megatrain_job_holding"
        wait_until("a metric tells it", lambda: self.world.daemon.metrics()[metric] == 1)
        self.assertIn("megatrain resume", self.world.must("show", name).err)

    def result(self, name: str) -> bytes:
        job = self.world.wait_for_job(name, "SUCCEEDED", "FAILED")
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"], job)
        self.assertEqual(1, job["attempt"])
        folder = self.world.daemon.state / job["outputVersion"]
        return (folder / "model.safetensors").read_bytes()

    def planes(self, name: str) -> list[bytes]:
        folder = self.world.daemon.state / name / "checkpoints/step-00000600"
        return [(folder / plane).read_bytes() for plane in _PLANES]

    def test_a_job_holds_and_goes_on_once_there_is_room(self) -> None:
        settings = ("checkpoint={every_steps: 60, keep_last: 1, at_end: true}",)
        name = self.submit(*settings)
        wait_until("it is saved", lambda: self.world.job(name).get("lastCheckpoint"))
        with self.filled(left_bytes=1_500_000):
            self.wait_until_it_holds(name)
            self.world.must("resume", name)  # in vain
            self.wait_until_it_holds(name)
        self.world.must("resume", name)
        result = self.result(name)
        undisturbed = self.make_job(*settings)
        self.assertTrue(self.result(undisturbed) == result)
        self.assertTrue(self.planes(undisturbed) == self.planes(name))

    def test_a_job_holds_its_export(self) -> None:
        settings = ("checkpoint={every_minutes: 0}",)
        undisturbed = self.result(self.submit(*settings))
        name = self.make_job(*settings)
        wait_until("it does steps", lambda: self.world.job(name).get("lastStep"))
        with self.filled(left_bytes=150_000):
            self.wait_until_it_holds(name)
        self.world.must("resume", name)
        self.assertTrue(self.result(name) == undisturbed)


if __name__ == "__main__":
    unittest.main()
