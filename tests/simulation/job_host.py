"""One simulated host that works on jobs, straight on the port, as the specification states it.

Owns the rules of a safe claimant: a session whose deadline counts from before the request, work
only while it is believed, a repeated request after a lost reply, and no trust in late answers.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from outlive.errors import LeaseLost, OutcomeUnknown, OutliveError
from outlive.model.job import (
    ClaimedJob,
    ClaimRequest,
    Completion,
    Extension,
    Failure,
    JobFilter,
    JobState,
    NewJob,
    OnDuplicate,
    Return,
    Settled,
    Want,
)
from outlive.model.options import CLOCK_DRIFT
from outlive.model.session import HostSession
from outlive.names import HostId, JobId
from outlive.ports.driver import Driver
from outlive.testing.simulation import SimHost

TTL_S = 2.0
SAFE_S = TTL_S * (1 - CLOCK_DRIFT) - min(0.5, TTL_S / 10)
QUEUES = ("mail", "bills")
TRIES = 6

T = TypeVar("T")


class JobHost:
    """A session, its heartbeat, its workers and one who enqueues."""

    def __init__(self, fleet, host: SimHost, driver: Driver) -> None:
        self.fleet = fleet
        self.host = host
        self.jobs = driver.jobs
        self.hosts = driver.hosts
        self.history = fleet.history.jobs
        self.seen = fleet.seen
        self.draw = fleet.simulation.stream(f"jobs/{host.name}")
        self.numbers = itertools.count()
        self.session: HostId | None = None
        self.deadline = 0.0
        self.mine: set[tuple[str, int]] = set()
        self.claiming = 0
        self.claims_begun = 0

    def believes(self, session: HostId | None) -> bool:
        """Whether a session is still ours, as far as our own clock can say."""
        alive = self.host.clock.monotonic() < self.deadline
        return session is not None and session == self.session and alive

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_session())
            group.create_task(self._feed())
            for _ in range(2):
                group.create_task(self._work())

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T | None:
        """Ask until there is an answer, a few times; every method may be repeated."""
        for _ in range(TRIES):
            try:
                return await call()
            except OutcomeUnknown:
                self.seen["unknown"] += 1
            except LeaseLost:
                raise
            except OutliveError:
                self.seen["unavailable"] += 1
                await asyncio.sleep(self.draw.uniform(0, TTL_S / 8))
        return None

    # -- the session ----------------------------------------------------------------------------

    async def _keep_session(self) -> None:
        while not self.fleet.finished:
            session = HostId(f"{self.host.name}.{next(self.numbers)}")
            asked_at = self.host.clock.monotonic()
            row = HostSession(
                id=session, name=self.host.machine, ttl_us=round(TTL_S * 1e6), metadata="{}"
            )
            try:
                await self.hosts.open(row)
            except OutliveError:
                await asyncio.sleep(0.1)
                continue
            self.session, self.deadline = session, asked_at + SAFE_S
            self.mine.clear()
            await self._renew(session)
            self.session = None

    async def _renew(self, session: HostId) -> None:
        for turn in itertools.count():
            await asyncio.sleep(self.draw.uniform(0.2, 0.35) * TTL_S)
            if self.fleet.finished:
                return
            asked_at = self.host.clock.monotonic()
            try:
                await self.hosts.renew(session, round(TTL_S * 1e6))
            except LeaseLost:
                self.seen["session lost"] += 1
                return
            except OutliveError:
                if not self.believes(session):
                    return
                continue
            if not self.believes(session):
                return
            self.deadline = asked_at + SAFE_S
            if turn % 2 == 0:
                await self._sweep(session)

    async def _sweep(self, session: HostId) -> None:
        """Take over from the gone, and give back what nobody here knows of."""
        try:
            reaped = await self.hosts.reap(limit=10)
            taken = await self.jobs.reclaim(limit=100)
            await self._give_back(session)
        except OutliveError:
            return
        self.seen["reaped"] += len(reaped)
        self.seen["takeover"] += len(taken)

    async def _give_back(self, session: HostId) -> None:
        """Release what is claimed in our name because a request was carried out twice.

        Only at a quiet moment: a claim under way may be answered late, with jobs that only seem to
        be nobody's.
        """
        begun = self.claims_begun
        wanted = JobFilter(session=session, states=(JobState.CLAIMED,))
        page = await self.jobs.list(wanted, after=None, limit=100)
        if self.claiming == 0 and self.claims_begun == begun:
            strange = [one for one in page if (one.id, one.token) not in self.mine]
            self.seen["strange claim"] += len(strange)
            await self.jobs.release([Return(one.id, one.token) for one in strange])

    # -- who enqueues and operates --------------------------------------------------------------

    async def _feed(self) -> None:
        while not self.fleet.stopping:
            await asyncio.sleep(self.draw.uniform(0, TTL_S))
            jobs = [self._new() for _ in range(self.draw.randrange(1, 4))]
            await self._ask(lambda jobs=jobs: self.jobs.enqueue(jobs))
            if self.draw.random() < 0.2:
                one = [self.draw.choice(jobs).id]
                await self._ask(lambda one=one: self.jobs.cancel(one, reason="chaos"))
            elif self.draw.random() < 0.3:
                known = sorted(self.history.acknowledged)[-8:]
                one = [JobId(self.draw.choice(known))] if known else []
                await self._ask(lambda one=one: self.jobs.retry(one))

    def _new(self) -> NewJob:
        draw = self.draw
        keyed = draw.random() < 0.3
        return NewJob(
            id=JobId(f"{self.host.name}-{next(self.numbers)}"),
            queue=draw.choice(QUEUES),
            payload="1",
            priority=draw.choice((0, 0, 1)),
            delay_us=draw.choice((0, 0, round(draw.uniform(0, TTL_S) * 1e6))),
            unique_key=draw.choice("uvw") if keyed else None,
            on_duplicate=draw.choice(list(OnDuplicate)),
            ordering_key=draw.choice("xyz") if draw.random() < 0.3 else None,
        )

    # -- who works ------------------------------------------------------------------------------

    async def _work(self) -> None:
        while not self.fleet.finished:
            session = self.session
            if not self.believes(session):
                await asyncio.sleep(TTL_S / 10)
                continue
            self.claiming += 1
            self.claims_begun += 1
            claimed = await self._claim(session)
            self.mine.update((job.id, job.token) for job in claimed)
            self.claiming -= 1
            for job in claimed:
                await self._run(session, job)
                self.mine.discard((job.id, job.token))
            if not claimed:
                await asyncio.sleep(self.draw.uniform(0, TTL_S / 4))

    async def _claim(self, session: HostId) -> tuple[ClaimedJob, ...]:
        request, again = f"{self.host.name}/{next(self.numbers)}", False
        wants = tuple(Want(queue, 2) for queue in self.draw.sample(QUEUES, 2))
        for _ in range(TRIES):
            try:
                answer = await self.jobs.claim(
                    ClaimRequest(
                        session=session,
                        worker=self.host.name,
                        request=request,
                        wants=wants,
                        limit=2,
                        again=again,
                    )
                )
            except OutcomeUnknown:
                self.seen["unknown claim"] += 1
                again = True
            except LeaseLost:
                self.seen["claim refused"] += 1
                return ()
            except OutliveError:
                await asyncio.sleep(self.draw.uniform(0, TTL_S / 8))
            else:
                return answer.jobs
        return ()

    async def _run(self, session: HostId, job: ClaimedJob) -> None:
        for _ in range(self.draw.randrange(1, 4)):
            await asyncio.sleep(self.draw.uniform(0, TTL_S / 6))
            if not self.believes(session):
                self.seen["gave up"] += 1
                return
            self.history.work(self.host.name, job.id, job.token)
        await self.fleet.faults.stall(self.host)
        outcome = await self._ask(self._settling(job))
        if outcome is not None:
            self.seen[f"settled {outcome[0]}"] += 1

    def _settling(self, job: ClaimedJob) -> Callable[[], Awaitable[list[Settled]]]:
        jobs, act = self.jobs, self.draw.random()
        if act < 0.7 or self.fleet.stopping:
            return lambda: jobs.complete([Completion(job.id, job.token, "1")])
        if act < 0.8:
            retry_us = self.draw.choice((None, 0, round(TTL_S * 5e5)))
            return lambda: jobs.fail([Failure(job.id, job.token, '"chaos"', retry_us)])
        if act < 0.9:
            delay_us = self.draw.choice((0, round(TTL_S * 5e5)))
            return lambda: jobs.release([Return(job.id, job.token, delay_us)])
        return lambda: jobs.extend([Extension(job.id, job.token, "0.5")])
