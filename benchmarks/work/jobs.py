"""The job store of a driver, opened with a session and nothing above it.

Owns the session for as long as the block lasts. Measurements of single statements go through here;
those of handlers go through the public API.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from benchmarks.work.effort import FILL
from outlive.connect import find_factory
from outlive.model.job import ClaimedJob, ClaimRequest, NewJob, Return, Want
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, JobId
from outlive.ports.driver import DriverContext
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime

# Longer than any measurement: nobody renews this session.
_SESSION_US = 3_600_000_000

# What a handler is given; some hundred bytes are usual.
PAYLOAD = '{"to": "ann@example.org", "subject": "Your order 12345", "template": "order-shipped"}'


class Jobs:
    """Claims of one session."""

    def __init__(self, store: JobStore, session: HostId) -> None:
        self._store = store
        self.session = session
        self._numbers = itertools.count(1)

    def request(self) -> str:
        """The id of a claim. A floor writes the same: what a row keeps of its claim has a price."""
        return f"{self.session}-{next(self._numbers)}"

    async def fill(self, queue: str, count: int) -> None:
        """Enqueue ``count`` jobs."""
        left = count
        while left > 0:
            size = min(left, FILL)
            names = [f"{self.session}-{next(self._numbers)}" for _ in range(size)]
            await self._store.enqueue(
                [NewJob(id=JobId(name), queue=queue, payload=PAYLOAD) for name in names]
            )
            left -= size

    async def claim(self, queue: str, limit: int) -> Sequence[ClaimedJob]:
        """Claim exactly ``limit`` jobs.

        Raises:
            RuntimeError: There were fewer, so that the number would mean something else.
        """
        request = ClaimRequest(
            session=self.session,
            worker="bench",
            request=self.request(),
            wants=(Want(queue, limit),),
            limit=limit,
        )
        found = (await self._store.claim(request)).jobs
        if len(found) != limit:
            raise RuntimeError(f"asked for {limit} jobs of {queue!r} and had {len(found)}")
        return found

    async def give_back(self, claimed: Sequence[ClaimedJob]) -> None:
        """Release claims: the backlog stays as long as it was."""
        await self._store.release([Return(job.id, job.token) for job in claimed])


@asynccontextmanager
async def open_jobs(url: str, namespace: str = "default") -> AsyncGenerator[Jobs]:
    """The jobs of ``url``.

    Raises:
        RuntimeError: The driver keeps none.
    """
    runtime = Runtime()
    session = HostId(runtime.new_id())
    location = parse_url(url)
    context = DriverContext(
        clock=runtime.clock, random=runtime.random, namespace=namespace, host=session
    )
    driver = await find_factory(location.scheme).open(location, context)
    try:
        if driver.jobs is None or driver.hosts is None:
            raise RuntimeError(f"{location.scheme} keeps no jobs")
        await driver.hosts.open(
            HostSession(id=session, name="bench", ttl_us=_SESSION_US, metadata="{}")
        )
        try:
            yield Jobs(driver.jobs, session)
        finally:
            await driver.hosts.close(session)
    finally:
        await driver.close()
