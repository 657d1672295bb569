"""Enqueues inside the caller's own transaction: the jobs exist if and when it commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres.job_enqueue import JobEnqueuer, check_count, has_ordering
from outlive.drivers.postgres.job_sql import staying
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.outbox import Outbox
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.transactions import Row, Run
from outlive.model.job import Enqueued, NewJob

_FRESH = (
    "jobs with an ordering key need a READ COMMITTED transaction: a snapshot from the beginning "
    "of the transaction does not show which job is next"
)


class JobOutbox:
    """The outbox of one store. ``identity`` is the store's own id."""

    def __init__(
        self,
        tables: JobTables,
        enqueuer: JobEnqueuer,
        settings: PostgresSettings,
        identity: str,
    ) -> None:
        self._enqueuer = enqueuer
        self._outbox = Outbox(tables, settings, identity, table="job")

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """Add jobs inside ``tx``; see the port."""
        check_count(jobs)
        return await self._outbox.write_in(
            tx,
            "enqueue",
            lambda run: self._enqueuer.enqueue_within(_leaving_notes(run), jobs),
            fresh=_FRESH if has_ordering(jobs) else None,
        )


def _leaving_notes(run: Run) -> Run:
    """``run`` for statements that ring hosts, which may wait again before the caller commits."""

    async def leaving(text: str, *args: Any) -> Sequence[Row]:
        return await run(staying(text), *args)

    return leaving
