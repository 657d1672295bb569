"""The programs in ``examples/`` do what their first lines say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

EXAMPLES = ROOT / "examples"
PATIENCE_S = 30.0
LINES_MAX = 60


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]


def run(name: str, *arguments: str, folder: Path) -> list[str]:
    done = subprocess.run(
        command(name, *arguments),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_protect_write_refuses_the_late_one(tmp_path):
    said = run("protect_write.py", "accounts.db", folder=tmp_path)
    assert said[0].startswith("refused: ")
    assert said[1] == "balance 50"


def test_blocking_cron_runs_once_a_day(tmp_path):
    first = run("blocking_cron.py", "sqlite:///jobs.db", folder=tmp_path)
    assert (first[0], first[-1]) == ("step 1 of 3, token 1", "done")
    again = run("blocking_cron.py", "sqlite:///jobs.db", folder=tmp_path)
    # A run that crosses midnight has a new day to work for.
    assert again[-1] in ("already done today", "done")


def test_order_processing_pays_once_the_amount_is_right(tmp_path):
    said = run("order_processing.py", folder=tmp_path)
    assert said == ["0 open None", "5000 open None", "50 paid receipt-50"]


def test_a_worker_runs_what_can_be_run(tmp_path):
    said = run("worker.py", "memory://", folder=tmp_path)
    assert said == [
        "order 1: 500 charged at attempt 1",
        "order 2: 70 charged at attempt 2",
        "dead: Expected `int`, got `str` - at `$.amount`",
    ]


def test_tenants_do_not_meet(tmp_path):
    said = run("multi_tenant.py", folder=tmp_path)
    assert said == ["acme 3", "bolt 0", "the group 'acme' was released"]


def test_pedestrians_walk_while_the_cars_stand(tmp_path):
    said = run("traffic_light.py", folder=tmp_path)
    assert said == ["green asked", "yellow asked", "red walk", "red wait", "green wait"]


class Program:
    """A running example and what it says."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            arguments,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def hear(self, beginning: str) -> str:
        """The next line that begins like this; a program that never says it is killed."""
        assert self.process.stdout is not None
        timer = threading.Timer(PATIENCE_S, self.process.kill)
        timer.start()
        try:
            for line in self.process.stdout:
                if line.startswith(beginning):
                    return line.strip()
        finally:
            timer.cancel()
        pytest.fail(f"never said {beginning!r}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        timer = threading.Timer(PATIENCE_S, self.process.kill)
        timer.start()
        self.process.communicate()
        timer.cancel()
        return self.process.returncode


@pytest.mark.process
def test_leader_hands_over_when_stopped(tmp_path):
    url = "sqlite:///leader.db"
    first = Program(command("leader.py", url, "worker-1"), tmp_path)
    second = None
    try:
        assert first.hear("leading") == "leading with token 1"
        second = Program(command("leader.py", url, "worker-2"), tmp_path)
        first.hear("tick")
        assert first.end() == 0
        assert second.hear("leading") == "leading with token 2"
        second.hear("tick")
        assert second.end() == 0
    finally:
        for program in (first, second):
            if program is not None:
                program.end(signal.SIGKILL)


def test_examples_stay_small():
    sizes = {path.name: len(path.read_text().splitlines()) for path in EXAMPLES.glob("*.py")}
    assert sorted(sizes) == [
        "blocking_cron.py",
        "leader.py",
        "multi_tenant.py",
        "order_processing.py",
        "protect_write.py",
        "traffic_light.py",
        "worker.py",
    ]
    assert {name: size for name, size in sizes.items() if size > LINES_MAX} == {}
