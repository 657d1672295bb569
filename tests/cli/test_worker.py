"""``outlive worker`` and its kin: what they say of an app that cannot be had."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from outlive.cli.invocation import Invocation
from tests.cli.conftest import PATIENCE_S, log_of_one_command


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            'raise RuntimeError("my config is missing")\n',
            "RuntimeError: my config is missing ({module}.py, line 1)",
        ),
        (
            "import os\n\nos.environ['OUTLIVE_TEST_NEVER_SET']\n",
            "KeyError: 'OUTLIVE_TEST_NEVER_SET' ({module}.py, line 3)",
        ),
        ("x = 1\n\ny = z\n", "NameError: name 'z' is not defined ({module}.py, line 3)"),
        ("def f(:\n", "SyntaxError: invalid syntax ({module}.py, line 1)"),
        (
            "import nowhere_at_all\n",
            "ModuleNotFoundError: No module named 'nowhere_at_all' ({module}.py, line 1)",
        ),
    ],
)
@pytest.mark.parametrize("command", [("worker",), ("flow", "replay-check")])
def test_a_module_that_fails_at_its_import_is_told_with_the_line(
    shell, monkeypatch, source, said, command
):
    module = f"boom_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(shell.folder)
    done = shell(*command, f"{module}:app")
    assert (done.code, done.stdout) == (2, "")
    expected = f"module '{module}' cannot be imported: {said.format(module=module)}"
    assert done.stderr == f"outlive: {expected}\n"


def test_what_outlive_refuses_in_a_module_is_said_in_its_own_words(shell, monkeypatch):
    module = f"wrong_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text("import outlive\n\noutlive.App('')\n")
    monkeypatch.syspath_prepend(shell.folder)
    done = shell("worker", f"{module}:app")
    assert done.code == 2
    assert "cannot be imported" not in done.stderr
    assert "host" in done.stderr


def test_a_module_that_runs_a_host_while_it_is_imported_is_refused(shell, monkeypatch):
    module = f"runs_{shell.folder.name.replace('-', '_')}"
    source = """
import asyncio

import outlive

app = outlive.App("shop")


async def main() -> None:
    async with outlive.connect("memory://", app=app) as host:
        await host.run()


asyncio.run(main())
"""
    (shell.folder / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(shell.folder)
    done = shell("worker", f"{module}:app")
    assert done.code == 2
    assert f"module '{module}' connects while it is imported" in done.stderr
    assert 'if __name__ == "__main__"' in done.stderr


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("./good:app", "good:app"),
        ("good.py:app", "good:app"),
        ("shop/tasks.py:app", "shop.tasks:app"),
        ("../tasks.py:app", "tasks:app, in its folder"),
    ],
)
def test_a_file_in_place_of_a_module_is_answered_with_the_module(shell, written, meant):
    done = shell("worker", written)
    assert done.code == 2
    assert done.stderr.endswith(f"write it as {meant}\n")


def test_a_worker_whose_store_is_down_at_its_start_ends_for_a_supervisor(shell, monkeypatch):
    module = f"idle_{shell.folder.name.replace('-', '_')}"
    (shell.folder / f"{module}.py").write_text("import outlive\n\napp = outlive.App('idle')\n")
    monkeypatch.syspath_prepend(shell.folder)
    done = shell("worker", f"{module}:app", OUTLIVE_URL="postgresql://nobody@127.0.0.1:1/none")
    assert (done.code, done.stdout) == (69, "")
    said, _, rest = done.stderr.removeprefix("outlive: ").partition(" ")
    # Who reads the log of a supervisor sees when, as in all that a worker says once it serves.
    assert (datetime.fromisoformat(said).utcoffset(), rest.count("\n")) == (timedelta(0), 1)


def test_a_line_of_a_worker_has_the_time_at_which_it_was_logged(capsys):
    record = logging.makeLogRecord({"msg": "a\nb", "levelno": 30, "created": 1_800_000_000.25})
    for timed in (False, True):
        with log_of_one_command():
            Invocation(timed=timed).listener.listen()
            logging.getLogger("outlive").handle(record)
    at = "2027-01-15T08:00:00.250+00:00"
    assert capsys.readouterr().err == (
        f"outlive: a\noutlive: b\noutlive: {at} a\noutlive: {at} b\n"
    )


FAILING = """
import outlive

