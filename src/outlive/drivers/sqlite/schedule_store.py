"""Schedules in SQLite, beside the jobs that they make.

Owns the rows of schedules. Everything passes through the one writer: a firing and its job are one
transaction, and what is due is read where it is about to be fired. Ticks follow the machine's wall
clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.sqlite.job_store import SqliteJobStore
from outlive.drivers.sqlite.transaction import Turn
from outlive.drivers.sqlite.writer import Writer
from outlive.model.schedule import (
    CLOCK_TOLERANCE_US,
    DUE_MAX,
    LIST_MAX,
    Due,
    Fired,
    Firing,
    NewSchedule,
    ScheduleRecord,
)

_SELECT = """
SELECT
    name, definition, version, paused, next_at_us, last_at_us, fired, created_at_us,
    changed_at_us
FROM outlive_schedule
"""
_GET = _SELECT + "WHERE namespace = :namespace AND name = :name"
_LIST = (
    _SELECT
    + """
WHERE namespace = :namespace AND (:after IS NULL OR name > :after)
ORDER BY name LIMIT :limit
"""
)

# Two halves, so that each is answered by the index that it has.
_DUE = """
SELECT
    name, definition, version, paused, next_at_us, last_at_us, fired, created_at_us,
    changed_at_us
FROM outlive_schedule
WHERE number IN (
    SELECT number FROM outlive_schedule
    WHERE namespace = :namespace AND paused = 0 AND next_at_us <= :now
    UNION
    SELECT number FROM outlive_schedule
    WHERE namespace = :namespace AND paused = 0 AND last_at_us > :ahead
)
ORDER BY next_at_us, name LIMIT :limit
"""
_SOONEST = """
SELECT min(next_at_us) FROM outlive_schedule
WHERE namespace = :namespace AND paused = 0 AND next_at_us > :now
"""

_NEW_VERSION = "SELECT last + 1 FROM outlive_schedule_counter"
_COUNT = "UPDATE outlive_schedule_counter SET last = last + 1"

# The same definition again must not move the ticks that were missed meanwhile.
_PUT = """
INSERT INTO outlive_schedule
    (namespace, name, version, next_at_us, created_at_us, changed_at_us, definition)
VALUES (:namespace, :name, :new, :next, :now, :now, :definition)
ON CONFLICT (namespace, name) DO UPDATE
SET version = excluded.version, next_at_us = excluded.next_at_us,
    changed_at_us = excluded.changed_at_us, definition = excluded.definition
WHERE definition <> excluded.definition
"""
_DELETE = "DELETE FROM outlive_schedule WHERE namespace = :namespace AND name = :name"
_PAUSE = """
UPDATE outlive_schedule SET paused = 1, version = :new, changed_at_us = :now
WHERE namespace = :namespace AND name = :name AND paused = 0
"""
_RESUME = """
UPDATE outlive_schedule
SET paused = 0, version = :new, changed_at_us = :now, next_at_us = :next
WHERE namespace = :namespace AND name = :name AND paused = 1
"""
# Conditional on the version: of all who saw the tick due, one moves the schedule on. Without a
# tick, one that was fired beyond the next is forgotten: the clock was wrong when it was.
_FIRE = """
UPDATE outlive_schedule
SET version = :new, next_at_us = :next, fired = fired + (:tick IS NOT NULL),
    last_at_us = coalesce(:tick, CASE WHEN last_at_us < :next THEN last_at_us END)
