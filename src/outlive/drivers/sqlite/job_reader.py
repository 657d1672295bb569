"""Reading jobs: records, listings, what went wrong, queues.

What is read here is for showing, never for deciding who claims. Counting a million rows takes a
while: nothing is read on the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.clock import Clock, instant, instant_or_none, microseconds
from outlive.drivers.sqlite import job_read_sql as sql
from outlive.drivers.sqlite.long_reads import LongReads, place_of
from outlive.model.job import (
    ATTEMPTS_KEPT_MAX,
    Attempt,
    JobFilter,
    JobRecord,
    JobState,
    LimitsBy,
    QueueMode,
    QueueRecord,
    QueueSettings,
)
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import HostId, JobId, Token

_Row = tuple[Any, ...]


class JobReader:
    """Reads of one namespace in one file."""

    def __init__(self, reads: LongReads, clock: Clock, *, namespace: str) -> None:
        self._reads = reads
        self._clock = clock
        self._namespace = namespace

    async def get(self, id_: JobId) -> JobRecord | None:
        """What is known of one job."""
        rows = await self._reads.rows(sql.GET, (self._namespace, id_))
        return _record(rows[0]) if rows else None

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs in order of enqueueing."""
        statement, values = sql.listing(wanted, self._namespace)
        values |= {"after": place_of(after), "limit": max(0, min(limit, LIST_LIMIT_MAX))}
        return [_record(row) for row in await self._reads.rows(statement, values)]

    async def attempts(self, id_: JobId) -> Sequence[Attempt]:
        """What went wrong with a job, newest first."""
        rows = await self._reads.rows(sql.ATTEMPTS, (self._namespace, id_, ATTEMPTS_KEPT_MAX))
        return [
            Attempt(
                token=Token(token),
                outcome=outcome,
                worker=worker,
                claimed_at=instant_or_none(claimed_at),
                ended_at=instant(ended_at),
                error=error,
            )
            for token, outcome, worker, claimed_at, ended_at, error in rows
        ]

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs, by name."""
        counted, settings = await self._reads.run(self._queues)
        now = microseconds(self._clock.now())
        records: list[QueueRecord] = []
        for name in sorted(counted.keys() | settings.keys()):
            counts: dict[JobState, int] = {}
            oldest: int | None = None
            for state, count, since in counted.get(name, ()):
                counts[state] = counts.get(state, 0) + count
                oldest = since if oldest is None else oldest
            records.append(
                QueueRecord(
                    settings=settings.get(name) or QueueSettings(name=name),
                    counts=counts,
                    oldest_ready_s=None if oldest is None else max(0, now - oldest) / 1e6,
                )
            )
        return records

    def _queues(
        self,
    ) -> tuple[dict[str, list[tuple[JobState, int, int | None]]], dict[str, QueueSettings]]:
        counted: dict[str, list[tuple[JobState, int, int | None]]] = {}
        cursor = self._reads.connection.cursor()
        # One snapshot for all of them, so that no job is counted twice.
        cursor.execute("BEGIN")
        try:
            for statement in sql.COUNTS:
                for name, state, count, since in cursor.execute(statement, (self._namespace,)):
                    counted.setdefault(name, []).append((JobState(state), count, since))
            rows = cursor.execute(sql.SETTINGS, (self._namespace,)).fetchall()
        finally:
            cursor.execute("COMMIT")
        return counted, {row[0]: settings_of(row) for row in rows}


def settings_of(row: _Row) -> QueueSettings:
    """The settings of a queue, of its row."""
    name, mode, concurrency, rate, period, limits_by = row
    return QueueSettings(
        name=name,
        mode=QueueMode(mode),
        concurrency=concurrency,
        rate=rate,
        rate_period_us=period,
        limits_by=LimitsBy(limits_by),
    )


def _record(row: _Row) -> JobRecord:
    return JobRecord(
        id=JobId(row[0]),
        queue=row[1],
        state=JobState(row[2]),
        priority=row[3],
        payload=row[4],
        headers=row[5],
        token=Token(row[6]),
        attempts=row[7],
        losses=row[8],
        max_attempts=row[9],
        max_losses=row[10],
        retry=row[11],
        unique_key=row[12],
        ordering_key=row[13],
        blocked=bool(row[14]),
        cancel_requested=bool(row[15]),
        claimed_by=row[16],
        session=None if row[17] is None else HostId(row[17]),
        claimed_at=instant_or_none(row[18]),
        enqueued_at=instant(row[19]),
        due_at=instant(row[20]),
        ended_at=instant_or_none(row[21]),
        result=row[22],
        error=row[23],
        progress=row[24],
        cursor=str(row[25]),
    )
