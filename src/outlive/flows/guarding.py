"""Refuses real I/O, threads and processes while flow code runs, at the call that asks for them.

Owns the one audit hook of the process. It changes nothing of the standard library, and must never
refuse what runs outside of flow code, or what bystanders do. It is called for all that Python tells
any hook of, in every thread: whatever it does first is paid for by the whole process.
"""

from __future__ import annotations

import contextlib
import sys
from asyncio import _get_running_loop as get_running_loop  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable
from typing import Any

from outlive.errors import UsageError
from outlive.flows.bystanders import (
    deployed_folders,
    goes_by_itself,
    is_deployed,
    watch_collections,
)
from outlive.flows.loop import FlowLoop
from outlive.flows.sources import DATABASE, FILE, NETWORK, PAUSE, PERSON, PROCESS, THREAD, Deed

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


class _Guard:
    """Whether the hook was added to this process."""

    added = False


def guard_flow_code() -> None:
    """Watch this process from now on. Repeatable; whoever vetoes audit hooks is not opposed.

    It cannot be undone, and is felt: ask for it only where a flow is to be checked.
    """
    if _Guard.added:
        return
    # First of all: a hook cannot be taken away, so that there must never be two.
    _Guard.added = True
    deployed_folders()
    # Another hook may veto it, with whatever error it likes.
    with contextlib.suppress(Exception):
        sys.addaudithook(
            _hook(FlowLoop.inside, frozenset(_WATCHED), get_running_loop, FlowLoop, _refuse)
        )
        watch_collections()


def _hook(
    inside: set[FlowLoop],
    watched: frozenset[str],
    running_loop: Callable[[], object],
    kind: type[FlowLoop],
    refuse: Callable[[FlowLoop, str, tuple[Any, ...]], None],
) -> Callable[[str, tuple[Any, ...]], None]:
    """What is called for every audited event of the process, most of which are none of ours.

    All that it needs is its own: it is still called when modules have been taken apart. Whether
    flow code runs anywhere is asked first: the name of the event is a new string each time, whose
    hash costs more.
    """

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if inside and event in watched:
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
    if is_deployed(event, args) or goes_by_itself(frame):
        return
    deed = _WATCHED[event]
    # The error is stored with the flow: a path may be told, a URL or a command may hold secrets.
    path = args[0] if deed is FILE and args else None
    asked = f"{event} {path!r}" if isinstance(path, (str, bytes)) else event
    raise UsageError(
        f"flow code cannot {deed.deed} ({asked}): it is run again from its history after a crash; "
        f"{deed.instead}"
    )
