"""Timetables: when cron expressions and intervals tick, over every change of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from outlive.errors import UsageError
from outlive.model.timetable import Cron, Every

MINUTE_US = 60_000_000


def at_us(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp()) * 1_000_000


def shown(tick_us: int, zone: str) -> str:
    return datetime.fromtimestamp(tick_us / 1e6, ZoneInfo(zone)).isoformat(timespec="minutes")


def ticks(expression: str, zone: str, since_us: int, count: int) -> list[str]:
    cron, found, tick_us = Cron(expression, ZoneInfo(zone)), [], since_us
    for _ in range(count):
        tick_us = cron.after(tick_us)
        found.append(shown(tick_us, zone))
    return found


def test_a_daily_time_in_the_skipped_hour_ticks_right_after_it():
    assert ticks("30 2 * * *", "Europe/Berlin", at_us(2026, 3, 28, 12), 2) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]
    assert ticks("30 2 * * *", "America/New_York", at_us(2026, 3, 7, 12), 2) == [
        "2026-03-08T03:00-04:00",
        "2026-03-09T02:30-04:00",
    ]


def test_several_times_in_one_gap_are_one_tick():
    assert ticks("0,20,40 2,3 * * *", "Europe/Berlin", at_us(2026, 3, 28, 12), 4) == [
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:20+02:00",
        "2026-03-29T03:40+02:00",
        "2026-03-30T02:00+02:00",
    ]


def test_a_daily_time_in_the_doubled_hour_ticks_in_its_first_pass_only():
    assert ticks("30 2 * * *", "Europe/Berlin", at_us(2026, 10, 24, 12), 2) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]
    assert ticks("30 1 * * *", "America/New_York", at_us(2026, 10, 31, 12), 2) == [
        "2026-11-01T01:30-04:00",
        "2026-11-02T01:30-05:00",
    ]


def test_nobody_who_asks_in_the_second_pass_is_sent_back_to_the_first():
    cron = Cron("45 2 * * *", ZoneInfo("Europe/Berlin"))
    second_pass_us = at_us(2026, 10, 25, 1, 30)
    assert shown(cron.after(second_pass_us), "Europe/Berlin") == "2026-10-26T02:45+01:00"
    assert shown(cron.newest(second_pass_us), "Europe/Berlin") == "2026-10-25T02:45+02:00"


def test_an_expression_with_a_star_follows_the_clock_through_the_doubled_hour():
    assert ticks("*/30 * * * *", "Europe/Berlin", at_us(2026, 10, 24, 23, 59), 5) == [
        "2026-10-25T02:00+02:00",
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:00+01:00",
    ]


def test_an_expression_with_a_star_does_not_tick_in_a_gap():
    assert ticks("*/30 2 * * *", "Europe/Berlin", at_us(2026, 3, 28, 12), 2) == [
        "2026-03-30T02:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_half_an_hour_is_skipped_and_doubled_on_lord_howe():
    zone = "Australia/Lord_Howe"
    assert ticks("15 2 * * *", zone, at_us(2026, 10, 3), 2) == [
        "2026-10-04T02:30+11:00",
        "2026-10-05T02:15+11:00",
    ]
    assert ticks("45 1 * * *", zone, at_us(2026, 4, 4), 2) == [
        "2026-04-05T01:45+11:00",
        "2026-04-06T01:45+10:30",
    ]
    assert ticks("*/15 1 * * *", zone, at_us(2026, 4, 4), 7) == [
        "2026-04-05T01:00+11:00",
        "2026-04-05T01:15+11:00",
        "2026-04-05T01:30+11:00",
        "2026-04-05T01:45+11:00",
        "2026-04-05T01:30+10:30",
        "2026-04-05T01:45+10:30",
        "2026-04-06T01:00+10:30",
    ]


CHANGES = [
    ("Europe/Berlin", (2026, 3, 29)),
    ("Europe/Berlin", (2026, 10, 25)),
    ("America/New_York", (2026, 3, 8)),
    ("America/New_York", (2026, 11, 1)),
    ("Australia/Lord_Howe", (2026, 4, 4)),
    ("Australia/Lord_Howe", (2026, 10, 3)),
    ("Pacific/Apia", (2011, 12, 30)),
    ("Antarctica/Troll", (2026, 10, 25)),
]


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize("expression", ["*/20 * * * *", "10 */3 * * *", "*/15 1,2 * * *"])
def test_what_follows_the_clock_ticks_whenever_the_clock_reads_so(zone, day, expression):
    # The other way to know: look at the clock of the zone at each minute.
    noon = datetime(*day, 12, tzinfo=UTC)
    minutes = [noon + timedelta(minutes=n) for n in range(-36 * 60, 36 * 60)]
    minute_field, hour_field = expression.split()[:2]
    in_minutes, in_hours = _numbers(minute_field, 60), _numbers(hour_field, 24)
    wanted = [
        int(minute.timestamp()) * 1_000_000
        for minute in minutes
        if (local := minute.astimezone(ZoneInfo(zone))).minute in in_minutes
        and local.hour in in_hours
    ]
    assert len(wanted) > 5
    cron = Cron(expression, ZoneInfo(zone))
    found = [cron.after(wanted[0] - 1)]
    while len(found) < len(wanted):
        found.append(cron.after(found[-1]))
    assert found == wanted
    for earlier, later in pairwise(wanted):
        assert cron.newest(later - 1) == earlier
        assert cron.newest(later) == later


def _numbers(field: str, size: int) -> set[int]:
    if field.startswith("*"):
        return set(range(0, size, int(field.partition("/")[2] or 1)))
    return {int(part) for part in field.split(",")}


@pytest.mark.parametrize(("zone", "day"), CHANGES)
@pytest.mark.parametrize("expression", ["30 2 * * *", "15,45 1,2,3 * * *", "0 0 * * *"])
def test_ticks_of_named_times_never_stand_still_or_go_back(zone, day, expression):
    cron = Cron(expression, ZoneInfo(zone))
    start_us = at_us(*day) - 36 * 60 * MINUTE_US
    row = [cron.after(start_us)]
    while row[-1] < start_us + 72 * 60 * MINUTE_US:
        row.append(cron.after(row[-1]))
    assert row == sorted(set(row))
    for moment_us in range(start_us, start_us + 72 * 60 * MINUTE_US, 7 * MINUTE_US):
        coming_us = cron.after(moment_us)
        assert coming_us in row
        assert cron.newest(moment_us) < coming_us
        assert cron.after(cron.newest(moment_us)) == coming_us


def test_seconds_may_stand_before_the_five_fields():
    assert ticks("*/20 * * * * *", "UTC", at_us(2026, 1, 1), 1) == ["2026-01-01T00:00+00:00"]
    cron = Cron("*/20 * * * * *", UTC)
    assert cron.after(at_us(2026, 1, 1)) == at_us(2026, 1, 1, 0, 0, 20)


def test_well_known_names_are_spelled_out():
    assert ticks("@daily", "Europe/Berlin", at_us(2026, 1, 1, 12), 1) == ["2026-01-02T00:00+01:00"]


def test_a_leap_day_is_waited_for():
    assert ticks("0 0 29 2 *", "UTC", at_us(2026, 1, 1), 1) == ["2028-02-29T00:00+00:00"]


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "61 * * * *", "* * * * * * *", "0 0 30 2 *", "a b c d e", "x" * 300],
)
def test_what_is_no_expression_or_never_ticks_is_refused(expression):
    with pytest.raises(UsageError):
        Cron(expression, UTC)


def test_intervals_are_counted_from_the_epoch():
    every = Every(300_000_000)
    assert every.after(at_us(2026, 1, 1, 0, 1)) == at_us(2026, 1, 1, 0, 5)
    assert every.after(at_us(2026, 1, 1, 0, 5)) == at_us(2026, 1, 1, 0, 10)
    assert every.newest(at_us(2026, 1, 1, 0, 5)) == at_us(2026, 1, 1, 0, 5)
    assert every.newest(at_us(2026, 1, 1, 0, 5) - 1) == at_us(2026, 1, 1)


@pytest.mark.parametrize("interval_us", [0, -1, 99_999, 10**19])
def test_an_interval_that_is_no_schedule_is_refused(interval_us):
    with pytest.raises(UsageError):
        Every(interval_us)
