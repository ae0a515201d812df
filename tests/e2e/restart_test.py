"""Clients that wait outlive an orderly stop of the daemon, as at an upgrade, and its new start."""

import signal
import subprocess
import threading
import unittest
from pathlib import Path

import exported
from world import Result, World, wait_until

_STOPS = 4  # a client meets the end of the old daemon at another moment each time


class RestartTest(unittest.TestCase):
    def setUp(self) -> None:
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.daemon.start()
        self.world.prepare()

    def restart(self) -> None:
        self.assertEqual(0, self.world.daemon.stop())
        self.world.daemon.start()

    def end(self, client: subprocess.Popen[str]) -> Result:
        out, err = client.communicate(timeout=120)
        return Result(client.returncode, out, err)

    def last_step(self, name: str) -> int:
        return int((self.world.job(name).get("lastStep") or {"step": 0})["step"])

    def restart_in_training(self, name: str) -> None:
        before = self.last_step(name)
        wait_until("it trains on", lambda: self.last_step(name) > before)
        self.restart()

    def download_over_a_restart(self, checkpoint: str, folder: Path) -> Result:
        client = self.world.start_cli("checkpoint", "download", checkpoint, folder)
        wait_until("it has begun", lambda: any(folder.parent.glob(f"{folder.name}*")))
        client.send_signal(signal.SIGSTOP)  # so that it goes on while the daemon stops
        threading.Timer(0.3, client.send_signal, [signal.SIGCONT]).start()
        self.restart()
        return self.end(client)

    def test_who_follows_a_job_goes_on_with_the_new_daemon(self) -> None:
        world = self.world
        submit = ("submit", world.job_file(steps=2000), "--wait")
        clients = {"submit --wait": world.start_cli(*submit)}
        wait_until("it is accepted", lambda: world.must("ps", "-o", "name").out)
        name = world.must("ps", "-o", "name").out.strip()
        clients["watch"] = world.start_cli("watch", name)
        clients["logs -f"] = world.start_cli("logs", "-f", name)
        for _ in range(_STOPS):
            self.restart_in_training(name)
        self.assertNotEqual("JOB_STATE_SUCCEEDED", world.job(name)["state"], "it ended too early")
        for command, client in clients.items():
            with self.subTest(command):
                ended = self.end(client)
                self.assertEqual(0, ended.code, ended.err)
        self.assertEqual(1, world.job(name)["attempt"])

    def test_a_download_goes_on_with_the_new_daemon(self) -> None:
        world = self.world
        world.must(
            *("submit", world.job_file(steps=2), "--wait", "--set", "checkpoint.at_end=true")
        )
        listed = world.must("checkpoint", "ls", "-o", "json").json()
        checkpoint = listed["checkpoints"][0]
        for stop in range(_STOPS):
            folder = world.folder / f"fetched-{stop}"
            ended = self.download_over_a_restart(checkpoint["name"], folder)
            self.assertEqual(0, ended.code, ended.err)
            self.assertEqual(exported.content(Path(checkpoint["path"])), exported.content(folder))


if __name__ == "__main__":
    unittest.main()
