"""Hosts that work: a session of their own, and the port of jobs in short sentences.

Durations are in seconds here; the port's own units stay inside. Knows no backend.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from outlive.model.job import (
    Changed,
    Claimed,
    ClaimedJob,
    ClaimRequest,
    Completion,
    Enqueued,
    Entry,
    Extension,
    Failure,
    JobFilter,
    JobRecord,
    JobState,
    NewJob,
    QueueMode,
    QueueRecord,
    QueueSettings,
    Return,
    Settled,
    Want,
)
from outlive.names import JobId, Token
from outlive.ports.job_store import JobStore
from outlive.testing.conformance.lab import LONG_S, Lab, Member
from outlive.testing.conformance.session_host import SessionHost

# A delay that a test waits for on a real store. Nothing is asserted about the time before it.
SOON_S = 0.3
# How far past an instant a test goes before it looks: a real clock may be read a little earlier
# than the one that a test sleeps by.
PAST_S = 0.1

ERROR = '{"type":"ValueError","message":"boom"}'


def job(id: str, queue: str = "q", **fields: Any) -> NewJob:  # noqa: A002 - it is one
    """A job as somebody enqueues it; ``delay``, ``expires`` and ``retention`` are seconds."""
    for name in ("delay", "expires", "retention"):
        if name in fields:
            fields[f"{name}_us"] = round(fields.pop(name) * 1e6)
    fields.setdefault("payload", '{"n":1}')
    return NewJob(id=JobId(id), queue=queue, **fields)


async def worker(
    lab: Lab, name: str = "a", namespace: str = "default", *, ttl: float = LONG_S
) -> Worker:
    """One more host with an open session; skips where the backend keeps no jobs."""
    lab.require("jobs", "sessions")
    one = Worker(await lab.host(name, namespace))
    await one.open_session(one.id, ttl)
    return one


async def workers(lab: Lab, count: int) -> list[Worker]:
    """Several hosts, each with a driver and a session of its own."""
    return [await worker(lab, f"w{number}") for number in range(count)]


class Worker(SessionHost):
    """One host of a lab that enqueues, claims and settles jobs of the queue ``q`` and others."""

    def __init__(self, member: Member) -> None:
        super().__init__(member)
        jobs = member.driver.jobs
        assert jobs is not None, "the driver promises jobs and has none"
        self.jobs: JobStore = jobs
        self._requests = itertools.count(1)

    async def enqueue(self, *jobs: NewJob) -> list[Enqueued]:
        """Enqueue jobs and return what became of each."""
        return list(await self.jobs.enqueue(jobs))

    async def put(self, *ids: str, queue: str = "q", **fields: Any) -> None:
        """Enqueue jobs; the test fails unless each of them is created."""
        outcomes = await self.enqueue(*(job(id_, queue, **fields) for id_ in ids))
        assert outcomes == [Enqueued(JobId(id_), Entry.CREATED) for id_ in ids]

    def request(
        self, limit: int = 1, *, queues: Sequence[str] = ("q",), wait: float = 0, **fields: Any
    ) -> ClaimRequest:
        """A request that no other call has made."""
        values: dict[str, Any] = {
            "session": self.id,
            "worker": self.member.name,
            "request": f"{self.id}/{next(self._requests)}",
            "wants": tuple(Want(queue, limit) for queue in queues),
            "wait_us": round(wait * 1e6),
        }
        return ClaimRequest(limit=limit, **{**values, **fields})

    async def ask(self, limit: int = 1, **fields: Any) -> Claimed:
        """Claim, and return the whole answer."""
        return await self.jobs.claim(self.request(limit, **fields))

    async def claim(self, limit: int = 1, **fields: Any) -> list[ClaimedJob]:
        """Claim, and return what was had."""
        return list((await self.ask(limit, **fields)).jobs)

    async def claim_one(self, **fields: Any) -> ClaimedJob:
        """Claim one job; the test fails if there is none."""
        found = await self.claim(1, **fields)
        assert len(found) == 1, f"one job should be had, and {len(found)} were"
        return found[0]

    async def claim_by_id(self, id: str) -> list[ClaimedJob]:  # noqa: A002 - it is one
        """Claim one job by its id, and say no queue."""
        return await self.claim(1, queues=(), job=JobId(id))

    async def ids(self, limit: int = 100, **fields: Any) -> list[str]:
        """Claim, and return the ids of what was had, in order."""
        return [found.id for found in await self.claim(limit, **fields)]

    async def complete(self, claimed: ClaimedJob, result: str | None = None) -> Settled:
        """Say that the job is done."""
        (outcome,) = await self.jobs.complete([Completion(claimed.id, claimed.token, result)])
        return outcome

    async def fail(
        self, claimed: ClaimedJob, *, retry: float | None = None, error: str = ERROR
    ) -> Settled:
        """Say that the handler failed: again in ``retry`` seconds, or never."""
        retry_us = None if retry is None else round(retry * 1e6)
        (outcome,) = await self.jobs.fail([Failure(claimed.id, claimed.token, error, retry_us)])
        return outcome

    async def release(
        self, claimed: ClaimedJob, delay: float = 0, *, unbegun: bool = False
    ) -> Settled:
        """Give the job back unrun."""
        returned = Return(claimed.id, claimed.token, round(delay * 1e6), unbegun)
        (outcome,) = await self.jobs.release([returned])
        return outcome

    async def extend(self, claimed: ClaimedJob, progress: str | None = None) -> Settled:
        """Say that the job is still being run."""
        (outcome,) = await self.jobs.extend([Extension(claimed.id, claimed.token, progress)])
        return outcome

    async def cancel(self, id: str, reason: str = "not wanted") -> Changed:  # noqa: A002
        """Cancel one job."""
        (outcome,) = await self.jobs.cancel([JobId(id)], reason=reason)
        return outcome

    async def retry(self, id: str) -> Changed:  # noqa: A002 - it is one
        """Retry one job."""
        (outcome,) = await self.jobs.retry([JobId(id)])
        return outcome

    async def purge(self, id: str) -> Changed:  # noqa: A002 - it is one
        """Delete one job."""
        (outcome,) = await self.jobs.purge([JobId(id)])
        return outcome

    async def record(self, id: str) -> JobRecord:  # noqa: A002 - it is one
        """What is known of a job; the test fails if nothing is."""
        record = await self.jobs.get(JobId(id))
        assert record is not None, f"no record of job {id!r}"
        return record

    async def state(self, id: str) -> JobState:  # noqa: A002 - it is one
        """Where a job stands."""
        return (await self.record(id)).state

    async def list(self, **wanted: Any) -> list[str]:
        """The ids of the first page of jobs that match."""
        page = await self.jobs.list(self.filter(**wanted), after=None, limit=100)
        return [record.id for record in page]

    @staticmethod
    def filter(**wanted: Any) -> JobFilter:
        """Which jobs are meant."""
        return JobFilter(**wanted)

    async def outcomes(self, id: str) -> list[str]:  # noqa: A002 - it is one
        """What went wrong with a job, newest first."""
        return [attempt.outcome for attempt in await self.jobs.attempts(JobId(id))]

    async def set_queue(self, mode: QueueMode = QueueMode.OPEN, **settings: Any) -> None:
        """Let settings hold for the queue ``q``, or the one that is named."""
        settings.setdefault("name", "q")
        await self.jobs.put_queue(QueueSettings(mode=mode, **settings))

    async def queue(self, name: str = "q") -> QueueRecord:
        """What is known of a queue; the test fails if nothing is."""
        found = {record.settings.name: record for record in await self.jobs.queues()}
        assert name in found, f"no queue {name!r} among {sorted(found)}"
        return found[name]


def stale(claimed: ClaimedJob, by: int = 1) -> ClaimedJob:
    """The same claim under a smaller token, as a worker would have it that slept too long."""
    return replace(claimed, token=Token(claimed.token - by))
