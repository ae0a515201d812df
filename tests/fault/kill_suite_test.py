"""Daemon and engine are killed at random instants, again and again: at steps, in saves, evaluations
and exports, while a job is submitted, forked, paused, resumed and preempted. Whatever happens, no
accepted job is lost, and a job that was killed ends with the bits of one that was not: each step's
and each evaluation's figures, the order of all rows, the weights' high and low parts, both moments,
and what is exported.

`--kills N` is the least number of kills (the long form: thousands): they go on until each phase
that counts was hit. `--seed N` repeats a run.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
import unittest
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from followed_job import FollowedJob
from world import Result, World, wait_until

_STEPS = 40
_UNREACHABLE = 8  # the command line's exit code
_PLANES = ("weights_hi.bin", "weights_lo.bin", "adam_m.bin", "adam_v.bin")
# Kinds of jobs, and how often there is one.
_KINDS = {"plain": 5, "paused": 3, "forked": 2, "weights only": 1, "preempted": 2}
# What a kill aims at, and how often: a state and a phase, or any instant.
_AIMS = {
    ("", ""): 2,
    ("RUNNING", ""): 6,
    ("RUNNING", "saving"): 3,
    ("RUNNING", "evaluating"): 3,
    ("RUNNING", "exporting"): 1,
}
# What has to have been hit in the end, by a kill or by a job of higher priority. Once there were
# enough kills, half of them aim at what was not.
_TO_HIT = ("training", "saving", "evaluating", "preempted")
_OPTIONS = argparse.Namespace(kills=0, seed=0)


class Outcome(NamedTuple):
    """What must not depend on kills."""

    first: int  # step from which it went on as a fork
    steps: dict[int, tuple[Any, ...]]
    evaluations: dict[int, tuple[Any, ...]]
    progress: dict[str, Any]  # with a checksum over the numbers of all rows, in their order
    state: dict[str, bytes]
    exported: bytes


class KillSuiteTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()
        self.world.prepare()
        self.random = random.Random(_OPTIONS.seed)
        self.kills = 0
        self.damaged: dict[Path, tuple[bytes, bytes]] = {}  # what was in a file, and what is now
        self.jobs: list[str] = []
        self.hits: Counter[str] = Counter()
        self.expected: dict[str, Outcome] = {}
        self.run_seconds = 0.0  # of a job that nothing disturbs

    def late(self) -> list[str]:
        """What was to be hit by now."""
        enough = self.kills >= _OPTIONS.kills
        return [name for name in _TO_HIT if enough and not self.hits[name]]

    def choose(self, weights: dict[Any, int]) -> Any:
        return self.random.choices(list(weights), list(weights.values()))[0]

    def command(self, kind: str, keep: int = 3) -> list[str]:
        """That makes a job of that kind."""
        settings = (
            *("checkpoint.every_steps=4", f"checkpoint.keep_last={keep}", "checkpoint.at_end=true"),
            *("evaluation.split=0.4", "evaluation.every_steps=5", "retry.max_attempts=100"),
            "output=models/tuned",
            *(["priority=1"] if kind == "urgent" else []),
        )
        flags = [flag for setting in settings for flag in ("--set", setting)]
        if kind in ("forked", "weights only"):
            weights_only = ["--weights-only"] if kind == "weights only" else []
            return ["fork", self.source, "-o", "name", *flags, *weights_only]
        return ["submit", str(self.world.job_file(steps=_STEPS)), "-o", "name", *flags]

    def submit(self, kind: str, keep: int = 3) -> FollowedJob:
        """Once in a while, the daemon dies while it is asked; the command is repeated then."""
        command = self.command(kind, keep)
        client = self.world.start_cli(*command)
        if self.jobs and self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, 0.1))
            self.kill_daemon()
        out, err = client.communicate(timeout=120)
        name = out.strip()
        if client.returncode == _UNREACHABLE:
            name = self.world.must(*command).out.strip()
        else:
            self.assertEqual(0, client.returncode, err)
        self.jobs.append(name)
        job = FollowedJob(self.world, name)
        self.addCleanup(job.close)
        return job

    def outcome(self, job: FollowedJob) -> Outcome:
        """No figure is missing: those that were on their way to the daemon when it died are those
        that the checkpoint remembers from which the job went on."""
        final = self.world.job(job.name)
        self.assertEqual("JOB_STATE_SUCCEEDED", final["state"], final)
        keys = ("loss", "gradientNorm", "learningRate", "tokenCount", "lossTokenCount", "skipped")
        steps = self.figures(job, "step", keys)
        goes_on = final.get("forkMode") == "FORK_MODE_FULL_STATE"
        first = int(final["forkedFrom"][-8:]) if goes_on else 0
        self.assertEqual(list(range(first + 1, _STEPS + 1)), sorted(steps))
        state = self.world.daemon.state
        checkpoint = state / job.name / f"checkpoints/step-{_STEPS:08}"
        self.mend(checkpoint)
        return Outcome(
            first,
            steps,
            self.figures(job, "evaluation", ("loss",)),
            json.loads((checkpoint / "manifest.json").read_text())["progress"],
            {name: (checkpoint / name).read_bytes() for name in _PLANES},
            (state / final["outputVersion"] / "model.safetensors").read_bytes(),
        )

    def figures(
        self, job: FollowedJob, kind: str, keys: tuple[str, ...]
    ) -> dict[int, tuple[Any, ...]]:
        """By step. What is done again after a kill has the same figures."""
        figures: dict[int, tuple[Any, ...]] = {}
        for event in job.events():
            if record := event.get(kind):
                values = tuple(record.get(key) for key in keys)
                self.assertEqual(values, figures.setdefault(int(record["step"]), values), record)
        return figures

    def check(self, expected: Outcome, got: Outcome, name: str) -> None:
        for wanted, found in ((expected.steps, got.steps), (expected.evaluations, got.evaluations)):
            behind = {step: wanted[step] for step in wanted if step > got.first}
            self.assertEqual(behind, found, name)
        self.assertEqual(expected.progress, got.progress, name)
        for plane in _PLANES:
            self.assertTrue(expected.state[plane] == got.state[plane], f"{name}: {plane}")
        self.assertTrue(expected.exported == got.exported, f"{name}: its export")

    def undisturbed(self, kind: str) -> tuple[Outcome, float]:
        """And for how long it does steps."""
        job = self.submit(kind, keep=_STEPS)
        job.wait(60, lambda: any(change[0] == "RUNNING" for change in job.changes()))
        start = time.monotonic()
        self.assertTrue(job.wait(60), "the undisturbed job has an end")
        seconds = time.monotonic() - start
        outcome = self.outcome(job)
        job.close()
        return outcome, seconds

    def corrupt_newest_checkpoint(self, name: str) -> None:
        """Flips one bit of it; the one before must be there to go on from."""
        folder = self.world.daemon.state / name / "checkpoints"
        checkpoints = sorted(folder.glob("step-*")) if folder.exists() else []
        if not checkpoints or self.world.daemon.running:
            return
        path = self.random.choice(sorted(checkpoints[-1].iterdir()))
        whole = path.read_bytes()
        content = bytearray(whole)
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        path.write_bytes(content)
        self.damaged[path] = (whole, bytes(content))

    def mend(self, checkpoint: Path) -> None:
        """Takes back a damage that came when the job no longer needed its last checkpoint: had it
        gone on from there, it would have written another."""
        for path, (whole, content) in self.damaged.items():
            if path.parent == checkpoint and path.read_bytes() == content:
                name = str(checkpoint.relative_to(self.world.daemon.state))
                self.assertNotEqual(0, self.world.cli("checkpoint", "verify", name).code, path)
                path.write_bytes(whole)

    def kill_daemon(self, then: Callable[[], None] = lambda: None) -> None:
        self.world.daemon.kill()
        self.kills += 1
        then()
        self.world.daemon.start()

    def disturb(self, job: FollowedJob) -> None:
        victim = self.choose({"engine": 50, "daemon": 35, "stop": 5})
        daemon = self.world.daemon
        if victim == "engine":
            pid = daemon.engine_pid()
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.kills += 1
            return
        if victim == "stop":
            self.assertEqual(0, daemon.stop())
            daemon.start()
        else:
            corrupts = self.random.random() < 0.15
            self.kill_daemon(lambda: self.corrupt_newest_checkpoint(job.name) if corrupts else None)
        job.reconnect()

    def wait_for_an_instant(self, job: FollowedJob) -> bool:
        """Of the job's life, at random; whether it has ended before."""
        state, phase = self.choose(_AIMS)
        late = [aim for aim in _AIMS if aim[1] in self.late()]
        if late and self.random.random() < 0.5:  # not always: it would get no further
            state, phase = late[0]
        if state:
            job.wait_for_next(state, phase, 10)
        spread = {"": self.run_seconds, "evaluating": 0.002}.get(phase, 0.01)
        return job.wait(self.random.uniform(0, spread))

    def pause_and_resume(self, job: FollowedJob) -> None:
        """With a death after either."""
        if self.world.cli("pause", job.name).code != 0:
            return  # it has ended
        job.wait(self.random.uniform(0, 0.05))
        self.disturb(job)

        def rests() -> bool:
            now = self.world.job(job.name)
            return now["state"] == "JOB_STATE_PAUSED" or now.get("held", False) or job.ended

        wait_until(f"{job.name} is paused", rests)
        resumed: Result = self.world.cli("resume", job.name)
        self.assertTrue(resumed.code == 0 or job.wait(1), resumed.err)
        job.wait(self.random.uniform(0, 0.2))
        self.disturb(job)

    def preempt(self, job: FollowedJob) -> None:
        """By one of higher priority, under which things die too."""
        if not job.wait_for_next("RUNNING", "", 10):
            self.finish("urgent", self.submit("urgent"))
            job.reconnect()

    def run_disturbed(self, job: FollowedJob, kind: str) -> None:
        """Until the job has ended: at instants of its life, something is killed."""
        once = {"paused": self.pause_and_resume, "preempted": self.preempt}.get(kind)
        while not self.wait_for_an_instant(job):
            if once:
                once(job)
                once = None
            else:
                self.disturb(job)

    def finish(self, kind: str, job: FollowedJob) -> None:
        """Disturbs it until it has ended, as one does that nothing disturbs."""
        job.reconnect()  # the daemon may have died meanwhile
        self.run_disturbed(job, kind)
        self.check(self.expected.get(kind, self.expected["plain"]), self.outcome(job), job.name)
        self.note_hits(job)
        job.close()

    def note_hits(self, job: FollowedJob) -> None:
        """Counts at what the job was when something died under it, or that it was preempted."""
        before = ("QUEUED", "", "")
        for change in job.changes():
            died = change[2] in ("ENGINE_DIED", "SERVER_DIED")
            if died and change[0] == "QUEUED" != before[0]:
                self.hits[before[1] if before[0] == "RUNNING" else before[0].lower()] += 1
            if change[2] == "PREEMPTED" and change[0] == "QUEUED" != before[0]:
                self.hits["preempted"] += 1
            before = change

    def check_service(self) -> None:
        """After all of it: every job is there once, with one version; nothing half-made is."""
        self.assertEqual(0, self.world.daemon.stop())
        self.world.daemon.start()
        listed = self.world.must("ps", "-a", "-o", "json").json()["jobs"]
        self.assertEqual(sorted(self.jobs), sorted(job["name"] for job in listed))
        versions = self.world.must("model", "ls", "-o", "name").out.split()
        tuned = [version for version in versions if version.startswith("models/tuned/")]
        self.assertEqual(len(self.jobs), len(tuned), "each job has one version")
        state = self.world.daemon.state
        self.assertEqual([], list(state.glob("jobs/*/checkpoints/tmp-*")))
        self.assertEqual(0, self.world.daemon.stop())
        with contextlib.closing(sqlite3.connect(state / "db.sqlite")) as database:
            self.assertEqual([("ok",)], database.execute("PRAGMA integrity_check").fetchall())

    def test_a_killed_job_ends_as_one_that_was_not(self) -> None:
        self.expected["plain"], self.run_seconds = self.undisturbed("plain")
        updates = sum(
            seconds
            for name, seconds in self.world.daemon.metrics().items()
            if name.startswith("megatrain_stream_busy_seconds_total{") and "optimizer" in name
        )
        self.source = f"{self.jobs[0]}/checkpoints/step-00000012"
        self.expected["weights only"], _ = self.undisturbed("weights only")
        while self.kills < _OPTIONS.kills or self.late():
            self.assertLess(self.kills, 3 * _OPTIONS.kills + 100, f"not hit: {self.late()}")
            kinds = [self.choose(_KINDS) for _ in range(2)]
            kinds[0] = "preempted" if "preempted" in self.late() else kinds[0]
            for kind, job in [(kind, self.submit(kind)) for kind in kinds]:
                self.finish(kind, job)
        self.check_service()
        print(
            f"{self.kills} kills, {len(self.damaged)} damaged checkpoints, {len(self.jobs)} jobs; "
            f"hit: {dict(self.hits.most_common())}; updates run beside steps for "
            f"{updates / self.run_seconds:.0%} of the time"
        )


def _parse() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options, rest = parser.parse_known_args()
    _OPTIONS.kills, _OPTIONS.seed = options.kills, options.seed
    print(f"seed {options.seed}: repeat with --seed {options.seed}", flush=True)
    sys.argv[1:] = rest


if __name__ == "__main__":
    _parse()
    unittest.main()
