"""A clock that stands still until it is moved.

Owns virtual time for tests. It never moves by itself, so that a test says what happens when.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import threading
from datetime import UTC, datetime, timedelta

# Any fixed instant serves; a round one is easy to recognise in a failing assertion.
_START = datetime(2030, 1, 1, tzinfo=UTC)
# Not zero, so that code which mistakes zero for "no deadline" is found out.
_START_US = 1_000_000_000

_Sleeper = tuple[int, int, asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class ManualClock:
    """A ``Clock`` whose time moves only by ``advance``.

    Reading it is safe from any thread. Sleepers may be on different event loops; each is woken on
    its own. Time is kept in whole microseconds, so that many small steps add up exactly.
    """

    def __init__(self, start: datetime = _START) -> None:
        self._lock = threading.Lock()
        self._start = start
        self._elapsed_us = 0
        self._wall_us = 0
        self._sleepers: list[_Sleeper] = []
        self._numbers = itertools.count()

    def now(self) -> datetime:
        """The wall clock: the start, and all that was advanced and jumped since."""
        return self._start + timedelta(microseconds=self._elapsed_us + self._wall_us)

    def monotonic(self) -> float:
        """Seconds that only ``advance`` moves; ``jump_wall`` does not touch them."""
        return (_START_US + self._elapsed_us) / 1e6

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by ``seconds``.

        Waits for ever if nobody advances it. Cancelling it forgets the sleeper.
        """
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        with self._lock:
            due_us = self._elapsed_us + max(1, round(seconds * 1e6))
            heapq.heappush(self._sleepers, (due_us, next(self._numbers), loop, woken))
        await woken

    def advance(self, seconds: float) -> None:
        """Move both clocks forward and wake the sleepers whose time has come, earliest first.

        They run when their event loop turns next, and see the time after the whole step.

        Raises:
            ValueError: ``seconds`` is negative; only the wall clock can go back (``jump_wall``).
        """
        if seconds < 0:
            raise ValueError(f"time only moves forward; {seconds!r} is negative")
        with self._lock:
            self._elapsed_us += round(seconds * 1e6)
            due: list[_Sleeper] = []
            while self._sleepers and self._sleepers[0][0] <= self._elapsed_us:
                due.append(heapq.heappop(self._sleepers))
        for _, _, loop, woken in due:
            # A loop that was closed meanwhile has no sleeper left to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_wake, woken)

    def jump_wall(self, seconds: float) -> None:
        """Step the wall clock alone, either way, as an operator or a time server does."""
        with self._lock:
            self._wall_us += round(seconds * 1e6)

    @property
    def sleeping(self) -> int:
        """How many sleepers wait, so that a test can advance when the code under test is ready."""
        with self._lock:
            return sum(1 for *_, woken in self._sleepers if not woken.done())


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
