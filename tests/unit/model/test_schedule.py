"""Which ticks are fired when some were missed, and when the clock was wrong."""

from __future__ import annotations

from datetime import UTC

import pytest

from outlive.errors import InvalidName
from outlive.model.schedule import (
    LATE_MAX_US,
    MISSED_MAX,
    CatchUp,
    ScheduleRecord,
    Step,
    check_schedule,
    steps_due,
)
from outlive.model.timetable import Cron, Every

HOUR_US = 3_600_000_000
HOURLY = Every(HOUR_US)


def record(next_us: int, last_us: int | None = None) -> ScheduleRecord:
    return ScheduleRecord(
        name="s",
        definition="{}",
        version=1,
        paused=False,
        next_at_us=next_us,
        last_at_us=last_us,
        fired=0,
        created_at_us=0,
        changed_at_us=0,
    )


def steps(next_hour: int, now_us: int, catch_up: CatchUp, limit: int = 100) -> list[Step]:
    schedule = record(next_hour * HOUR_US)
    return steps_due(HOURLY, schedule, now_us, catch_up=catch_up, limit=limit)


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_tick_in_time_is_fired_whatever_the_policy(catch_up):
    assert steps(5, 5 * HOUR_US + 20_000, catch_up) == [Step(5 * HOUR_US, 0, 6 * HOUR_US)]


@pytest.mark.parametrize("catch_up", list(CatchUp))
def test_a_tick_that_lies_ahead_is_left_alone(catch_up):
    assert steps(5, 5 * HOUR_US - 1, catch_up) == []


def test_skip_fires_the_newest_missed_tick_and_counts_the_others():
    assert steps(5, 9 * HOUR_US + 1, CatchUp.SKIP) == [Step(9 * HOUR_US, 4, 10 * HOUR_US)]


def test_all_fires_every_missed_tick_oldest_first():
    assert steps(5, 7 * HOUR_US, CatchUp.ALL) == [
        Step(5 * HOUR_US, 0, 6 * HOUR_US),
        Step(6 * HOUR_US, 0, 7 * HOUR_US),
        Step(7 * HOUR_US, 0, 8 * HOUR_US),
    ]


def test_all_leaves_out_the_oldest_beyond_its_limit():
    found = steps(5, 104 * HOUR_US, CatchUp.ALL, limit=3)
    assert [step.tick_us for step in found] == [n * HOUR_US for n in (102, 103, 104)]
    assert [step.missed for step in found] == [97, 0, 0]
    assert found[-1].next_us == 105 * HOUR_US


def test_none_waits_for_the_next_tick_once_one_was_missed():
    assert steps(5, 6 * HOUR_US - 1, CatchUp.NONE) == [Step(None, 0, 6 * HOUR_US)]


def test_none_fires_a_tick_that_is_only_late():
    assert steps(5, 5 * HOUR_US + LATE_MAX_US, CatchUp.NONE) == [Step(5 * HOUR_US, 0, 6 * HOUR_US)]
    assert steps(5, 5 * HOUR_US + LATE_MAX_US + 1, CatchUp.NONE)[0].tick_us is None


def test_missed_ticks_of_a_year_are_counted_no_further_than_anybody_reads():
    (step,) = steps(5, 24 * 366 * HOUR_US, CatchUp.SKIP)
    assert step.missed == MISSED_MAX


def test_a_clock_set_back_a_little_fires_nothing_again():
    ahead = record(7 * HOUR_US, last_us=6 * HOUR_US)
    assert steps_due(HOURLY, ahead, 6 * HOUR_US - 5_000_000, catch_up=CatchUp.SKIP) == []


def test_a_clock_that_was_far_ahead_does_not_stop_the_schedule():
    wrong = record(9001 * HOUR_US, last_us=9000 * HOUR_US)
    found = steps_due(HOURLY, wrong, 6 * HOUR_US, catch_up=CatchUp.ALL)
    assert found == [Step(None, 0, 7 * HOUR_US)]


def test_a_tick_that_new_rules_of_a_zone_removed_is_fired_all_the_same():
    nine = Cron("0 9 * * *", UTC)
    moved = record(8 * HOUR_US)
    for catch_up in (CatchUp.SKIP, CatchUp.ALL):
        found = steps_due(nine, moved, 8 * HOUR_US + 1, catch_up=catch_up)
        assert found == [Step(8 * HOUR_US, 0, 9 * HOUR_US)]


def test_a_name_leaves_room_for_what_is_made_of_it():
    assert check_schedule("a" * 256) == "a" * 256
    for name in ("a" * 257, "ü" * 129, "", "a\nb"):
        with pytest.raises(InvalidName):
            check_schedule(name)
