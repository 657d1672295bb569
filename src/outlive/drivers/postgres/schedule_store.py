"""Schedules in PostgreSQL, beside the jobs that they make.

Owns the rows of schedules. A firing and its job are one transaction. Ticks follow the server's
wall clock.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.transactions import Run
from outlive.model.job import Enqueued, NewJob
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

Enqueue = Callable[[Run, Sequence[NewJob]], Awaitable[Sequence[Enqueued]]]

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_COLUMNS = """
name, definition, version, paused, next_at_us, last_at_us, fired, created_at_us, changed_at_us
"""
_GET = "SELECT {columns} FROM {s}.schedule WHERE namespace = $1 AND name = $2"
_LIST = """
SELECT {columns} FROM {s}.schedule
WHERE namespace = $1 AND ($2::text IS NULL OR name > $2) ORDER BY name LIMIT $3
"""

# One reading of the clock for all of it. The first column is there also when nothing is due.
_DUE = """
WITH clock AS MATERIALIZED (SELECT {now} AS now_us), due AS (
    SELECT {columns} FROM {s}.schedule, clock
    WHERE namespace = $1 AND NOT paused AND (next_at_us <= now_us OR last_at_us > now_us + $3)
    ORDER BY next_at_us, name LIMIT $2
)
SELECT now_us, (
    SELECT min(next_at_us) FROM {s}.schedule
    WHERE namespace = $1 AND NOT paused AND next_at_us > now_us
) AS soonest_us, due.*
FROM clock LEFT JOIN due ON true
ORDER BY next_at_us, name
"""

# The same definition again must not move the ticks that were missed meanwhile.
_PUT = """
INSERT INTO {s}.schedule AS s
    (namespace, name, version, next_at_us, created_at_us, changed_at_us, definition)
VALUES ($1, $2, nextval('{s}.schedule_version'), $3, {now}, {now}, $4)
ON CONFLICT (namespace, name) DO UPDATE
SET version = CASE WHEN s.definition = $4 THEN s.version ELSE excluded.version END,
    next_at_us = CASE WHEN s.definition = $4 THEN s.next_at_us ELSE $3 END,
    changed_at_us = CASE WHEN s.definition = $4 THEN s.changed_at_us ELSE {now} END,
    definition = $4
RETURNING {columns}
"""
_DELETE = "DELETE FROM {s}.schedule WHERE namespace = $1 AND name = $2 RETURNING name"
_PAUSE = """
UPDATE {s}.schedule SET paused = true,
    version = CASE WHEN paused THEN version ELSE nextval('{s}.schedule_version') END,
    changed_at_us = CASE WHEN paused THEN changed_at_us ELSE {now} END
WHERE namespace = $1 AND name = $2
RETURNING {columns}
"""
_RESUME = """
UPDATE {s}.schedule SET paused = false,
    version = CASE WHEN paused THEN nextval('{s}.schedule_version') ELSE version END,
    next_at_us = CASE WHEN paused THEN $3 ELSE next_at_us END,
    changed_at_us = CASE WHEN paused THEN {now} ELSE changed_at_us END
WHERE namespace = $1 AND name = $2
RETURNING {columns}
"""
# Conditional on the version: of all who saw the tick due, one moves the schedule on. Without a
# tick, one that was fired beyond the next is forgotten: the clock was wrong when it was.
_FIRE = """
UPDATE {s}.schedule SET version = nextval('{s}.schedule_version'), next_at_us = $4,
    fired = fired + CASE WHEN $5::bigint IS NULL THEN 0 ELSE 1 END,
    last_at_us = coalesce($5::bigint, CASE WHEN last_at_us < $4 THEN last_at_us END)
WHERE namespace = $1 AND name = $2 AND version = $3 AND NOT paused
RETURNING version
"""


class PostgresScheduleStore:
    """The ``ScheduleStore`` of one namespace in one schema.

    ``enqueue`` adds jobs by the statements of a transaction.
    """

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        namespace: str,
        enqueue: Enqueue,
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._enqueue = enqueue
        self._settings = settings

    def _sql(self, text: str) -> str:
        return self._settings.sql(text.replace("{columns}", _COLUMNS).replace("{now}", _NOW))

    async def put(self, schedule: NewSchedule) -> ScheduleRecord:
        """Keep a schedule; see the port."""
        record = await self._change(_PUT, schedule.name, schedule.next_at_us, schedule.definition)
        assert record is not None
        return record

    async def get(self, name: str) -> ScheduleRecord | None:
        """What is known of one; see the port."""
        rows = await self._connections.fetch(self._sql(_GET), self._namespace, name, write=False)
        return _record(rows[0]) if rows else None

    async def list(self, *, after: str | None, limit: int) -> Sequence[ScheduleRecord]:
        """A page by name; see the port."""
        page = max(0, min(limit, LIST_MAX))
        rows = await self._connections.fetch(
            self._sql(_LIST), self._namespace, after, page, write=False
        )
        return [_record(row) for row in rows]

    async def delete(self, name: str) -> bool:
        """Remove one; see the port."""
        rows = await self._connections.fetch(self._sql(_DELETE), self._namespace, name, write=True)
        return bool(rows)

    async def pause(self, name: str) -> ScheduleRecord | None:
        """Let it not fire; see the port."""
        return await self._change(_PAUSE, name)

    async def resume(self, name: str, *, next_at_us: int) -> ScheduleRecord | None:
        """Let it fire again; see the port."""
        return await self._change(_RESUME, name, next_at_us)

    async def _change(self, statement: str, name: str, *values: Any) -> ScheduleRecord | None:
        rows = await self._connections.fetch(
            self._sql(statement), self._namespace, name, *values, write=True
        )
        return _record(rows[0]) if rows else None

    async def due(self, *, limit: int) -> Due:
        """What is due now; see the port."""
        limit = max(0, min(limit, DUE_MAX))
        # One more than asked for tells whether something due was left out.
        rows = await self._connections.fetch(
            self._sql(_DUE), self._namespace, limit + 1, CLOCK_TOLERANCE_US, write=False
        )
        now_us, soonest_us = rows[0]["now_us"], rows[0]["soonest_us"]
        found = [_record(row) for row in rows if row["name"] is not None]
        next_due_s = None if soonest_us is None else (soonest_us - now_us) / 1e6
        return Due(
            now_us=now_us,
            schedules=tuple(found[:limit]),
            next_due_s=next_due_s if len(found) <= limit else 0.0,
        )

    async def fire(self, firing: Firing) -> Fired:
        """Move one on and enqueue its job; see the port."""

        async def move(tx: Any) -> Fired:
            row = await tx.one(
                self._sql(_FIRE),
                self._namespace,
                firing.name,
                firing.version,
                firing.next_at_us,
                firing.tick_us,
            )
            if row is None:
                return Fired(None)
            if firing.job is None:
                return Fired(row["version"])
            (enqueued,) = await self._enqueue(tx.fetch, [firing.job])
            return Fired(row["version"], enqueued.entry)

        return await self._connections.transact(move)


def _record(row: Any) -> ScheduleRecord:
    return ScheduleRecord(
        name=row["name"],
        definition=row["definition"],
        version=row["version"],
        paused=row["paused"],
        next_at_us=row["next_at_us"],
        last_at_us=row["last_at_us"],
        fired=row["fired"],
        created_at_us=row["created_at_us"],
        changed_at_us=row["changed_at_us"],
    )
