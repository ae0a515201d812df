"""A full disk: a clear error, nothing half-made, and work goes on once there is room."""

import os
import subprocess
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

import toy_model
from world import World

_DISK_BYTES = 6 << 20


class FullDiskTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        state = self.world.daemon.state
        state.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(state)]
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

    def test_an_upload(self) -> None:
        rows = self.world.folder / "rows.jsonl"
        toy_model.write_rows(rows, 80_000)
        self.assertGreater(rows.stat().st_size, _DISK_BYTES)
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


if __name__ == "__main__":
    unittest.main()