WHERE namespace = :namespace AND name = :name AND version = :version AND paused = 0
RETURNING version
"""


class SqliteScheduleStore:
    """The ``ScheduleStore`` of one namespace in one file."""

    def __init__(self, writer: Writer, jobs: SqliteJobStore, *, namespace: str) -> None:
        self._submit = writer.submit
        self._enqueue = jobs.enqueue_in_turn
        self._namespace = namespace

    async def put(self, schedule: NewSchedule) -> ScheduleRecord:
        """Keep a schedule; see the port."""
        return await self._submit(self._put, schedule)

    async def get(self, name: str) -> ScheduleRecord | None:
        """What is known of one; see the port."""
        return await self._submit(self._get, name)

    async def list(self, *, after: str | None, limit: int) -> Sequence[ScheduleRecord]:
        """A page by name; see the port."""
        return await self._submit(self._list, (after, limit))

    async def delete(self, name: str) -> bool:
        """Remove one; see the port."""
        return await self._submit(self._delete, name)

    async def pause(self, name: str) -> ScheduleRecord | None:
        """Let it not fire; see the port."""
        return await self._submit(self._pause, name)

    async def resume(self, name: str, *, next_at_us: int) -> ScheduleRecord | None:
        """Let it fire again; see the port."""
        return await self._submit(self._resume, (name, next_at_us))

    async def due(self, *, limit: int) -> Due:
        """What is due now; see the port."""
        return await self._submit(self._due, limit)

    async def fire(self, firing: Firing) -> Fired:
        """Move one on and enqueue its job; see the port."""
        return await self._submit(self._fire, firing)

    def _put(self, turn: Turn, schedule: NewSchedule) -> ScheduleRecord | None:
        values = self._values(
            turn,
            name=schedule.name,
            next=schedule.next_at_us,
            definition=schedule.definition,
        )
        return self._change(turn, _PUT, values)

    def _pause(self, turn: Turn, name: str) -> ScheduleRecord | None:
        return self._change(turn, _PAUSE, self._values(turn, name=name))

    def _resume(self, turn: Turn, argument: tuple[str, int]) -> ScheduleRecord | None:
        name, next_us = argument
        return self._change(turn, _RESUME, self._values(turn, name=name, next=next_us))

    def _change(self, turn: Turn, statement: str, values: dict[str, Any]) -> ScheduleRecord | None:
        turn.savepoint()
        values["new"] = _new_version(turn)
        if turn.cursor.execute(statement, values).rowcount > 0:
            turn.cursor.execute(_COUNT)
        return self._get(turn, values["name"])

    def _get(self, turn: Turn, name: str) -> ScheduleRecord | None:
        row = turn.cursor.execute(_GET, self._values(turn, name=name)).fetchone()
        return None if row is None else _record(row)

    def _list(self, turn: Turn, argument: tuple[str | None, int]) -> list[ScheduleRecord]:
        after, limit = argument
        values = self._values(turn, after=after, limit=max(0, min(limit, LIST_MAX)))
        return [_record(row) for row in turn.cursor.execute(_LIST, values)]

    def _delete(self, turn: Turn, name: str) -> bool:
        return turn.cursor.execute(_DELETE, self._values(turn, name=name)).rowcount > 0

    def _due(self, turn: Turn, limit: int) -> Due:
        limit = max(0, min(limit, DUE_MAX))
        # One more than asked for tells whether something due was left out.
        values = self._values(turn, ahead=turn.wall_us + CLOCK_TOLERANCE_US, limit=limit + 1)
        found = [_record(row) for row in turn.cursor.execute(_DUE, values)]
        next_due_s = 0.0
        if len(found) <= limit:
            (soonest,) = turn.cursor.execute(_SOONEST, values).fetchone()
            next_due_s = None if soonest is None else (soonest - turn.wall_us) / 1e6
        return Due(now_us=turn.wall_us, schedules=tuple(found[:limit]), next_due_s=next_due_s)

    def _fire(self, turn: Turn, firing: Firing) -> Fired:
        turn.savepoint()
        values = self._values(
            turn,
            name=firing.name,
            version=firing.version,
            new=_new_version(turn),
            tick=firing.tick_us,
            next=firing.next_at_us,
        )
        row = turn.cursor.execute(_FIRE, values).fetchone()
        if row is None:
            return Fired(None)
        turn.cursor.execute(_COUNT)
        if firing.job is None:
            return Fired(row[0])
        (enqueued,) = self._enqueue(turn, [firing.job])
        return Fired(row[0], enqueued.entry)

    def _values(self, turn: Turn, **more: Any) -> dict[str, Any]:
        return {"namespace": self._namespace, "now": turn.wall_us, **more}


def _new_version(turn: Turn) -> int:
    """The version of what changes next; counted only if something does."""
    return turn.cursor.execute(_NEW_VERSION).fetchone()[0]


def _record(row: tuple[Any, ...]) -> ScheduleRecord:
    name, definition, version, paused, next_us, last_us, fired, created_us, changed_us = row
    return ScheduleRecord(
        name=name,
        definition=definition,
        version=version,
        paused=bool(paused),
        next_at_us=next_us,
        last_at_us=last_us,
        fired=fired,
        created_at_us=created_us,
        changed_at_us=changed_us,
    )
