"""A job and what is told of it, across deaths of the daemon."""

import json
import subprocess
import threading
from collections.abc import Callable
from typing import Any

from world import World


class FollowedJob:
    """Runs `megatrain watch` and keeps each event once, in order. `close` ends it."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name
        self._changed = threading.Condition()
        self._events: list[Any] = []
        self._final: Any = None
        self._watch()

    def _watch(self) -> None:
        self._process = self._world.start_cli("watch", self.name, "-o", "json")
        self._reader = threading.Thread(target=self._read, args=(self._process,))
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith("\n"):
                return  # cut off: it was killed
            event = json.loads(line)
            with self._changed:
                last = int(self._events[-1]["sequence"]) if self._events else 0
                if "final" in event:
                    self._final = event["final"]
                elif int(event.get("sequence", "0")) > last:
                    self._events.append(event)
                self._changed.notify_all()

    def close(self) -> None:
        self._process.kill()
        self._reader.join()
        self._process.communicate()

    def reconnect(self) -> None:
        """To a daemon that was started anew: sooner than `watch` itself would be there."""
        self.close()
        self._watch()

    @property
    def ended(self) -> bool:
        with self._changed:
            return self._final is not None

    def events(self) -> list[Any]:
        with self._changed:
            return list(self._events)

    def changes(self) -> list[tuple[str, str, str]]:
        """State, phase and code of the reason of each change."""
        changes = [event["stateChange"] for event in self.events() if "stateChange" in event]
        return [
            (
                change["state"].removeprefix("JOB_STATE_"),
                change.get("phase", ""),
                (change.get("reason") or {}).get("code", ""),
            )
            for change in changes
        ]

    def wait(self, seconds: float, condition: Callable[[], bool] = lambda: False) -> bool:
        """Until `condition` holds, it has ended or time is over; whether it has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._final is not None or condition(), seconds)
            return self._final is not None

    def wait_for_next(self, state: str, phase: str, seconds: float) -> bool:
        """Until it is, from now on, told to get there; an empty phase is any."""
        seen = len(self.changes())

        def there() -> bool:
            return any(
                change[0] == state and phase in (change[1], "") for change in self.changes()[seen:]
            )

        return self.wait(seconds, there)
