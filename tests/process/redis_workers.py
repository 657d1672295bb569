"""Workers on Redis for tests that look at jobs closely: a driver, a session, and short verbs."""

from __future__ import annotations

import itertools
from typing import Any

from outlive.drivers.redis.driver import RedisDriver
from outlive.model.job import (
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Completion,
    Extension,
    Failure,
    JobFilter,
    NewJob,
    QueueSettings,
    Return,
    Want,
)
from outlive.model.session import HostSession
from outlive.names import HostId, JobId

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


async def use_every_right(worker: RedisWorker) -> None:
    """Do everything once that the ports of sessions and jobs can."""
    jobs = worker.jobs
    await jobs.enqueue([job(f"j{n}", unique_key=f"{n}", expires_us=60_000_000) for n in range(4)])
    await jobs.enqueue([job("none", retention_us=0), job("late", delay_us=60_000_000)])
    one, two, three, four, none = await worker.claim(5, wait_us=1_000_000)
    await worker.ask(wait_us=1_000_000)
    await jobs.extend([Extension(one.id, one.token, "1")])
    await jobs.cancel([one.id], reason="enough")
    await jobs.complete(done(one, none))
    await jobs.fail([Failure(two.id, two.token, '"e"')])
    await jobs.release([Return(three.id, three.token)])
    await jobs.retry([two.id])
    await jobs.purge([one.id])
    await jobs.list(JobFilter(), after=None, limit=10)
    await jobs.get(two.id)
    await jobs.attempts(two.id)
    await jobs.put_queue(QueueSettings(name="q"))
    await jobs.tend(limit=10)
    await worker.jobs.claim(worker.request(again=True))
    await worker.hosts.renew(worker.session, worker.ttl_us)
    assert len(await worker.hosts.list(limit=10)) == 1
    await worker.hosts.close(worker.session)
    assert four.id in {taken.id for taken in await jobs.reclaim(limit=10)}
    assert await worker.hosts.reap(limit=10) == []
    assert len(await jobs.queues()) == 1
