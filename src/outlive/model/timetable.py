"""When a schedule ticks: cron expressions in a time zone, and fixed intervals. Pure.

Instants are UTC in microseconds. Expressions are matched against wall-clock times without a zone,
and what becomes of a wall-clock time that does not exist, or exists twice, is decided here:

- An expression that names its minute and hour (``30 2 * * *``) means "once that day". In a gap it
  ticks at the first instant after the gap, and of two instants with the same name at the first.
  Several times that fall into one gap are one tick.
- An expression whose minute or hour begins with ``*`` means "whenever the clock reads so": it does
  not tick in a gap, and ticks in both passes of a repeated hour.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

from cronsim import CronSim, CronSimError

from outlive.clock import instant, microseconds
from outlive.errors import UsageError

# A line of a crontab; whoever needs more writes two schedules.
EXPRESSION_LENGTH_MAX = 200

# Each tick is a durable write in the whole fleet: below this it is a loop and not a schedule.
INTERVAL_MIN_US = 100_000

# A century fits every backend's integers with room to spare.
INTERVAL_MAX_US = 100 * 365 * 86_400 * 1_000_000

_SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_SECOND = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)

# No zone has ever turned its clock by more than a day at once.
_TURN_MAX = timedelta(hours=25)

# Expressions without a match are found out by the first search; the calendar repeats itself.
_PROBE = datetime(2000, 1, 1, tzinfo=UTC)


class Timetable(Protocol):
    """An endless row of ticks that every host computes alike."""

    def after(self, at_us: int) -> int:
        """The first tick later than ``at_us``."""
        ...

    def newest(self, at_us: int) -> int:
        """The last tick at or before ``at_us``."""
        ...


class Every:
    """A tick each ``interval_us``, counted from the epoch, so that all hosts agree."""

    def __init__(self, interval_us: int) -> None:
        if not INTERVAL_MIN_US <= interval_us <= INTERVAL_MAX_US:
            raise UsageError(
                f"an interval must be between {INTERVAL_MIN_US / 1e6:g} s and a century, "
                f"not {interval_us / 1e6:g} s"
            )
        self._interval_us = interval_us

    def after(self, at_us: int) -> int:
        """The first tick later than ``at_us``."""
        return (at_us // self._interval_us + 1) * self._interval_us

    def newest(self, at_us: int) -> int:
        """The last tick at or before ``at_us``."""
        return at_us // self._interval_us * self._interval_us


class Cron:
    """A cron expression of five fields (or six, seconds first) read in a time zone.

    Raises:
        UsageError: The expression is wrong, or never matches.
    """

    def __init__(self, expression: str, zone: tzinfo) -> None:
        self._expression = check_expression(expression)
        self._zone = zone
        minute, hour = self._expression.split()[-5:-3]
        self._named = not (minute.startswith("*") or hour.startswith("*"))
        self.after(microseconds(_PROBE))

    def after(self, at_us: int) -> int:
        """The first tick later than ``at_us``."""
        at = instant(at_us)
        offset = self._offset(at)
        turn = None if self._named else self._turn_back(at, at + _TURN_MAX)
        if turn is not None:
            first = self._match(_naive(at) + offset) - offset
            if first < _naive(turn):
                return microseconds(first.replace(tzinfo=UTC))
            # The wall clock reads again what it read before: from its first moment on.
            at, offset = turn - _INSTANT, self._offset(turn)
        for wall in self._walls(_naive(at) + offset):
            for tick in self._instants(wall):
                if tick > at:
                    return microseconds(tick)
        raise _never(self._expression)

    def newest(self, at_us: int) -> int:
        """The last tick at or before ``at_us``."""
        at = instant(at_us)
        start = _naive(at) + self._offset(at)
        turn = self._turn_back(at - _TURN_MAX, at)
        if turn is not None:
            before = _naive(turn) + self._offset(turn - _SECOND)
            if self._named:
                # Times that the clock will read a second time have ticked in the first pass.
                start = max(start, before)
            else:
                offset = self._offset(turn)
                second = self._match(start + _INSTANT, back=True) - offset
                if second >= _naive(turn):
                    return microseconds(second.replace(tzinfo=UTC))
                start, at = before - _INSTANT, turn - _INSTANT
        for wall in self._walls(start + _INSTANT, back=True):
            for tick in reversed(self._instants(wall)):
                if tick <= at:
                    return microseconds(tick)
        raise _never(self._expression)

    def _walls(self, start: datetime, *, back: bool = False) -> Iterator[datetime]:
        return CronSim(self._expression, start, reverse=back)

    def _match(self, start: datetime, *, back: bool = False) -> datetime:
        for wall in self._walls(start, back=back):
            return wall
        raise _never(self._expression)

    def _instants(self, wall: datetime) -> list[datetime]:
        """The ticks that the wall-clock time ``wall`` means: none, one or two."""
        first = wall.replace(tzinfo=self._zone, fold=0).astimezone(UTC)
        second = wall.replace(tzinfo=self._zone, fold=1).astimezone(UTC)
        if first == second:
            return [first]
        if first < second:
            return [first] if self._named else [first, second]
        return [self._change(second, first)] if self._named else []

    def _offset(self, at: datetime) -> timedelta:
        offset = at.astimezone(self._zone).utcoffset()
        assert offset is not None
        return offset

    def _turn_back(self, since: datetime, until: datetime) -> datetime | None:
        """When the clock is turned back in that time, if it is."""
        if self._offset(since) <= self._offset(until):
            return None
        return self._change(since, until)

    def _change(self, low: datetime, high: datetime) -> datetime:
        """The instant of the one change of the clock after ``low`` and not after ``high``."""
        low, high = low.replace(microsecond=0), high.replace(microsecond=0)
        before = self._offset(low)
        while high - low > _SECOND:
            middle = low + (high - low) // _SECOND // 2 * _SECOND
            if self._offset(middle) == before:
                low = middle
            else:
                high = middle
        return high


def check_expression(expression: str) -> str:
    """Return ``expression`` as five or six fields, names such as ``@daily`` spelled out.

    Raises:
        UsageError: It is no cron expression; says which field is wrong.
    """
    if not isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"a cron expression must be a str, not {type(expression).__name__}")
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise UsageError(f"a cron expression may have at most {EXPRESSION_LENGTH_MAX} characters")
    fields = _SHORT.get(expression.strip().lower(), expression)
    try:
        CronSim(fields, _naive(_PROBE))
    except CronSimError as error:
        raise UsageError(
            f"{expression!r} is not a valid cron expression: {str(error).lower()}; write five "
            "fields (minute hour day month weekday), or six with the seconds first"
        ) from None
    return " ".join(fields.split())


def _never(expression: str) -> UsageError:
    return UsageError(f"the cron expression {expression!r} never matches any date")


def _naive(at: datetime) -> datetime:
    return at.replace(tzinfo=None)
