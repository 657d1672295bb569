"""Refuses real I/O, threads and processes while flow code runs, at the call that asks for them.

Owns the one audit hook of the process. It changes nothing of the standard library, and must never
refuse what runs outside of flow code, or what the interpreter and those who watch a program do by
themselves: imports, logs, warnings, tracebacks, debuggers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import sysconfig
from asyncio import _get_running_loop as get_running_loop  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from holdfast.errors import UsageError
from holdfast.flows.loop import FlowLoop
from holdfast.flows.sources import DATABASE, FILE, NETWORK, PAUSE, PERSON, PROCESS, THREAD, Deed

_EVENTS: dict[Deed, str] = {
    FILE: "open os.listdir os.scandir os.walk os.fwalk os.remove os.rename os.mkdir os.rmdir "
    "os.link os.symlink os.truncate os.chmod os.chown os.utime glob.glob shutil.copyfile "
    "shutil.copytree shutil.move shutil.rmtree tempfile.mkstemp tempfile.mkdtemp",
    NETWORK: "socket.__new__ socket.connect socket.bind socket.sendto socket.sendmsg "
    "socket.getaddrinfo socket.getnameinfo socket.gethostbyname socket.gethostbyaddr "
    "urllib.Request http.client.connect ftplib.connect smtplib.connect poplib.connect imaplib.open",
    DATABASE: "sqlite3.connect",
    PROCESS: "subprocess.Popen os.system os.exec os.fork os.forkpty os.posix_spawn os.spawn "
    "os.startfile os.startfile/2 pty.spawn webbrowser.open",
    THREAD: "_thread.start_new_thread _thread.start_joinable_thread",
    # Older versions of Python do not tell of it.
    PAUSE: "time.sleep",
    PERSON: "builtins.input",
}
_WATCHED = {event: deed for deed, events in _EVENTS.items() for event in events.split()}

# Packages that do for a program, wherever it is, what is no part of what it decides. A refusal
# there would make a log, a traceback or an import fail in a flow that did nothing wrong.
_INTERPRETER = (
    "importlib _frozen_importlib _frozen_importlib_external zipimport pkgutil linecache tokenize "
    "inspect traceback warnings weakref "
    # Tables that the standard library reads when they are first needed.
    "zoneinfo mimetypes gettext locale"
)
_WHO_WRITES_DOWN = "logging loguru structlog sentry_sdk opentelemetry ddtrace"
_WHO_LOOKS_ON = "pdb bdb coverage debugpy pydevd _pydevd_bundle _pydev_bundle _pydevd_frame_eval"
_BY_ITSELF = frozenset(f"{_INTERPRETER} {_WHO_WRITES_DOWN} {_WHO_LOOKS_ON}".split())

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class _Guard:
    """Whether the hook was added to this process."""

    added = False


def guard_flow_code() -> None:
    """Watch this process from now on. Repeatable; whoever vetoes audit hooks is not opposed."""
    if _Guard.added:
        return
    # First of all: a hook cannot be taken away, so that there must never be two.
    _Guard.added = True
    # Another hook may veto it, with whatever error it likes.
    with contextlib.suppress(Exception):
        sys.addaudithook(_hook(frozenset(_WATCHED), get_running_loop, FlowLoop, _refuse))


def _hook(
    watched: frozenset[str],
    running_loop: Callable[[], object],
    kind: type[FlowLoop],
    refuse: Callable[[FlowLoop, str, tuple[Any, ...]], None],
) -> Callable[[str, tuple[Any, ...]], None]:
    """What is called for every audited event of the process, most of which are none of ours.

    All that it needs is its own: it is still called when modules have been taken apart.
    """

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event in watched:
            loop = running_loop()
            if type(loop) is kind:
                refuse(loop, event, args)

    return hook


def _refuse(loop: FlowLoop, event: str, args: tuple[Any, ...]) -> None:
    """Raise where flow code asks for it.

    Raises:
        UsageError: It does.
    """
    if loop.owner is not None and not loop.owner.flow.checked:
        return
    # Two frames up is whoever asks.
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001 - who asks
    if _is_deployed(event, args) or _goes_by_itself(frame):
        return
    deed = _WATCHED[event]
    # The error is stored with the flow: a path may be told, a URL or a command may hold secrets.
    path = args[0] if deed is FILE and args else None
    asked = f"{event} {path!r}" if isinstance(path, (str, bytes)) else event
    raise UsageError(
        f"flow code cannot {deed.deed} ({asked}): it is run again from its history after a crash; "
        f"{deed.instead}"
    )


def _goes_by_itself(frame: FrameType | None) -> bool:
    """Whether somebody asks who only happens to be called while flow code runs."""
    handlers = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _BY_ITSELF or frame.f_code.co_name == "__del__":
            return True
        if package == "holdfast":
            # Whoever called flow code. What is below has nothing to do with it.
            return False
        if handlers is None:
            handlers = set(_signal_handlers())
        if frame.f_code in handlers:
            return True
        frame = frame.f_back
    return False


def _signal_handlers() -> Iterable[object]:
    """The code of all that a signal may call between any two instructions of flow code."""
    for number in signal.valid_signals():
        code = getattr(signal.getsignal(number), "__code__", None)
        if code is not None:
            yield code


def _is_deployed(event: str, args: tuple[Any, ...]) -> bool:
    """Whether a file is only read that came with Python or a library: part of the code, as it were.

    Time zones are of this kind: their table is read without any frame of its own.
    """
    if event != "open" or not isinstance(args[0], (str, bytes)) or args[2] & _WRITING:
        return False
    path = os.path.normpath(os.fsdecode(args[0]))
    zones: Any = getattr(sys.modules.get("zoneinfo"), "TZPATH", ())
    paths = sysconfig.get_paths()
    folders = (*zones, *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")))
    return any(path.startswith(f"{folder}{os.sep}") for folder in folders)
