"""How a program of these tests speaks: one JSON object a line, each with its time.

Owns the reference clock of the process tests: the boot-time clock, checked against
``/proc/uptime`` at every reading, because a preloaded library may lie about every other clock.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

import outlive

_UPTIME = Path("/proc/uptime")
# /proc/uptime counts in hundredths of a second.
_COARSE_S = 0.02
_speaking = threading.Lock()


def now() -> float:
    """The true time, the same in every process of this machine."""
    before = _uptime()
    boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    if not before - _COARSE_S <= boot <= _uptime() + _COARSE_S:
        raise AssertionError("the boot-time clock of this process is not the machine's")
    return boot


def _uptime() -> float:
    return float(_UPTIME.read_text(encoding="ascii").split()[0])


def say(event: str, **fields: Any) -> None:
    """Tell the test what happened, now unless ``at`` says when."""
    line = json.dumps({"event": event, "at": fields.pop("at", None) or now(), **fields})
    with _speaking:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def say_error(event: str, error: BaseException, **fields: Any) -> None:
    """Tell which error was met, and whether it is one that a caller was promised."""
    say(
        event,
        error=type(error).__name__,
        typed=isinstance(error, outlive.OutliveError),
        reason=getattr(error, "reason", None),
        text=str(error),
        **fields,
    )


class _Speaker(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say("log", logger=record.name, level=record.levelname, text=record.getMessage())


def speak_the_log() -> None:
    """Tell every line that the library logs as well."""
    logger = logging.getLogger("outlive")
    logger.setLevel(logging.INFO)
    logger.addHandler(_Speaker())


class Ears:
    """What the test says, line by line, without blocking the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        # A daemon: reading a line cannot be interrupted, and must not keep the program alive.
        threading.Thread(target=self._read, name="ears", daemon=True).start()

    async def next(self) -> dict[str, Any] | None:
        """The next command, or ``None`` when the test has closed its end."""
        return await self._lines.get()

    def _read(self) -> None:
        try:
            for line in sys.stdin:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, json.loads(line))
            self._loop.call_soon_threadsafe(self._lines.put_nowait, None)
        except RuntimeError:
            # The loop has closed: nobody listens any more.
            return


async def serve(desk: object, ears: Ears) -> None:
    """Let ``desk`` do what the test says, each thing beside the others, until it says no more."""
    doing: set[asyncio.Task[None]] = set()

    async def do(told: dict[str, Any]) -> None:
        asked = now()
        try:
            answer = await getattr(desk, told["do"])(told)
        except Exception as error:
            say_error("did", error, do=told["do"], asked=asked)
        else:
            say("did", do=told["do"], asked=asked, **answer)

    while (told := await ears.next()) is not None:
        task = asyncio.ensure_future(do(told))
        doing.add(task)
        task.add_done_callback(doing.discard)