app = outlive.App("failing")


def send(to):
    raise ValueError("no such mailbox: " + 20_000 * "x")


@app.handler("mails", retry=outlive.Retry(max_attempts=2, first=0))
async def mail(to):
    send(to)
"""


def test_the_traceback_of_a_job_is_told_once_and_shown_on_demand(outlive):
    (outlive.folder / "failing.py").write_text(FAILING)
    assert outlive("work", "enqueue", "mails", "1", "--id", "m1", "--create").code == 0
    worker = outlive.start("worker", "failing:app")
    while "dead" not in outlive("work", "show", "m1").stdout:
        assert worker.poll() is None
    worker.terminate()
    said = worker.communicate(timeout=PATIENCE_S)[1]
    assert said.count("Traceback (most recent call last)") == 1
    assert "failing.py" in said
    # Neither frames that no user can change, nor texts without an end.
    assert "running.py" not in said
    assert len(said) < 40_000
    shown = outlive("work", "show", "m1", "--traceback").stdout
    assert "Traceback" not in outlive("work", "show", "m1").stdout
    assert "in send" in shown
    assert "running.py" not in shown


REFUSED = """
import outlive

app = outlive.App("refused")


@app.step(retry=outlive.Retry(max_attempts=1))
async def pack():
    return object()


@app.flow
async def parcel(order: str):
    await pack()
"""


def test_what_outlive_refuses_in_a_flow_is_logged_without_its_own_frames(outlive):
    (outlive.folder / "refused.py").write_text(REFUSED)
    outlive("migrate")
    outlive("flow", "start", "parcel", '{"order": "o-1"}', "--id", "p1")
    outlive("flow", "start", "parcel", '{"ordr": "o-2"}', "--id", "p2")
    worker = outlive.start("worker", "refused:app")
    for flow in ("p1", "p2"):
        while "failed" not in outlive("flow", "show", flow).stdout:
            assert worker.poll() is None
    worker.terminate()
    said = worker.communicate(timeout=PATIENCE_S)[1]
    assert "the result of step pack cannot be stored as JSON" in said
    assert "the argument order is missing" in said
    # That of the flow, which names the line that awaits the step.
    assert said.count("Traceback (most recent call last)") == 1
    assert "in parcel" in said
    for module in ("payloads.py", "arguments.py"):
        assert module not in said


EXITING = """
import outlive

app = outlive.App("exiting")
once = outlive.Retry(max_attempts=1)


@app.handler("mails", retry=once)
async def mail(to):
    raise KeyboardInterrupt


@app.step(retry=once)
async def charge():
    raise KeyboardInterrupt


@app.flow
async def checkout():
    await charge()


@app.flow
async def leave():
    raise SystemExit(3)


@app.handler("letters")
async def letter(to):
    return "sent"
"""


def test_a_worker_goes_on_when_code_of_its_app_exits(outlive):
    (outlive.folder / "exiting.py").write_text(EXITING)
    outlive("migrate")
    outlive("work", "enqueue", "mails", "1", "--id", "m1")
    outlive("flow", "start", "checkout", "--id", "c1")
    outlive("flow", "start", "leave", "--id", "l1")
    worker = outlive.start("worker", "exiting:app")
    while "dead" not in outlive("work", "show", "m1").stdout:
        assert worker.poll() is None
    for flow in ("c1", "l1"):
        while "failed" not in outlive("flow", "show", flow).stdout:
            assert worker.poll() is None
    outlive("work", "enqueue", "letters", "1", "--id", "after")
    while "sent" not in outlive("work", "show", "after").stdout:
        assert worker.poll() is None
    worker.terminate()
    said = worker.communicate(timeout=PATIENCE_S)[1]
    assert worker.returncode == 0
    assert "job m1 of queue 'mails' is dead after attempt 1: KeyboardInterrupt()" in said
    assert "step charge#0 of flow c1 failed permanently at attempt 1" in said
    assert "flow code raised SystemExit" in said
    assert "stuck" not in said
