"""Streams that are missing or full, and a worker that is told to stop while handlers run on."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, PATIENCE_S, Outcome

pytestmark = pytest.mark.usefixtures("made_store")

SLOW_APP = """
import pathlib, time, outlive
app = outlive.App("slow")

@app.handler("slow")
def slow(payload: int) -> None:
    pathlib.Path("began").touch()
    time.sleep(600)
"""


PATIENT_APP = """
import asyncio
import pathlib
import outlive

app = outlive.App("patient")

@app.handler("patient")
async def patient(n: int) -> None:
    pathlib.Path("began").touch()
    try:
        await asyncio.sleep(600)
    except asyncio.CancelledError:
        pathlib.Path("cancelled").touch()
        raise
"""

STUBBORN_APP = """
import asyncio, pathlib, outlive
app = outlive.App("stubborn")

@app.handler("stubborn")
async def stubborn(payload: int) -> None:
    pathlib.Path("began").touch()
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pathlib.Path("told").touch()
"""


def wait_for(path: Path) -> None:
    until = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def redirected(outlive, command: str, how: str) -> Outcome:
    """The outcome of a command line of a shell."""
    done = subprocess.run(
        ["sh", "-c", f"{shlex.join(COMMAND)} {command} {how}"],
        cwd=outlive.folder,
        env=outlive.environ(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("how", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_as_nothing(outlive, how):
    assert outlive("work", "enqueue", "q", "1").code == 0
    done = redirected(outlive, "work ls -o json", how)
    assert (done.code, done.stderr) == (0, "")
    # What is read from nowhere is no JSON; nothing else went wrong.
    done = redirected(outlive, "work enqueue q -", how)
    assert done.code == 2
    assert "bug" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_stream_has_an_exit_code_of_its_own(outlive):
    assert outlive("work", "enqueue", "q", "1").code == 0
    for command in ("work ls -o json", "work ls", "--version", "--help"):
        done = redirected(outlive, command, ">/dev/full")
        assert done.code == 73, command
        assert done.stderr == "outlive: the output could not be written: No space left on device\n"
    # Talk that nobody hears is no error.
    assert redirected(outlive, "work pause q", "2>/dev/full").code == 0
    assert redirected(outlive, "work show nope", "2>/dev/full").code == 66
    for wrong in ("work bogus", "work", "work ls --bogus"):
        assert redirected(outlive, wrong, "2>/dev/full").code == 2, wrong


def test_a_worker_ends_when_its_grace_is_over_though_a_thread_runs_on(outlive):
    Path(outlive.folder, "slowapp.py").write_text(SLOW_APP)
    job = json.loads(outlive("work", "enqueue", "slow", "1", "-o", "json").stdout)["id"]
    process = outlive.start("worker", "slowapp:app", "--grace", "0.2")
    wait_for(Path(outlive.folder, "began"))
    process.send_signal(signal.SIGTERM)
    done = outlive.finish(process)
    assert done.code == 0, done.stderr
    assert "1 thread of synchronous handlers or steps did not end" in done.stderr
    (row,) = outlive("work", "ls", "-o", "json").document["jobs"]
    assert (row["id"], row["state"], row["attempts"], row["losses"]) == (job, "ready", 0, 0)


def test_a_worker_ends_though_a_handler_does_not_let_itself_be_cancelled(outlive):
    Path(outlive.folder, "stubborn.py").write_text(STUBBORN_APP)
    job = json.loads(outlive("work", "enqueue", "stubborn", "1", "-o", "json").stdout)["id"]
    process = outlive.start("worker", "stubborn:app", "--grace", "0.2")
    wait_for(Path(outlive.folder, "began"))
    process.send_signal(signal.SIGTERM)
    done = outlive.finish(process)
    assert done.code == 0, done.stderr
    assert "1 task ignored cancellation" in done.stderr
    assert "Traceback" not in done.stderr
    (row,) = outlive("work", "ls", "-o", "json").document["jobs"]
    assert (row["id"], row["state"], row["attempts"], row["losses"]) == (job, "ready", 0, 0)


# Two of one kind that come at once are one.
@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGTERM)]
)
def test_a_second_signal_ends_the_grace_of_a_worker(outlive, numbers):
    Path(outlive.folder, "patient.py").write_text(PATIENT_APP)
    job = json.loads(outlive("work", "enqueue", "patient", "1", "-o", "json").stdout)["id"]
    process = outlive.start("worker", "patient:app", "--grace", "600")
    wait_for(Path(outlive.folder, "began"))
    for number in numbers:
        process.send_signal(number)
    done = outlive.finish(process)
    assert done.code == 0, done.stderr
    assert Path(outlive.folder, "cancelled").exists()
    (row,) = outlive("work", "ls", "-o", "json").document["jobs"]
    assert (row["id"], row["state"], row["attempts"], row["losses"]) == (job, "ready", 0, 0)


def test_a_further_signal_ends_a_worker_that_waits_for_its_last_tasks(outlive):
    Path(outlive.folder, "stubborn.py").write_text(
        "import outlive.cli.signals\noutlive.cli.signals._PATIENCE_S = 600\n" + STUBBORN_APP
    )
    assert outlive("work", "enqueue", "stubborn", "1").code == 0
    process = outlive.start("worker", "stubborn:app", "--grace", "0.2")
    wait_for(Path(outlive.folder, "began"))
    told = Path(outlive.folder, "told")
    process.send_signal(signal.SIGTERM)
    wait_for(told)
    # Told once more when the host has gone, and only the handler is left.
    told.unlink()
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        if told.exists():
            process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    assert outlive.finish(process).code == 128 + signal.SIGTERM
