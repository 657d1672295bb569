"""Workers on Redis for tests that look at jobs closely: a driver, a session, and short verbs."""

from __future__ import annotations

import itertools
from typing import Any

from holdfast.drivers.redis.driver import RedisDriver
from holdfast.model.job import (
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Completion,
    NewJob,
    Want,
)
from holdfast.model.session import HostSession
from holdfast.names import HostId, JobId

_numbers = itertools.count(1)


def job(id: str, queue: str = "q", **more: Any) -> NewJob:  # noqa: A002 - it is one
    """A job to enqueue."""
    return NewJob(id=JobId(id), queue=queue, payload=more.pop("payload", "{}"), **more)


def done(*jobs: ClaimedJob) -> list[Completion]:
    """The completions of claimed jobs."""
    return [Completion(claimed.id, claimed.token) for claimed in jobs]


class RedisWorker:
    """One driver with a session of its own."""

    def __init__(self, driver: RedisDriver, ttl_s: float = 60.0) -> None:
        self.driver = driver
        self.jobs = driver.jobs
        self.hosts = driver.hosts
        self.ttl_us = round(ttl_s * 1e6)
        self.session = HostId("")

    async def open(self) -> RedisWorker:
        """Begin a session under a new id."""
        self.session = HostId(f"session-{next(_numbers)}")
        await self.hosts.open(
            HostSession(id=self.session, name="w", ttl_us=self.ttl_us, metadata="{}")
        )
        return self

    def request(self, limit: int = 1, *queues: str, **more: Any) -> ClaimRequest:
        """A request that no other call has made."""
        return ClaimRequest(
            session=self.session,
            worker=more.pop("worker", "w"),
            request=f"request-{next(_numbers)}",
            wants=tuple(Want(queue, limit) for queue in queues or ("q",)),
            limit=limit,
            **more,
        )

    async def ask(self, limit: int = 1, *queues: str, **more: Any) -> Claimed:
        """Claim, and give the whole answer."""
        return await self.jobs.claim(self.request(limit, *queues, **more))

    async def claim(self, limit: int = 1, *queues: str, **more: Any) -> tuple[ClaimedJob, ...]:
        """Claim, and give the jobs."""
        return (await self.ask(limit, *queues, **more)).jobs
