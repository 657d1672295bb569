"""A store of jobs behind a faulty network, for one simulated host.

Must never answer by itself: what the store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from holdfast.model.job import (
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
    QueueRecord,
    QueueSettings,
    Reclaimed,
    Return,
    Settled,
    Tended,
)
from holdfast.names import JobId
from holdfast.ports.job_store import JobStore
from holdfast.testing.faults import Faults
from holdfast.testing.simulation import SimHost

T = TypeVar("T")


class FaultyJobStore:
    """A store of jobs as a host sees it through the network."""

    def __init__(self, store: JobStore, faults: Faults, host: SimHost) -> None:
        self._store = store
        self._faults = faults
        self._host = host

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """See the port."""
        return await self._send(lambda: self._store.enqueue(jobs))

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """See the port."""
        return await self._send(lambda: self._store.enqueue_in(jobs, tx))

    async def claim(self, request: ClaimRequest) -> Claimed:
        """See the port."""
        return await self._send(lambda: self._store.claim(request))

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """See the port."""
        return await self._send(lambda: self._store.complete(completions))

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """See the port."""
        return await self._send(lambda: self._store.fail(failures))

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """See the port."""
        return await self._send(lambda: self._store.release(returns))

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """See the port."""
        return await self._send(lambda: self._store.extend(extensions))

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """See the port."""
        return await self._send(lambda: self._store.reclaim(limit=limit))

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """See the port."""
        return await self._send(lambda: self._store.cancel(ids, reason=reason))

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """See the port."""
        return await self._send(lambda: self._store.retry(ids))

    async def delete(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """See the port."""
        return await self._send(lambda: self._store.delete(ids))

    async def tend(self, *, limit: int) -> Tended:
        """See the port."""
        return await self._send(lambda: self._store.tend(limit=limit))

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """See the port."""
        return await self._send(lambda: self._store.get(id))

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """See the port."""
        return await self._send(lambda: self._store.list(wanted, after=after, limit=limit))

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """See the port."""
        return await self._send(lambda: self._store.attempts(id))

    async def put_queue(self, settings: QueueSettings) -> None:
        """See the port."""
        await self._send(lambda: self._store.put_queue(settings))

    async def queues(self) -> Sequence[QueueRecord]:
        """See the port."""
        return await self._send(self._store.queues)

    async def _send(self, operation: Callable[[], Awaitable[T]]) -> T:
        return await self._faults.call(self._host, operation)
