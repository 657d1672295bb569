"""Schedules: what a store keeps of them, and which ticks to fire when some were missed.

Pure. Instants are UTC in microseconds, by the store's wall clock. What a schedule does
(``definition``) is JSON text that no store looks into.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import msgspec

from outlive.errors import InvalidName
from outlive.model.job import Entry, NewJob
from outlive.model.timetable import Timetable
from outlive.names import check_key

# The name stands in the queue, in the id of every job and in log lines, each with a prefix or an
# instant beside it, and those are at most 512 bytes.
NAME_BYTES_MAX = 256

# A definition holds the payload of a job, which has the same limit, and a few words beside it.
DEFINITION_BYTES_MAX = 2 * 1024 * 1024

# One look at what is due; a fleet with more due at once looks again at once.
DUE_MAX = 1000

# One page of a list.
LIST_MAX = 1000

# How many missed ticks a schedule fires, unless it says otherwise, and the most that it may say:
# they are fired one after the other, each with a commit of its own.
CATCH_UP_LIMIT = 100
CATCH_UP_LIMIT_MAX = 10_000

# A tick this late is not missed: a host was restarted, or the store was away for a moment.
LATE_MAX_US = 60_000_000

# A clock that is set right by a time server moves by less than this. Beyond it, a tick that was
# fired ahead of the present is the mark of a clock that had been wrong.
CLOCK_TOLERANCE_US = 600_000_000

# How many missed ticks are counted; above this the number tells nobody more.
MISSED_MAX = 1000


class CatchUp(StrEnum):
    """What becomes of ticks that nobody fired in time, because no host ran.

    ``skip`` fires the newest of them, ``all`` every one (the newest ``limit``), oldest first;
    ``none`` fires none, and waits for the next tick.
    """

    SKIP = "skip"
    ALL = "all"
    NONE = "none"


def check_schedule(name: str) -> str:
    """Return ``name`` if it may name a schedule: as a key, and at most ``NAME_BYTES_MAX`` long.

    Raises:
        InvalidName: See ``check_key``.
    """
    size = len(check_key(name).encode())
    if size > NAME_BYTES_MAX:
        raise InvalidName(
            f"the name of schedule {name[:40]!r}… is {size} bytes long; at most {NAME_BYTES_MAX} "
            "are allowed"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A schedule to be kept: its first tick is ``next_at_us``."""

    name: str
    definition: str
    next_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRecord:
    """What the store knows of one schedule.

    Attributes:
        version: Grows with every change; a firing carries the one it has seen.
        next_at_us: The tick that comes next.
        last_at_us: The tick that was fired last, if any was.
        fired: How many ticks were fired.
    """

    name: str
    definition: str
    version: int
    paused: bool
    next_at_us: int
    last_at_us: int | None
    fired: int
    created_at_us: int
    changed_at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The schedules to look at now, the time it is, and how long until the next one is due."""

    now_us: int
    schedules: tuple[ScheduleRecord, ...]
    next_due_s: float | None


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a schedule: from the version that was seen to its next tick.

    ``tick_us`` is the tick that is fired; without one the schedule only moves on.
    """

    name: str
    version: int
    tick_us: int | None
    next_at_us: int
    job: NewJob | None


class Fired(msgspec.Struct, frozen=True):
    """What became of a firing: the new version, or ``None`` if somebody else was first."""

    version: int | None
    entry: Entry | None = None


class Step(msgspec.Struct, frozen=True):
    """A tick to fire (or none), how many were left out before it, and the tick after it."""

    tick_us: int | None
    missed: int
    next_us: int


def steps_due(
    timetable: Timetable,
    schedule: ScheduleRecord,
    now_us: int,
    *,
    catch_up: CatchUp,
    limit: int = CATCH_UP_LIMIT,
) -> list[Step]:
    """What to do at ``now_us`` about a schedule, in order; empty if its next tick is ahead.

    A clock that was far ahead and is right again has left a next tick in the far future: the
    schedule then begins anew from the present.
    """
    coming_us = timetable.after(now_us)
    if schedule.next_at_us > now_us:
        return [Step(None, 0, coming_us)] if clock_went_back(schedule, now_us) else []
    # Where new rules of a time zone have taken the tick from the timetable, it counts all the same.
    newest_us = max(timetable.newest(now_us), schedule.next_at_us)
    if catch_up is CatchUp.ALL:
        missed = _back_to(timetable, newest_us, schedule.next_at_us, limit)
        row = [*missed, coming_us]
        left_out = _left_out(timetable, schedule.next_at_us, row[0])
        return [
            Step(tick, 0 if number else left_out, following)
            for number, (tick, following) in enumerate(pairwise(row))
        ]
    if catch_up is CatchUp.NONE and now_us - newest_us > LATE_MAX_US:
        return [Step(None, 0, coming_us)]
    left_out = _left_out(timetable, schedule.next_at_us, newest_us)
    return [Step(newest_us, left_out, coming_us)]


def clock_went_back(schedule: ScheduleRecord, now_us: int) -> bool:
    """Whether the schedule was fired under a clock that was far ahead of the present one."""
    last_us = schedule.last_at_us
    return last_us is not None and last_us - now_us > CLOCK_TOLERANCE_US


def _back_to(timetable: Timetable, newest_us: int, first_us: int, limit: int) -> list[int]:
    """The ticks from ``first_us`` to ``newest_us``, the newest ``limit`` of them, oldest first."""
    found = [newest_us]
    while len(found) < limit and found[-1] > first_us:
        earlier_us = timetable.newest(found[-1] - 1)
        if earlier_us < first_us:
            break
        found.append(earlier_us)
    return found[::-1]


def _left_out(timetable: Timetable, first_us: int, fired_us: int) -> int:
    """How many ticks from ``first_us`` on come before ``fired_us``, counted to ``MISSED_MAX``."""
    count, tick_us = 0, first_us
    while tick_us < fired_us and count < MISSED_MAX:
        count += 1
        tick_us = timetable.after(tick_us)
    return count
