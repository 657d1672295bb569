"""Jobs in PostgreSQL: the port, over the parts that enqueue, claim, settle, operate and read.

Owns nothing but their joining. The usual enqueue, claim and completion are one round trip each,
shared with whatever else is under way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.job_claim import JobClaimer
from outlive.drivers.postgres.job_enqueue import JobEnqueuer
from outlive.drivers.postgres.job_exchange import JobExchange
from outlive.drivers.postgres.job_operate import JobOperator
from outlive.drivers.postgres.job_outbox import JobOutbox
from outlive.drivers.postgres.job_records import JobReader
from outlive.drivers.postgres.job_settle import JobSettler
from outlive.drivers.postgres.job_sweep import JobSweeper
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.transactions import Run
from outlive.model.job import (
    ALL_PARTS,
    Attempt,
    Changed,
    Claimed,
    ClaimRequest,
    Completion,
    Enqueued,
    Extension,
    Failure,
    JobFilter,
    JobRecord,
    NewJob,
    QueuePart,
    QueueRecord,
    QueueSettings,
    Reclaimed,
    Return,
    Settled,
    Tended,
)
from outlive.names import JobId
from outlive.ports.driver import DriverContext


class PostgresJobStore:
    """The ``JobStore`` of one namespace in one schema."""

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        context: DriverContext,
        *,
        channel: str,
        identity: str,
    ) -> None:
        self._tables = tables = JobTables(connections, settings, context, channel)
        self._enqueuer = JobEnqueuer(tables)
        self._outbox = JobOutbox(tables, self._enqueuer, settings, identity)
        sweeper = JobSweeper(tables)
        exchange = JobExchange(tables)
        self._claimer = JobClaimer(tables, sweeper, exchange)
        self._settler = JobSettler(tables, exchange)
        self._operator = JobOperator(tables, sweeper)
        self._reader = JobReader(tables)

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs; see the port."""
        return await self._enqueuer.enqueue(jobs)

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """Add jobs inside the caller's transaction; see the port."""
        return await self._outbox.enqueue_in(jobs, tx)

    async def enqueue_within(self, run: Run, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs inside a transaction of ours, for who writes something else with them."""
        return await self._enqueuer.enqueue_within(self._tables.within(run), jobs)

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim what is ready or due; see the port."""
        return await self._claimer.claim(request)

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """End claimed jobs as done; see the port."""
        return await self._settler.complete(completions)

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """End claims whose handler failed; see the port."""
        return await self._settler.fail(failures)

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """Give claims back unrun; see the port."""
        return await self._settler.release(returns)

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """Learn which claims still stand; see the port."""
        return await self._settler.extend(extensions)

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """Take the claims of sessions that are gone; see the port."""
        return await self._operator.reclaim(limit=limit)

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """End live jobs as cancelled; see the port."""
        return await self._operator.cancel(ids, reason=reason)

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Make jobs ready now; see the port."""
        return await self._operator.retry(ids)

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Forget jobs that have ended; see the port."""
        return await self._operator.purge(ids)

    async def tend(self, *, limit: int) -> Tended:
        """End what expired, remove what was kept long enough; see the port."""
        return await self._operator.tend(limit=limit)

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What is known of one job; see the port."""
        return await self._reader.get(id)

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs; see the port."""
        return await self._reader.page(wanted, after=after, limit=limit)

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job; see the port."""
        return await self._reader.attempts(id)

    async def put_queue(
        self, settings: QueueSettings, *, parts: Collection[QueuePart] = ALL_PARTS
    ) -> None:
        """Let these settings hold for a queue; see the port."""
        await self._reader.put_queue(settings, parts)

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs; see the port."""
        return await self._reader.queues()

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._enqueuer.close()
        await self._settler.close()
