"""What flow code asks of the outside while it runs is refused there; what runs by itself is not."""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import linecache
import logging
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import warnings
import weakref
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import App
from holdfast.flows.recording import Recording, replayed
from holdfast.model.instance import InstanceStatus
from holdfast.names import InstanceId
from tests.unit.flows.driving import Driven

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


def flow_doing(act: Callable[[], Any], **options: Any) -> Any:
    acts = [act]

    async def flow() -> str:
        found = acts[0]()
        if hasattr(found, "close"):
            found.close()
        return "done"

    return App("a").flow(**options)(flow)


@pytest.mark.parametrize("asked", REFUSED)
def test_flow_code_is_refused_at_the_call(asked):
    act, says = REFUSED[asked]
    driven = Driven(flow_doing(act))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "holdfast.errors.UsageError"
    assert re.search(says, driven.outcome["message"])


def test_the_code_goes_on_where_it_catches_the_refusal():
    acts = [REFUSED["open"][0]]

    async def flow() -> str:
        try:
            acts[0]()
        except holdfast.UsageError as error:
            return str(error)
        return "opened"

    driven = Driven(App("a").flow(flow))
    assert driven.outcome.startswith(f"flow code cannot use a file (open {__file__!r})")


def test_who_knows_better_is_left_alone():
    assert Driven(flow_doing(REFUSED["open"][0], checked=False)).outcome == "done"


def test_who_answers_a_query_is_refused_as_well():
    acts = [REFUSED["open"][0]]

    async def flow() -> None:
        @holdfast.on_query
        def look() -> None:
            acts[0]()

        await holdfast.wait_signal("go")

    driven = Driven(App("a").flow(flow))
    with pytest.raises(holdfast.UsageError, match="flow code cannot use a file"):
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
    with pytest.raises(holdfast.NonDeterminism), replayed(flow, recording):
        pass


# -- what goes by itself ---------------------------------------------------------------------------


def an_import(folder: Path) -> Callable[[], Any]:
    name = f"imported_by_a_flow_{os.getpid()}"
    (folder / f"{name}.py").write_text("with open(__file__) as file: TEXT = file.read()\n")
    return lambda: importlib.import_module(name)


def a_log(folder: Path) -> Callable[[], Any]:
    log = logging.getLogger("tests.guarding")
    handler = logging.FileHandler(folder / "log", delay=True)
    log.addHandler(handler)

    def act() -> None:
        log.error("written")
        log.removeHandler(handler)
        handler.close()
        assert (handler.stream, handler.baseFilename) == (None, str(folder / "log"))

    return act


def a_warning(folder: Path) -> Callable[[], Any]:
    linecache.clearcache()

    def act() -> None:
        shown: list[str] = []
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda *said: shown.append(warnings.formatwarning(*said[:4]))
            warnings.warn("it is late", stacklevel=1)
        # With the line of the code, which is read from its file.
        assert "stacklevel=1" in shown[0]

    return act


def a_traceback(folder: Path) -> Callable[[], Any]:
    linecache.clearcache()

    def act() -> None:
        try:
            raise ValueError("x")
        except ValueError:
            assert "raise ValueError" in traceback.format_exc()

    return act


def a_time_zone(folder: Path) -> Callable[[], Any]:
    return lambda: zoneinfo.ZoneInfo.no_cache("Europe/Berlin")


def a_file_of_a_library(folder: Path) -> Callable[[], Any]:
    return lambda: Path(logging.__file__).read_text()


def the_end_of_an_object(folder: Path) -> Callable[[], Any]:
    class Leaving:
        def __del__(self) -> None:
            (folder / "left").write_text("x")

    held = [Leaving()]

    def act() -> None:
        held.clear()
        gc.collect()
        # The folder is not looked at here: that would be the flow's own doing.

    return act


def a_finalizer(folder: Path) -> Callable[[], Any]:
    class Leaving: ...

    held = [Leaving()]
    weakref.finalize(held[0], lambda: (folder / "left").write_text("x"))
    return held.clear


def a_signal(folder: Path) -> Callable[[], Any]:
    def handle(number: int, frame: object) -> None:
        (folder / "left").write_text("x")

    signal.signal(signal.SIGUSR2, handle)
    return lambda: signal.raise_signal(signal.SIGUSR2)


BY_ITSELF = {
    "import": an_import,
    "log": a_log,
    "warning": a_warning,
    "traceback": a_traceback,
    "time zone": a_time_zone,
    "library": a_file_of_a_library,
    "object": the_end_of_an_object,
    "finalizer": a_finalizer,
    "signal": a_signal,
}


@pytest.mark.parametrize("kind", BY_ITSELF)
def test_what_goes_by_itself_goes_through(kind, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    before = signal.getsignal(signal.SIGUSR2)
    try:
        driven = Driven(flow_doing(BY_ITSELF[kind](tmp_path)))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert driven.outcome == "done"
    if kind in ("object", "finalizer", "signal"):
        assert (tmp_path / "left").read_text() == "x"
    if kind == "log":
        assert (tmp_path / "log").read_text() == "written\n"


# -- other hooks -----------------------------------------------------------------------------------

VETO = """
import asyncio, sys
import holdfast

def veto(event, args):
    if event == "sys.addaudithook":
        raise {error}("no more of them")

sys.addaudithook(veto)
app = holdfast.App("a")

@app.flow
async def flow() -> int:
    return 5

async def main():
    hf = await holdfast.connect("memory://veto", app=app)
    async with hf.running():
        print(await (await hf.flows.start(flow)).result(timeout=20))
    await hf.close()

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
        "import sys, holdfast.flows.run, holdfast.flows.guarding as guarding\n"
        "print(guarding._Guard.added)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


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

    hf = await holdfast.connect(f"sqlite:///{tmp_path / 'holdfast.db'}", app=app)
    async with hf.running():
        found = await (await hf.flows.start(flow)).result(timeout=20)
    await hf.close()
    assert found == [[name for name in REFUSED if name not in left_out]] * 2
