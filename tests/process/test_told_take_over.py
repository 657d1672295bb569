"""A take-over is told by the log alone, by the host that stood still and by its successor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples" / "flows"
LIMIT_S = 90.0


class Worker:
    """``outlive worker`` on the app of the two-host example; its log goes to a file."""

    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.name = name
        self._path = folder / f"{name}.log"
        command = ["worker", "two_hosts:app", "--name", name, "--session-ttl", "2", "-vv"]
        with self._path.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "outlive", *command],
                cwd=EXAMPLES,
                env={**os.environ, "OUTLIVE_URL": url},
                stderr=log,
            )

    def lines(self) -> list[str]:
        """What its log says: each line without the program and the time."""
        found = [line.split(" ", 2) for line in self._path.read_text().splitlines()]
        return [words[2] for words in found if len(words) > 2]

    def hear(self, said: str) -> None:
        until = time.monotonic() + LIMIT_S
        while not any(line.startswith(f"{self.name}: {said}") for line in self.lines()):
            assert time.monotonic() < until, (said, self.lines())
            assert self._process.poll() is None, self.lines()
            time.sleep(0.05)

    def send(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        self._process.terminate()
        assert self._process.wait(LIMIT_S) == 0

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def outlive(url: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "outlive", *arguments]
    environment = {**os.environ, "OUTLIVE_URL": url}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_logs_of_both_hosts_tell_a_take_over(store, tmp_path):
    workers = [Worker(store.url, "a", tmp_path)]
    try:
        (a,) = workers
        a.hear("host a joined")
        outlive(store.url, "flow", "start", "long", '{"name": "long", "steps": 30}', "--id", "long")
        a.hear("flow long of 'long' started")
        a.hear("step work#0 completed")
        workers.append(Worker(store.url, "b", tmp_path))
        b = workers[1]
        b.hear("host b joined")
        a.send(signal.SIGSTOP)
        b.hear("host a is dead: its session")
        b.hear("flow long of 'long' was recovered")
        b.hear("claimed flow long of 'long'")
        a.send(signal.SIGCONT)
        a.hear("this host lost its session")
        a.hear("opened a new session")
        outlive(store.url, "flow", "watch", "long")
        # A slow machine may give it back to the first host.
        said = [line for worker in workers for line in worker.lines()]
        assert sum(line.endswith("flow long of 'long' ended: completed") for line in said) == 1
        for worker in workers:
            worker.end()
            assert worker.lines()[-1] == f"{worker.name}: host {worker.name} left"
    finally:
        for worker in workers:
            worker.kill()
