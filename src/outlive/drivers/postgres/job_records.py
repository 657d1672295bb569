"""Jobs and queues as people see them. Only reads, but for the settings of a queue."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from outlive.drivers.postgres import job_record_sql
from outlive.drivers.postgres.job_order_sql import RING_QUEUES
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.transactions import Run
from outlive.errors import UsageError
from outlive.model.job import (
    ATTEMPTS_KEPT_MAX,
    CLAIM_MAX,
    Attempt,
    JobFilter,
    JobRecord,
    JobState,
    LimitsBy,
    QueueMode,
    QueuePart,
    QueueRecord,
    QueueSettings,
    put_parts,
)
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import HostId, JobId, Token


class JobReader:
    """Reads the tables of one namespace."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._get_sql = tables.text(job_record_sql.GET)
        self._list_sql = tables.text(job_record_sql.LIST)
        self._attempts_sql = tables.text(job_record_sql.ATTEMPTS)
        self._queues_sql = tables.text(job_record_sql.QUEUES)
        self._put_queue_sql = tables.text(job_record_sql.PUT_QUEUE)
        self._ready_sql = tables.text(job_record_sql.READY)
        self._ring_sql = tables.text(RING_QUEUES)

    async def get(self, job: JobId) -> JobRecord | None:
        """What is known of one job."""
        rows = await self._tables.fetch(self._get_sql, job, write=False)
        return _record(rows[0]) if rows else None

    async def page(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs in order of enqueueing."""
        rows = await self._tables.fetch(
            self._list_sql,
            wanted.queue,
            _number(after),
            [state.value for state in wanted.states] or None,
            wanted.unique_key,
            wanted.ordering_key,
            wanted.session,
            max(0, min(limit, LIST_LIMIT_MAX)),
            write=False,
        )
        return [_record(row) for row in rows]

    async def attempts(self, job: JobId) -> Sequence[Attempt]:
        """What went wrong with a job, newest first."""
        rows = await self._tables.fetch(self._attempts_sql, job, ATTEMPTS_KEPT_MAX, write=False)
        return [
            Attempt(
                token=Token(row["token"]),
                outcome=row["outcome"],
                worker=row["worker"],
                claimed_at=row["claimed_at"],
                ended_at=row["ended_at"],
                error=row["error"],
            )
            for row in rows
        ]

    async def put_queue(self, settings: QueueSettings, parts: Collection[QueuePart]) -> None:
        """Keep the settings; hosts that wait hear of what they let through, now or later.

        While a queue is paused nobody is told when its next job is due.
        """
        fresh = put_parts(None, settings, parts)

        async def body(run: Run) -> None:
            (kept,) = await run(
                self._put_queue_sql,
                fresh.name,
                fresh.mode.value,
                fresh.concurrency,
                fresh.rate,
                fresh.rate_period_us,
                fresh.limits_by.value,
                QueuePart.MODE in parts,
                QueuePart.LIMITS in parts,
                settings.limits_by is LimitsBy.OPERATOR,
            )
            if kept["mode"] == QueueMode.PAUSED.value:
                return
            (row,) = await run(self._ready_sql, settings.name, CLAIM_MAX)
            if row["jobs"]:
                await run(self._ring_sql, [settings.name], [row["jobs"]], self._tables.channel)

        await self._tables.transact(body)

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs, by name."""
        queues: dict[str, QueueRecord] = {}
        for row in await self._tables.fetch(self._queues_sql, write=False):
            name = row["queue"]
            record = queues.get(name)
            counts = {} if record is None else record.counts
            oldest_s = None if record is None else record.oldest_ready_s
            if row["state"] is not None:
                counts[JobState(row["state"])] = row["jobs"]
            if row["oldest_ready_s"] is not None:
                oldest_s = max(0.0, row["oldest_ready_s"])
            queues[name] = QueueRecord(
                settings=_settings(row), counts=counts, oldest_ready_s=oldest_s
            )
        return list(queues.values())


def _number(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit()):
        raise UsageError(f"{cursor!r} is not a cursor of a listing of jobs")
    return int(cursor)


def _settings(row: Any) -> QueueSettings:
    if row["mode"] is None:
        return QueueSettings(name=row["queue"])
    return QueueSettings(
        name=row["queue"],
        mode=QueueMode(row["mode"]),
        concurrency=row["concurrency"],
        rate=row["rate"],
        rate_period_us=row["rate_period_us"],
        limits_by=LimitsBy(row["limits_by"]),
    )


def _record(row: Any) -> JobRecord:
    return JobRecord(
        id=JobId(row["id"]),
        queue=row["queue"],
        state=JobState(row["state"]),
        priority=row["priority"],
        payload=row["payload"],
        headers=row["headers"],
        token=Token(row["token"]),
        attempts=row["attempts"],
        losses=row["losses"],
        max_attempts=row["max_attempts"],
        max_losses=row["max_losses"],
        retry=row["retry"],
        unique_key=row["unique_key"],
        ordering_key=row["ordering_key"],
        blocked=row["blocked"],
        cancel_requested=row["cancel_requested"],
        claimed_by=row["worker"],
        session=None if row["session"] is None else HostId(row["session"]),
        claimed_at=row["claimed_at"],
        enqueued_at=row["enqueued_at"],
        due_at=row["due_at"],
        ended_at=row["ended_at"],
        result=row["result"],
        error=row["error"],
        progress=row["progress"],
        cursor=str(row["number"]),
    )
