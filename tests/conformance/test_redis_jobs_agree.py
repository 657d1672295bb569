"""Redis moves jobs like the plain reading of the rules: random sequences, each step compared.

The memory store stands still in time, so that delays are either none or longer than a sequence.
A failure names its seed.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlive.clock import SystemClock
from outlive.drivers.memory import MemoryFactory
from outlive.drivers.redis import RedisFactory
from outlive.errors import OutliveError
from outlive.model.job import (
    Attempt,
    Claimed,
    ClaimRequest,
    Completion,
    Extension,
    Failure,
    JobFilter,
    JobRecord,
    JobState,
    NewJob,
    OnDuplicate,
    QueueMode,
    QueueRecord,
    QueueSettings,
    Reclaimed,
    Return,
    Want,
)
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, JobId, Token
from outlive.ports.driver import Driver, DriverContext
from outlive.testing import ManualClock

pytestmark = pytest.mark.service

SEQUENCES = 60
STEPS = 60
LONG_US = 3_600_000_000
QUEUES = ("q", "p")

Call = Callable[[Driver, int], Awaitable[Any]]


@dataclass
class Sequence:
    """One random sequence: what was claimed so far, with the token of each of the two stores."""

    rng: random.Random
    name: str
    ids: list[JobId] = field(default_factory=list)
    claims: list[tuple[JobId, tuple[Token, Token]]] = field(default_factory=list)
    requests: list[ClaimRequest] = field(default_factory=list)
    sessions: int = 0

    def next_call(self) -> Call:
        kinds = [self.enqueue] * 4 + [self.claim] * 5 + [self.settle] * 6 + [self.operate] * 3
        return self.rng.choice([*kinds, self.put_queue, self.lose, self.look, self.look])()

    def queue(self) -> str:
        return f"{self.name}-{self.rng.choice(QUEUES)}"

    def session(self) -> HostId:
        return HostId(f"{self.name}-{self.sessions}")

    def job(self) -> JobId:
        return self.rng.choice(self.ids) if self.ids else JobId(f"{self.name}-none")

    def enqueue(self) -> Call:
        choose = self.rng.choice
        jobs: list[NewJob] = []
        for _ in range(choose([1, 1, 2, 5])):
            if self.rng.random() < 0.95:
                self.ids.append(JobId(f"{self.name}-{len(self.ids)}"))
            jobs.append(
                NewJob(
                    id=self.ids[-1] if self.ids else JobId(f"{self.name}-first"),
                    queue=self.queue(),
                    payload="{}",
                    priority=choose([0, 0, 0, 1, -1]),
                    delay_us=choose([0, 0, 0, LONG_US]),
                    unique_key=choose([None, None, "k", "l"]),
                    on_duplicate=choose(list(OnDuplicate)),
                    max_losses=choose([0, 1, 10]),
                    expires_us=choose([None, LONG_US]),
                    retention_us=choose([0, LONG_US, LONG_US]),
                )
            )
        return lambda driver, _: driver.jobs.enqueue(jobs)

    def claim(self) -> Call:
        wants = tuple(Want(self.queue(), self.rng.choice([1, 2, 5])) for _ in range(2))
        request = ClaimRequest(
            session=self.session(),
            worker="w",
            request=f"r{len(self.requests)}",
            wants=wants if wants[0].queue != wants[1].queue else wants[:1],
            limit=self.rng.choice([1, 3, 10]),
            job=self.job() if self.rng.random() < 0.2 else None,
        )
        if self.requests and self.rng.random() < 0.2:
            old = self.rng.choice(self.requests)
            request = ClaimRequest(
                session=request.session,
                worker="w",
                request=old.request,
                wants=old.wants,
                limit=old.limit,
                again=True,
            )
        self.requests.append(request)
        return lambda driver, _: driver.jobs.claim(request)

    def settle(self) -> Call:
        nothing = (JobId(f"{self.name}-none"), (Token(1), Token(1)))
        recent = self.claims[-8:]
        picked = [self.rng.choice(recent) if recent else nothing for _ in range(2)]
        kind, delay_us = self.rng.randrange(4), self.rng.choice([0, LONG_US])
        never = self.rng.random() < 0.4

        def call(driver: Driver, which: int) -> Awaitable[Any]:
            mine = [(job, tokens[which]) for job, tokens in picked]
            match kind:
                case 0:
                    return driver.jobs.complete([Completion(*of, '"x"') for of in mine])
                case 1:
                    retry_us = None if never else delay_us
                    return driver.jobs.fail([Failure(*of, '"e"', retry_us) for of in mine])
                case 2:
                    return driver.jobs.release([Return(*of, delay_us) for of in mine])
                case _:
                    return driver.jobs.extend([Extension(*of, "1") for of in mine])

        return call

    def operate(self) -> Call:
        ids, kind = [self.job(), self.job()], self.rng.randrange(3)

        def call(driver: Driver, _: int) -> Awaitable[Any]:
            jobs = driver.jobs
            if kind == 0:
                return jobs.cancel(ids, reason="because")
            return jobs.retry(ids) if kind == 1 else jobs.purge(ids)

        return call

    def put_queue(self) -> Call:
        modes = [QueueMode.OPEN, QueueMode.OPEN, QueueMode.PAUSED, QueueMode.DRAINING]
        settings = QueueSettings(name=self.queue(), mode=self.rng.choice(modes))
        return lambda driver, _: driver.jobs.put_queue(settings)

    def lose(self) -> Call:
        gone = self.session()
        self.sessions += 1
        born = self.session()

        async def call(driver: Driver, _: int) -> Any:
            await driver.hosts.close(gone)
            await open_session(driver, born)
            return await driver.jobs.reclaim(limit=100)

        return call

    def look(self) -> Call:
        states = tuple(self.rng.sample(list(JobState), self.rng.choice([0, 1, 3])))
        wanted = JobFilter(
            queue=self.rng.choice([None, self.queue()]),
            states=states,
            unique_key=self.rng.choice([None, None, "k"]),
            session=self.rng.choice([None, None, self.session()]),
        )
        one = self.job()

        async def call(driver: Driver, _: int) -> Any:
            jobs, page = driver.jobs, []
            while more := await jobs.list(wanted, after=page[-1].cursor if page else None, limit=3):
                page += more
            return [*page, await jobs.get(one), *await jobs.attempts(one), *await jobs.queues()]

        return call

    def learn(self, expected: Claimed, found: Claimed) -> None:
        pairs = zip(expected.jobs, found.jobs, strict=True)
        self.claims += [(one.id, (one.token, other.token)) for one, other in pairs]


def comparable(outcome: Any) -> Any:
    """What must be the same: not tokens, cursors and instants."""
    match outcome:
        case Claimed():
            fields = ("id", "queue", "attempts", "losses", "priority", "unique_key")
            jobs = [[getattr(job, name) for name in fields] for job in outcome.jobs]
            return jobs, outcome.next_due_s is None
        case JobRecord():
            fields = (
                *("id", "queue", "state", "priority", "attempts", "losses", "max_losses"),
                *("unique_key", "cancel_requested", "claimed_by", "session", "result", "error"),
                *("progress", "payload", "headers", "retry", "max_attempts"),
            )
            ended = outcome.ended_at is None, outcome.claimed_at is None
            return [getattr(outcome, name) for name in fields], ended
        case Attempt():
            return outcome.outcome, outcome.worker, outcome.error, outcome.claimed_at is None
        case QueueRecord():
            return outcome.settings, outcome.counts, outcome.oldest_ready_s is None
        case OutliveError():
            return type(outcome)
        case list() | tuple():
            each = [comparable(one) for one in outcome]
            # The claims of one session are lost in any order.
            return sorted(each) if any(isinstance(one, Reclaimed) for one in outcome) else each
        case Reclaimed():
            return outcome.id, outcome.queue, outcome.state
        case _:
            return outcome


async def run(call: Call, driver: Driver, which: int) -> Any:
    try:
        return await call(driver, which)
    except OutliveError as error:
        return error


async def open_session(driver: Driver, host: HostId) -> None:
    await driver.hosts.open(HostSession(id=host, name="n", ttl_us=LONG_US, metadata="{}"))


async def agree(seed: int, memory: Driver, redis: Driver) -> list[str]:
    """Run one sequence on both; gives which calls there were."""
    sequence = Sequence(random.Random(seed), f"s{seed}")
    for driver in (memory, redis):
        await open_session(driver, sequence.session())
    kinds: list[str] = []
    for step in range(STEPS):
        call = sequence.next_call()
        expected, found = await run(call, memory, 0), await run(call, redis, 1)
        assert comparable(found) == comparable(expected), f"seed {seed}, step {step}"
        kinds.append(type(expected).__name__)
        if isinstance(expected, Claimed):
            sequence.learn(expected, found)
    return kinds


def context(clock: Any, namespace: str) -> DriverContext:
    return DriverContext(
        clock=clock, random=random.Random(1), namespace=namespace, host=HostId("h")
    )


async def test_random_sequences_of_jobs_end_alike(redis_url) -> None:
    claimed = 0
    for seed in range(SEQUENCES):
        memory = await MemoryFactory().open(
            parse_url("memory://"), context(ManualClock(), f"n{seed}")
        )
        redis = await RedisFactory().open(parse_url(redis_url), context(SystemClock(), f"n{seed}"))
        try:
            claimed += (await agree(seed, memory, redis)).count("Claimed")
        finally:
            await redis.close()
            await memory.close()
    assert claimed > SEQUENCES
