"""The machine's own clock, asked in two ways."""

from __future__ import annotations

from datetime import UTC, datetime

from outlive.clock import SystemClock, microseconds, wall_us_of
from outlive.testing import ManualClock


class Moved(SystemClock):
    """A clock that somebody has set."""

    def now(self) -> datetime:
        return datetime(2031, 5, 6, tzinfo=UTC)


def test_microseconds_and_dates_tell_the_same_time() -> None:
    clock = SystemClock()
    before = microseconds(clock.now())
    asked = [clock.now_us(), wall_us_of(clock)()]
    assert before <= asked[0] <= asked[1] <= microseconds(clock.now())


def test_a_clock_that_is_not_the_machines_own_is_asked_itself() -> None:
    for clock in (ManualClock(), Moved()):
        assert wall_us_of(clock)() == microseconds(clock.now())
