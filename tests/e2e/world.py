"""A real daemon with a real engine on loopback, and the real command line against it."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import toy_model

# Tests run in their runfiles, where the binaries lie by their labels.
_MEGATRAIN = Path("client/cli/megatrain").resolve()
_MEGATRAIND = Path("server/main/megatraind").resolve()
_ENGINE = Path("server/engine/megatrain-engine").resolve()
_PATIENCE_SECONDS = 120  # for what takes well under a second on an idle machine
_PROFILE = "machine/profile.json"
_MACHINE: list[bytes] = []  # what the first engine measured, for the worlds after it


def wait_until(what: str, condition: Callable[[], Any]) -> Any:
    """The condition's first true value; a look costs time, so who waits longer looks less often."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < _PATIENCE_SECONDS:
        if value := condition():
            return value
        time.sleep(min(0.01 + waited / 10, 0.1))
    raise AssertionError(f"waited {_PATIENCE_SECONDS} s in vain: {what}")


class Result(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Daemon:
    """megatraind over one state folder; a new process at the same address after each start."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.state = folder / "state"
        self.log = folder / "daemon.log"
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self._flags = flags
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = folder

    def command(self) -> list[str]:
        return [
            str(_MEGATRAIND),
            *("--state-dir", str(self.state), "--listen", self._listen),
            *("--metrics-listen", "127.0.0.1:0", "--backend", "cpu", "--engine", str(_ENGINE)),
            *("--allow-path", str(self._folder), "--python-path", os.environ["MEGATRAIN_DEPS"]),
            *self._flags,
        ]

    def start(self) -> None:
        for name in ("address", "metrics_address"):
            (self.state / name).unlink(missing_ok=True)
        if _MACHINE and not (profile := self.state / _PROFILE).exists():
            profile.parent.mkdir(parents=True)
            profile.write_bytes(_MACHINE[0])
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log)
        process = self._process
        wait_until(
            "the daemon listens",
            lambda: self.read_state("address") or process.poll() is not None,
        )
        if process.poll() is not None:
            raise AssertionError(f"the daemon ended:\n{self.log.read_text()}")
        self._listen = self.read_state("address")

    def read_state(self, name: str) -> str:
        path = self.state / name
        return path.read_text().strip() if path.exists() else ""

    def kill(self) -> None:
        """SIGKILL: no last words."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(_PATIENCE_SECONDS)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def engine_pid(self) -> int | None:
        """The engine that serves now."""
        assert self._process is not None
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            for pid in (task / "children").read_text().split():
                try:
                    if Path(f"/proc/{pid}/exe").resolve().name == _ENGINE.name:
                        return int(pid)
                except OSError:
                    continue  # it has ended meanwhile
        return None

    def metrics(self) -> dict[str, float]:
        url = f"http://{self.read_state('metrics_address')}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


class World:
    """A folder with a toy model, a daemon over it, and the command line. `close` ends all of it."""

    def __init__(self, *flags: str) -> None:
        # Not in TEST_TMPDIR, which can be longer than a socket's path may be.
        self.folder = Path(tempfile.mkdtemp(prefix="world-", dir="/tmp"))
        self.daemon = Daemon(self.folder, *flags)
        self.model_folder = toy_model.write_model(self.folder / "toy")

    def close(self) -> None:
        if self.daemon.running:
            self.daemon.kill()
        # An engine dies with its daemon, also one that was just being started.
        wait_until("no engine is left", lambda: not self.engines())
        shutil.rmtree(self.folder)

    def engines(self) -> list[int]:
        """Processes that serve a daemon of this folder, whoever is their parent now."""
        pids = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = path.read_text().split("\0")
            except OSError:
                continue  # it has ended meanwhile
            if (
                Path(command[0]).name == _ENGINE.name
                and f"{self.daemon.state}/engine.sock" in command
            ):
                pids.append(int(path.parent.name))
        return pids

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.daemon.home),
            "MEGATRAIN_ADDRESS": self.daemon.read_state("address"),
        }

    def start_cli(self, *arguments: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(_MEGATRAIN), *map(str, arguments)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def cli(self, *arguments: str | Path) -> Result:
        process = self.start_cli(*arguments)
        out, err = process.communicate(timeout=_PATIENCE_SECONDS)
        return Result(process.returncode, out, err)

    def must(self, *arguments: str | Path) -> Result:
        """A command that has to succeed."""
        result = self.cli(*arguments)
        if result.code != 0:
            log = self.daemon.log.read_text()[-4000:]
            raise AssertionError(f"{arguments}: {result.code}\n{result.err}\ndaemon:\n{log}")
        return result

    def engine_ready(self) -> bool:
        ready: bool = self.must("server", "-o", "json").json()["engineReady"]
        return ready

    def prepare(self, row_count: int = 64) -> None:
        """models/toy and datasets/sums, and an engine that answers."""
        wait_until("the engine is ready", self.engine_ready)
        _MACHINE.append((self.daemon.state / _PROFILE).read_bytes())
        self.must("model", "import", self.model_folder, "--name", "toy", "--wait")
        rows = toy_model.write_rows(self.folder / "rows.jsonl", row_count)
        self.must("dataset", "upload", rows, "--name", "sums")

    def job_file(self, **train: object) -> Path:
        """A job over what prepare() made; `train` over its defaults."""
        options: dict[str, object] = {
            "steps": 20,
            "batch_rows": 8,
            "optimizer": {"name": "adamw", "learning_rate": 1e-2},
            **train,
        }
        content = {
            "model": "models/toy",
            "dataset": "datasets/sums",
            "output": "models/tuned",
            "train": options,
        }
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(content))  # JSON is YAML
        return path

    def job(self, name: str) -> Any:
        jobs = self.must("ps", "-a", "-o", "json").json()["jobs"]
        return next(job for job in jobs if job["name"] == name)

    def wait_for_job(self, name: str, *states: str) -> Any:
        """The job once it is in one of the states, `SUCCEEDED`."""
        wanted = {f"JOB_STATE_{state}" for state in states}

        def job_in_state() -> Any:
            job = self.job(name)
            return job if job["state"] in wanted else None

        return wait_until(f"{name} is {' or '.join(states)}", job_in_state)

    def interrupt(self, process: subprocess.Popen[str]) -> Result:
        """Ctrl-C."""
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_PATIENCE_SECONDS)
        return Result(process.returncode, out, err)

    def leftovers(self) -> list[str]:
        """What lies under the state folder beyond what a daemon that did nothing has."""
        kept = {"db.sqlite", "db.sqlite-wal", "db.sqlite-shm", "lock", "address"}
        kept |= {"metrics_address", "engine.sock", "engine.log", "tmp/prepare.zip"}
        kept |= {_PROFILE}
        return sorted(
            str(path.relative_to(self.daemon.state))
            for path in self.daemon.state.rglob("*")
            if not path.is_dir() and str(path.relative_to(self.daemon.state)) not in kept
        )
