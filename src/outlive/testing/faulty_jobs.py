"""A job store behind a faulty network, for one simulated host.

Owns the wrapping of the port and the record of what the store carried out. Must never answer by
itself: what the store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outlive.model.job import (
    ALL_PARTS,
    Attempt,
    Changed,
    Claimed,
    ClaimRequest,
    Completion,
    Enqueued,
    Entry,
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
from outlive.ports.job_store import JobStore
from outlive.testing.faults import Faults
from outlive.testing.faulty_port import FaultyPort
from outlive.testing.job_history import JobHistory, JobServed
from outlive.testing.simulation import SimHost

_Settling = Completion | Failure | Return | Extension


class FaultyJobStore(FaultyPort):
    """A job store as a host sees it through the network; each request is recorded."""

    def __init__(self, store: JobStore, faults: Faults, host: SimHost, history: JobHistory) -> None:
        super().__init__(faults, host)
        self._store = store
        self._history = history

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """See the port."""

        async def apply() -> Sequence[Enqueued]:
            outcomes = await self._store.enqueue(jobs)
            for job, outcome in zip(jobs, outcomes, strict=True):
                self._serve(
                    "enqueue",
                    outcome.id,
                    outcome.entry,
                    queue=job.queue,
                    delay_s=job.delay_us / 1e6,
                    unique_key=job.unique_key,
                    ordering_key=job.ordering_key,
                )
            return outcomes

        outcomes = await self._call(apply)
        kept = (Entry.CREATED, Entry.REPLACED)
        self._history.acknowledged.update(one.id for one in outcomes if one.entry in kept)
        return outcomes

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """See the port. The transaction is the caller's own, so no fault is added here."""
        return await self._store.enqueue_in(jobs, tx)

    async def claim(self, request: ClaimRequest) -> Claimed:
        """See the port."""

        async def apply() -> Claimed:
            claimed = await self._store.claim(request)
            for job in claimed.jobs:
                self._serve("claim", job.id, token=job.token, session=request.session)
            return claimed

        # What an answered claim took a second time nobody would know of until the session ends.
        return await self._call(apply, answered_once=True)

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """See the port."""

        async def apply() -> Sequence[Settled]:
            outcomes = await self._store.complete(completions)
            self._settled("complete", completions, outcomes)
            return outcomes

        return await self._call(apply)

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """See the port."""

        async def apply() -> Sequence[Settled]:
            outcomes = await self._store.fail(failures)
            self._settled("fail", failures, outcomes)
            return outcomes

        return await self._call(apply)

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """See the port."""

        async def apply() -> Sequence[Settled]:
            outcomes = await self._store.release(returns)
            self._settled("release", returns, outcomes)
            return outcomes

        return await self._call(apply)

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """See the port."""

        async def apply() -> Sequence[Settled]:
            outcomes = await self._store.extend(extensions)
            self._settled("extend", extensions, outcomes)
            return outcomes

        return await self._call(apply)

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """See the port."""

        async def apply() -> Sequence[Reclaimed]:
            taken = await self._store.reclaim(limit=limit)
            for one in taken:
                self._serve("reclaim", one.id, one.state)
            return taken

        return await self._call(apply)

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """See the port."""

        async def apply() -> Sequence[Changed]:
            outcomes = await self._store.cancel(ids, reason=reason)
            for job, outcome in zip(ids, outcomes, strict=True):
                self._serve("cancel", job, outcome)
            return outcomes

        return await self._call(apply)

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """See the port."""

        async def apply() -> Sequence[Changed]:
            outcomes = await self._store.retry(ids)
            for job, outcome in zip(ids, outcomes, strict=True):
                self._serve("retry", job, outcome)
            return outcomes

        return await self._call(apply)

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """See the port."""
        return await self._call(lambda: self._store.purge(ids))

    async def tend(self, *, limit: int) -> Tended:
        """See the port."""
        return await self._call(lambda: self._store.tend(limit=limit))

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """See the port."""
        return await self._call(lambda: self._store.get(id))

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """See the port."""
        return await self._call(lambda: self._store.list(wanted, after=after, limit=limit))

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """See the port."""
        return await self._call(lambda: self._store.attempts(id))

    async def put_queue(
        self, settings: QueueSettings, *, parts: Collection[QueuePart] = ALL_PARTS
    ) -> None:
        """See the port."""
        await self._call(lambda: self._store.put_queue(settings, parts=parts))

    async def queues(self) -> Sequence[QueueRecord]:
        """See the port."""
        return await self._call(self._store.queues)

    def _settled(self, op: str, asked: Sequence[_Settling], outcomes: Sequence[Settled]) -> None:
        for one, outcome in zip(asked, outcomes, strict=True):
            self._serve(op, one.id, outcome, token=one.token, delay_s=_delay_s(one))

    def _serve(  # noqa: PLR0913 - the fields of a record
        self,
        op: str,
        job: str,
        outcome: str = "",
        *,
        token: int = 0,
        session: str = "",
        queue: str = "",
        delay_s: float | None = 0.0,
        unique_key: str | None = None,
        ordering_key: str | None = None,
    ) -> None:
        self._history.served.append(
            JobServed(
                at=self._now,
                op=op,
                job=job,
                outcome=outcome,
                token=token,
                session=session,
                queue=queue,
                delay_s=delay_s,
                unique_key=unique_key,
                ordering_key=ordering_key,
            )
        )


def _delay_s(asked: _Settling) -> float | None:
    if isinstance(asked, Failure):
        return None if asked.retry_us is None else asked.retry_us / 1e6
    if isinstance(asked, Return):
        return asked.delay_us / 1e6
    return 0.0
