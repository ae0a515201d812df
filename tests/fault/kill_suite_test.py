"""Daemon and engine are killed at random instants, again and again. Whatever happens, no accepted
job is lost, and a job that was killed ends with the bits of one that was not: each step's figures
and the weights.

`--kills N` is the number of kills (the long form: thousands), `--seed N` repeats a run.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
import unittest
from typing import Any, NamedTuple

from world import World

_STEPS = 40
_FINAL = {"JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED"}
_OPTIONS = argparse.Namespace(kills=200, seed=0)


class Outcome(NamedTuple):
    """What must not depend on kills."""

    figures: dict[int, tuple[Any, ...]]
    weights: bytes


class KillSuiteTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()
        self.world.prepare()
        self.random = random.Random(_OPTIONS.seed)
        self.kills = 0
        self.corrupted = 0

    def submit(self) -> str:
        settings = (
            *("checkpoint.every_steps=4", "checkpoint.keep_last=3", "checkpoint.at_end=true"),
            *("evaluation.split=0.1", "evaluation.every_steps=10", "retry.max_attempts=100"),
        )
        flags = [flag for setting in settings for flag in ("--set", setting)]
        job_file = self.world.job_file(steps=_STEPS)
        return self.world.must("submit", job_file, "-o", "name", *flags).out.strip()

    def outcome(self, name: str, daemon_died: bool) -> Outcome:
        """Figures that were on their way to the daemon when it died are the only ones to miss."""
        job = self.world.job(name)
        self.assertEqual("JOB_STATE_SUCCEEDED", job["state"], job)
        figures: dict[int, tuple[Any, ...]] = {}
        for line in self.world.must("watch", name, "-o", "json").out.splitlines():
            step = json.loads(line).get("step")
            if step is None:
                continue
            values = tuple(step.get(key) for key in ("loss", "gradientNorm", "learningRate"))
            # A step that is done again after a kill has the same figures.
            self.assertEqual(values, figures.setdefault(int(step["step"]), values), step)
        if not daemon_died:
            self.assertEqual(set(range(1, _STEPS + 1)), set(figures))
        folder = self.world.daemon.state / job["outputVersion"]
        return Outcome(figures, (folder / "model.safetensors").read_bytes())

    def undisturbed(self) -> tuple[Outcome, float]:
        """And for how long it does steps."""
        name = self.submit()
        self.wait_for_state(name, {"JOB_STATE_RUNNING"} | _FINAL, 60)
        start = time.monotonic()
        self.world.wait_for_job(name, "SUCCEEDED", "FAILED")
        return self.outcome(name, daemon_died=False), time.monotonic() - start

    def wait_for_state(self, name: str, states: set[str], seconds: float) -> bool:
        """Whether the job gets into one of the states in that time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.world.job(name)["state"] in states:
                return True
        return False

    def corrupt_newest_checkpoint(self, name: str) -> None:
        """Flips one bit of it; the one before must be there to go on from."""
        folder = self.world.daemon.state / name / "checkpoints"
        checkpoints = sorted(folder.glob("step-*")) if folder.exists() else []
        if not checkpoints:
            return
        path = self.random.choice(sorted(checkpoints[-1].iterdir()))
        content = bytearray(path.read_bytes())
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        path.write_bytes(content)
        self.corrupted += 1

    def disturb(self, name: str) -> bool:
        """Whether the daemon died without last words."""
        victim = self.random.choices(("engine", "daemon", "stop"), (50, 35, 15))[0]
        corrupts = self.random.random() < 0.15
        daemon = self.world.daemon
        if victim == "stop":
            self.assertEqual(0, daemon.stop())
            daemon.start()
            return False
        if victim == "engine":
            pid = daemon.engine_pid()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
            return False
        daemon.kill()
        self.kills += 1
        if corrupts:
            self.corrupt_newest_checkpoint(name)
        daemon.start()
        return True

    def run_disturbed(self, name: str, run_seconds: float) -> bool:
        """Until the job has ended: at instants of its life, something is killed. Whether the daemon
        died."""
        daemon_died = False
        while self.world.job(name)["state"] not in _FINAL:
            if self.random.random() < 0.7:
                self.wait_for_state(name, {"JOB_STATE_RUNNING"} | _FINAL, 30)
            delay = self.random.uniform(0, 1.3 * run_seconds)
            if self.wait_for_state(name, _FINAL, delay):
                break
            daemon_died = self.disturb(name) or daemon_died
        return daemon_died

    def test_a_killed_job_ends_as_one_that_was_not(self) -> None:
        expected, run_seconds = self.undisturbed()
        jobs = 0
        while self.kills < _OPTIONS.kills:
            names = [self.submit(), self.submit()]
            jobs += len(names)
            for name in names:
                got = self.outcome(name, self.run_disturbed(name, run_seconds))
                same = {step: expected.figures[step] for step in got.figures}
                self.assertEqual(same, got.figures, name)
                self.assertEqual(expected.weights, got.weights, name)
        versions = self.world.must("model", "ls", "-o", "name").out.split()
        tuned = [version for version in versions if version.startswith("models/tuned/")]
        self.assertEqual(jobs + 1, len(tuned), "each job has one version")
        temporary = list(self.world.daemon.state.glob("jobs/*/checkpoints/tmp-*"))
        self.assertEqual([], temporary)
        print(f"{self.kills} kills, {self.corrupted} damaged checkpoints, {jobs} jobs")


def _parse() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options, rest = parser.parse_known_args()
    _OPTIONS.kills, _OPTIONS.seed = options.kills, options.seed
    print(f"seed {options.seed}: repeat with --seed {options.seed}", flush=True)
    sys.argv[1:] = rest


if __name__ == "__main__":
    _parse()
    unittest.main()
