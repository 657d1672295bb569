"""Signals: how a command that waits is told to stop, and who hears it instead.

A command is cancelled by SIGINT, SIGTERM and SIGHUP, so that it gives back its place in a queue
before it ends. While ``lease run`` has a child, the signals are the child's.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.cli.errors import Stopped

T = TypeVar("T")

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Where the stopping signals of this process go: to the task, or to ``forward``."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.forward: Callable[[int], None] | None = None
        self.received: int | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to hear. A signal that was ignored from the start (nohup) stays ignored."""
        for number in _STOPPING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._hear, number)

    def _hear(self, number: int) -> None:
        if self.forward is not None:
            self.forward(number)
            return
        self.received = number
        self._task.cancel()


def run(work: Callable[[Signals], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on an event loop until it ends or a signal stops it.

    Raises:
        Stopped: A signal came, and ``work`` has cleaned up after itself.
    """
    return asyncio.run(_main(work))


async def _main(work: Callable[[Signals], Coroutine[Any, Any, T]]) -> T:
    task = asyncio.current_task()
    if task is None:
        raise AssertionError("asyncio.run always makes a task")
    signals = Signals(task)
    signals.listen(asyncio.get_running_loop())
    try:
        return await work(signals)
    except asyncio.CancelledError:
        if signals.received is None:
            raise
        raise Stopped(signals.received) from None
