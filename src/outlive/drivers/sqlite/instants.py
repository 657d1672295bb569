"""Instants as rows keep them: UTC in whole microseconds.

Pure. Exact, because whether a job is due is decided by comparing two of them; a float of seconds
is off by a microsecond now and then.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from outlive.clock import Clock, SystemClock

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST = datetime.min.replace(tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


def instant(at_us: int) -> datetime:
    """What people and programs are shown; of one beyond all calendars, where those end."""
    try:
        return _EPOCH + timedelta(microseconds=at_us)
    except OverflowError:
        return _FIRST if at_us < 0 else _LAST


def instant_or_none(at_us: int | None) -> datetime | None:
    """The same for what may not have happened."""
    return None if at_us is None else instant(at_us)


def microseconds(at: datetime) -> int:
    """What rows keep of ``at``."""
    since = at - _EPOCH
    # Its three parts: to divide it by a microsecond takes three times as long.
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def wall_us_of(clock: Clock) -> Callable[[], int]:
    """What asks ``clock`` for the wall time; of the machine's own, without a date in between."""
    if type(clock) is SystemClock:
        return clock.now_us
    return lambda: microseconds(clock.now())
