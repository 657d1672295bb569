"""Signals: how a command that waits is told to stop, and who hears it instead.

A command is cancelled by SIGINT, SIGTERM and SIGHUP, so that it gives back its place in a queue
before it ends. While ``lease run`` has a child, the signals are the child's. Must never wait
without end for a task that does not let itself be cancelled.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from outlive.cli import leaving
from outlive.cli.errors import SIGNALLED, Stopped
from outlive.cli.invocation import current

T = TypeVar("T")

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Tasks that are left over when a command has ended, and were cancelled, get this long to clean up:
# half of the time after which containers are killed, so that the process ends by itself.
_PATIENCE_S = 5.0


class Signals:
    """Where the stopping signals of this process go: to the task, or to ``forward``."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.forward: Callable[[int], None] | None = None
        self.received: int | None = None

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to hear. A signal that was ignored from the start (nohup) stays ignored."""
        for number in _heard():
            loop.add_signal_handler(number, self._hear, number)

    def _hear(self, number: int) -> None:
        if self.forward is not None:
            self.forward(number)
            return
        self.received = number
        self._task.cancel()


def run(work: Callable[[Signals], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on an event loop until it ends or a signal stops it.

    Handlers of an app that go on though they were cancelled are left behind, and end with the
    process. A signal that comes while the last tasks are awaited ends it at once.

    Raises:
        Stopped: A signal came, and ``work`` has cleaned up after itself.
    """
    # Not asyncio.run, and no ``with``: both wait for every task, however long it takes.
    runner = asyncio.Runner()
    try:
        return runner.run(_main(work))
    finally:
        left = runner.run(_end_tasks())
        if left:
            # They are kept, and with them the loop: Python says a word of each that it forgets.
            current().left_behind += left
        else:
            runner.close()


def _heard() -> Iterator[signal.Signals]:
    return (each for each in _STOPPING if signal.getsignal(each) is not signal.SIG_IGN)


async def _end_tasks() -> list[asyncio.Task[Any]]:
    """Cancel all other tasks, and return those that have not ended in time."""
    loop = asyncio.get_running_loop()
    for number in _heard():
        loop.add_signal_handler(number, leaving.leave, SIGNALLED + number)
    until = loop.time() + _PATIENCE_S
    # What cleans up may start new ones.
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        if loop.time() >= until:
            return [*others]
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=until - loop.time())
    return []


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
