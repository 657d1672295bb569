"""The one place that reads a clock.

``Clock`` is injected everywhere; nothing else in the package asks for the time. ``monotonic`` is
suspend-aware: on Linux it is the boot-time clock, because the plain monotonic clock stops while a
laptop sleeps, and a lease does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


class Clock(Protocol):
    """Wall time, elapsed time, and waiting."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC. It may jump; never measure a duration with it."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow, and keep growing while the machine is suspended."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let other tasks run for at least ``seconds``. Returns at once for zero or less."""
        ...


# Where the boot-time clock is missing (macOS), CLOCK_MONOTONIC is the nearest: on macOS it is
# mach_continuous_time and counts through sleep as well.
_CLOCK_ID: int = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        return datetime.now(UTC)

    def now_us(self) -> int:
        """The same in whole microseconds since 1970, for those who ask all the time."""
        return time.time_ns() // 1000

    if TYPE_CHECKING:

        def monotonic(self) -> float:
            """The boot-time clock, in seconds."""
            ...

    else:
        # It is asked ten times for one flow: without a frame of Python in between.
        monotonic = staticmethod(partial(time.clock_gettime, _CLOCK_ID))

    async def sleep(self, seconds: float) -> None:
        """Sleep on the running event loop."""
        await asyncio.sleep(max(0.0, seconds))


def instant(at_us: int) -> datetime:
    """What people and programs are shown of whole microseconds since 1970, the form of stores.

    Of an instant beyond all calendars, where those end.
    """
    try:
        return _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return _FIRST if at_us < 0 else _LAST


def instant_or_none(at_us: int | None) -> datetime | None:
    """As ``instant``; ``None`` of what has not happened."""
    return None if at_us is None else instant(at_us)


def microseconds(at: datetime) -> int:
    """What stores keep of ``at``: exact, because whether a job is due is decided by comparing two.

    A float of seconds is off by a microsecond now and then.
    """
    since = at - _EPOCH
    # Its three parts: to divide it by a microsecond takes three times as long.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def wall_us_of(clock: Clock) -> Callable[[], int]:
    """What asks ``clock`` for the wall time; of the machine's own, without a date in between."""
    if type(clock) is SystemClock:
        return clock.now_us
    return lambda: microseconds(clock.now())
