"""When delayed events fall due: the event loop's time, or a clock that a test moves.

Owns time for machines in memory. Nothing else in the charts asks for it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Protocol

from outlive.clock import Clock, SystemClock
from outlive.errors import UsageError

# Not zero, so that code which takes zero for "no time" is found out. 2030-01-01 in UTC.
_START_S = 1_893_456_000


class Cancellable(Protocol):
    """Something that will happen unless it is cancelled."""

    def cancel(self) -> None:
        """Let it not happen. Safe to repeat, and too late is no error."""
        ...


class Timers(Protocol):
    """Wall time, and callbacks after a while."""

    def now(self) -> float:
        """Seconds since the epoch: what due times are kept in across restarts."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` after ``delay_s``, never inside this call."""
        ...


class LoopTimers:
    """Real time, on the running event loop."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()

    def now(self) -> float:
        """The wall clock."""
        return self._clock.now().timestamp()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Ask the running loop.

        Raises:
            UsageError: No event loop is running in this thread.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise UsageError(
                "a chart with delays needs a running event loop, or a SimulatedClock"
            ) from error
        return loop.call_later(max(0.0, delay_s), callback)


class _Call:
    __slots__ = ("callback", "cancelled", "due_us")

    def __init__(self, due_us: int, callback: Callable[[], None]) -> None:
        self.due_us = due_us
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimulatedClock:
    """Time that stands still until it is moved; needs no event loop.

    What falls due is called in order of its time, then of its making, each at its own instant, so
    that a chain of timers fires just as it would in real time.
    """

    def __init__(self, start_s: float = _START_S) -> None:
        self._now_us = round(start_s * 1_000_000)
        self._calls: list[tuple[int, int, _Call]] = []
        self._numbers = itertools.count()

    def now(self) -> float:
        """The start, and all that was advanced since."""
        return self._now_us / 1_000_000

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        """Call ``callback`` when the clock was advanced by ``delay_s``."""
        call = _Call(self._now_us + max(0, round(delay_s * 1_000_000)), callback)
        heapq.heappush(self._calls, (call.due_us, next(self._numbers), call))
        return call

    def advance(self, seconds: float) -> None:
        """Move the time forward and call what falls due on the way.

        Raises:
            ValueError: ``seconds`` is negative.
        """
        if seconds < 0:
            raise ValueError(
                f"time only moves forward: seconds must not be negative, not {seconds!r}"
            )
        end_us = self._now_us + round(seconds * 1_000_000)
        while self._calls and self._calls[0][0] <= end_us:
            due_us, _, call = heapq.heappop(self._calls)
            self._now_us = max(self._now_us, due_us)
            if not call.cancelled:
                call.callback()
        self._now_us = end_us

    @property
    def next_due_s(self) -> float | None:
        """How far to advance until something falls due; ``None`` if nothing is waiting."""
        while self._calls and self._calls[0][2].cancelled:
            heapq.heappop(self._calls)
        return (self._calls[0][0] - self._now_us) / 1_000_000 if self._calls else None

    @property
    def waiting(self) -> int:
        """How many calls are still to come."""
        return sum(1 for *_, call in self._calls if not call.cancelled)
