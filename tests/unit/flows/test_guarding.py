"""What flow code asks of the outside while it runs is refused there, and nothing is elsewhere."""

from __future__ import annotations

import builtins
import contextlib
import logging
import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outlive
from outlive import App
from outlive.flows.loop import FlowLoop
from outlive.flows.recording import Recording, replayed
from outlive.model.instance import InstanceStatus
from outlive.names import InstanceId
from tests.unit.flows.driving import Driven, flow_doing

LIBRARY = Path(logging.__file__).parent
NOBODY = ("127.0.0.1", 9)

# Found in a table, so that the scan of the code cannot see them.
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "open": (lambda: open(__file__), "use a file .*step"),  # noqa: PTH123, SIM115
    "Path.read_text": (lambda: Path(__file__).read_text(), "use a file .*step"),
    "os.open": (lambda: os.open(__file__, os.O_RDONLY), "use a file .*step"),
    "os.listdir": (lambda: os.listdir("/"), "use a file .*step"),  # noqa: PTH208
    "mkdtemp": (tempfile.mkdtemp, "use a file .*step"),
    "remove": (lambda: Path("/nowhere/at/all").unlink(), "use a file .*step"),
    "write": (lambda: (LIBRARY / "none" / "at" / "all").write_text("x"), "use a file .*step"),
    "socket": (socket.socket, "use the network .*step"),
    "create_connection": (lambda: socket.create_connection(NOBODY), "use the network .*step"),
    "getaddrinfo": (lambda: socket.getaddrinfo("localhost", 80), "use the network .*step"),
    "urlopen": (lambda: urllib.request.urlopen("http://127.0.0.1:9"), "use the network .*step"),
    "Popen": (lambda: subprocess.run(["true"], check=True), "start a process .*step"),
    "system": (lambda: os.system("true"), "start a process .*step"),
    "fork": (lambda: os.fork() or os._exit(0), "start a process .*step"),
    "posix_spawn": (lambda: os.posix_spawn("/bin/true", ["true"], {}), "start a process .*step"),
    "sqlite3": (lambda: sqlite3.connect(":memory:"), "open a database .*step"),
    "input": (builtins.input, "keyboard .*wait_signal"),
}
# Older versions of Python do not tell anybody of these; the scan finds them.
if sys.version_info >= (3, 12):
    REFUSED["Thread"] = (lambda: threading.Thread(target=int).start(), "start a thread .*step")
if sys.version_info >= (3, 13):
    REFUSED["sleep"] = (lambda: time.sleep(0), r"event loop .*asyncio\.sleep")


@pytest.mark.parametrize("asked", REFUSED)
def test_flow_code_is_refused_at_the_call(asked):
    act, says = REFUSED[asked]
    driven = Driven(flow_doing(act))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "outlive.errors.UsageError"
    assert re.search(says, driven.outcome["message"])


def test_the_code_goes_on_where_it_catches_the_refusal():
    acts = [REFUSED["open"][0]]

    async def flow() -> str:
        try:
            acts[0]()
        except outlive.UsageError as error:
            return str(error)
        return "opened"

    driven = Driven(App("a").flow(flow))
    assert driven.outcome.startswith(f"flow code cannot use a file (open {__file__!r})")


def test_who_knows_better_is_left_alone():
    assert Driven(flow_doing(REFUSED["open"][0], checked=False)).outcome == "done"


def test_who_answers_a_query_is_refused_as_well():
    acts = [REFUSED["open"][0]]

    async def flow() -> None:
        @outlive.on_query
        def look() -> None:
            acts[0]()

        await outlive.wait_signal("go")

    driven = Driven(App("a").flow(flow))
    with pytest.raises(outlive.UsageError, match="flow code cannot use a file"):
        driven.run.answering.query("look")


def test_nothing_is_refused_outside():
    Driven(flow_doing(lambda: None))
    assert Path(__file__).read_text()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()


def test_a_replay_refuses_the_same():
    driven = Driven(flow_doing(REFUSED["open"][0], checked=False))
    flow = flow_doing(REFUSED["open"][0])
    recording = Recording(
        id=InstanceId("f"),
        name=flow.name,
        status=InstanceStatus.COMPLETED,
        base=0,
        input="{}",
        began_at_us=driven.began_us,
        rows=tuple(driven.rows),
    )
    with pytest.raises(outlive.NonDeterminism), replayed(flow, recording):
        pass


# -- other hooks -----------------------------------------------------------------------------------

VETO = """
import asyncio, sys
import outlive

def veto(event, args):
    if event == "sys.addaudithook":
        raise {error}("no more of them")

sys.addaudithook(veto)
app = outlive.App("a")

@app.flow
async def flow() -> int:
    return 5

async def main():
    host = await outlive.connect("memory://veto", app=app)
    async with host.running():
        print(await (await host.flows.start(flow)).result(timeout=20))
    await host.close()

asyncio.run(main())
"""


@pytest.mark.parametrize("error", ["RuntimeError", "ValueError"])
def test_flows_run_where_no_hook_may_be_added(error):
    done = subprocess.run(
        [sys.executable, "-c", VETO.format(error=error)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("5\n", "")


def test_importing_adds_no_hook():
    text = (
        "import sys, outlive.flows.run, outlive.flows.guarding as guarding\n"
        "print(guarding._Guard.added)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


UNCHECKED = """
import asyncio, gc
import outlive
from outlive.flows import guarding

app = outlive.App("a")

@app.flow(checked=False)
async def alone() -> int:
    return 5

@app.flow
async def watched() -> int:
    return 5

async def main():
    host = await outlive.connect("memory://unchecked", app=app)
    before = list(gc.callbacks)
    async with host.running():
        for flow in (alone, watched):
            await (await host.flows.start(flow)).result(timeout=20)
            print(guarding._Guard.added, gc.callbacks != before)
    await host.close()

asyncio.run(main())
"""


def test_only_a_checked_flow_adds_the_hook():
    done = subprocess.run(
        [sys.executable, "-c", UNCHECKED], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("False False\nTrue True\n", "")


def test_flow_code_is_known_to_run_only_while_it_does():
    seen: list[int] = []

    def look() -> None:
        seen.append(len(FlowLoop.inside))
        raise ValueError("x")

    assert Driven(flow_doing(look)).status is InstanceStatus.FAILED
    assert seen == [1]
    assert not FlowLoop.inside


# -- steps -----------------------------------------------------------------------------------------


async def test_a_step_may_do_all_of_it(tmp_path):
    app = App("a")
    left_out = {"write", "fork", "input", "remove", "create_connection", "urlopen"}

    def do_all() -> list[str]:
        done = []
        for name, (act, _) in REFUSED.items():
            if name not in left_out:
                found = act()
                with contextlib.suppress(AttributeError):
                    found.close()
                if name == "os.open":
                    os.close(found)
                if name == "posix_spawn":
                    os.waitpid(found, 0)
                if name == "mkdtemp":
                    Path(found).rmdir()
                done.append(name)
        return done

    @app.step
    async def on_the_loop() -> list[str]:
        return do_all()

    @app.step
    def in_a_thread() -> list[str]:
        return do_all()

    @app.flow
    async def flow() -> list[list[str]]:
        return [await on_the_loop(), await in_a_thread()]

    host = await outlive.connect(f"sqlite:///{tmp_path / 'outlive.db'}", app=app)
    async with host.running():
        found = await (await host.flows.start(flow)).result(timeout=20)
    await host.close()
    assert found == [[name for name in REFUSED if name not in left_out]] * 2
