"""The bell: who in this process wants to hear of which queue, and of which cancelled job.

A ring is a hint. Whoever waits here also wakes by a timer, so a lost ring costs latency only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from outlive.errors import OutliveError
from outlive.ports.wakeups import MISSED, Wakeup, Wakeups

_QUEUE = "work/"
_CANCEL = "cancel/"


class Bell:
    """Connects wake-ups of the store with those who wait for jobs or run them."""

    def __init__(self, wakeups: Wakeups, log: logging.Logger) -> None:
        self._wakeups = wakeups
        self._log = log
        self._queues: dict[str, list[Callable[[str], None]]] = {}
        self._unsubscribe: Callable[[], None] | None = None
        # Called with the id of a job that somebody wants cancelled.
        self.cancelled: Callable[[str], None] | None = None

    @property
    def deaf(self) -> bool:
        """Whether hints are known not to arrive."""
        return self._wakeups.deaf

    def listen(self, queues: Iterable[str], listener: Callable[[str], None]) -> Callable[[], None]:
        """Call ``listener`` with the name of each of ``queues`` that is rung.

        Call it before the claim that leaves a note, so that no ring is missed. What is returned
        ends it.
        """
        if self._unsubscribe is None:
            self._unsubscribe = self._wakeups.subscribe(self._on_wakeup)
        wanted = tuple(queues)
        for queue in wanted:
            self._queues.setdefault(queue, []).append(listener)

        def end() -> None:
            for queue in wanted:
                listeners = self._queues.get(queue)
                if listeners is not None and listener in listeners:
                    listeners.remove(listener)
                    if not listeners:
                        del self._queues[queue]

        return end

    async def ring(self, queue: str) -> None:
        """Let all hosts that listen look at ``queue``. A hint: what goes wrong is forgotten."""
        try:
            await self._wakeups.ring(Wakeup(f"{_QUEUE}{queue}"))
        except OutliveError as error:
            self._log.debug("could not send a notification for queue %r: %s", queue, error)

    def close(self) -> None:
        """Stop listening. Repeatable."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def _on_wakeup(self, wakeup: Wakeup) -> None:
        topic = wakeup.topic
        if topic.startswith(_QUEUE):
            queue = topic[len(_QUEUE) :]
            for listener in list(self._queues.get(queue, ())):
                listener(queue)
        elif topic.startswith(_CANCEL) and self.cancelled is not None:
            self.cancelled(topic[len(_CANCEL) :])
        elif topic == MISSED.topic:
            for queue, listeners in list(self._queues.items()):
                for listener in list(listeners):
                    listener(queue)


class Alarm:
    """One sleeper: until it is rung or a time has passed. A ring before the sleep counts."""

    __slots__ = ("_future", "_rung")

    def __init__(self) -> None:
        self._rung = False
        self._future: asyncio.Future[None] | None = None

    def ring(self, _: str = "") -> None:
        """Wake the sleeper, now or as soon as it would sleep."""
        self._rung = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def reset(self) -> None:
        """Forget rings until now."""
        self._rung = False

    async def sleep(self, seconds: float | None) -> bool:
        """Sleep until rung, for ``seconds`` at most; whether it was rung."""
        if self._rung or (seconds is not None and seconds <= 0):
            return self._rung
        loop = asyncio.get_running_loop()
        self._future = future = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _end, future)
        try:
            await future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()
        return self._rung


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
