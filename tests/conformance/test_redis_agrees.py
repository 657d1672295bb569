"""Redis decides like the plain reading of the rules: random sequences, each step compared.

The memory store stands still in time; a sequence on Redis that takes too long for its queue to mean
the same is left out. A failure names its seed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from outlive.clock import SystemClock
from outlive.drivers.memory import MemoryFactory
from outlive.drivers.redis import RedisFactory
from outlive.errors import LeaseLost, OutliveError
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.location import parse_url
from outlive.model.turns import PASS_AFTER_US
from outlive.names import HostId, Owner, WaiterId
from outlive.ports.driver import Driver, DriverContext
from outlive.testing import ManualClock

pytestmark = pytest.mark.service

SEQUENCES = 50
STEPS = 40
LONG_US = 60_000_000
# Within this much time nobody in a queue loses a turn.
STILL_S = PASS_AFTER_US / 1e6 * 0.8

Call = Callable[[Driver, int], Awaitable[Any]]


@dataclass
class Sequence:
    """One random sequence: what was granted so far, as each of the two stores sees it."""

    rng: random.Random
    key: str
    grants: list[tuple[Grant, Grant]] = field(default_factory=list)
    places: dict[tuple[int, str], WaiterId] = field(default_factory=dict)

    def next_call(self) -> Call:
        owner = Owner(f"{self.rng.choice('ab')}/{self.rng.randrange(6)}")
        kinds = [self.acquire] * 6 + [self.renew, self.release, self.release, self.leave]
        kind = self.rng.choice([*kinds, self.break_lease, self.look])
        return kind(owner)

    def acquire(self, owner: Owner) -> Call:
        limit, resume = self.rng.choice([1, 1, 2, 3]), self.rng.random() < 0.15
        queue_us = self.rng.choice([0, LONG_US])

        async def call(driver: Driver, which: int) -> Grant | Held:
            waiter = self.places.get((which, owner))
            outcome = await driver.leases.acquire(
                AcquireRequest(
                    *(self.key, owner, LONG_US, "{}", HostId("h"), limit, waiter, queue_us, resume)
                )
            )
            if isinstance(outcome, Held) and outcome.waiter is not None:
                self.places[which, owner] = outcome.waiter
            return outcome

        return call

    def renew(self, _: Owner) -> Call:
        grants, state = self._one_grant(), self.rng.choice([None, "kept"])
        return lambda driver, which: driver.leases.renew(grants[which], LONG_US, state=state)

    def release(self, _: Owner) -> Call:
        grants = self._one_grant()
        return lambda driver, which: driver.leases.release(grants[which])

    def leave(self, owner: Owner) -> Call:
        return lambda driver, which: driver.leases.leave(
            self.key, self.places.get((which, owner), WaiterId(0)), owner
        )

    def break_lease(self, _: Owner) -> Call:
        return lambda driver, _: driver.leases.break_lease(self.key, reason="because")

    def look(self, _: Owner) -> Call:
        async def call(driver: Driver, _: int) -> Any:
            return [
                *await driver.leases.get(self.key),
                *await driver.leases.history(self.key, limit=100),
            ]

        return call

    def _one_grant(self) -> tuple[Grant, Grant]:
        nobody = Grant(self.key, 0, Owner("a/nobody"), 1, 1, 1)
        return self.rng.choice(self.grants) if self.grants else (nobody, nobody)


def comparable(outcome: Any) -> Any:
    """What must be the same: not tokens, versions and instants, which only have to grow."""
    match outcome:
        case Grant():
            return "granted", outcome.slot, outcome.owner, outcome.state, outcome.previous_owner
        case Held():
            # Of several owners with the same end, either may be named.
            named = outcome.owner is not None
            return "held", named, outcome.ahead, outcome.limit, outcome.waiter is not None
        case LeaseLost():
            return type(outcome), outcome.reason
        case OutliveError():
            return type(outcome)
        case list():
            fields = ("slot", "limit", "owner", "active", "state", "waiters", "ended", "detail")
            return [[getattr(entry, name, None) for name in fields] for entry in outcome]
        case _:
            return outcome


async def run(call: Call, driver: Driver, which: int) -> Any:
    try:
        return await call(driver, which)
    except OutliveError as error:
        return error


async def agree(seed: int, memory: Driver, redis: Driver) -> bool:
    """Run one sequence on both; false if it was too slow to judge."""
    sequence, began = Sequence(random.Random(seed), f"k{seed}"), time.monotonic()
    for step in range(STEPS):
        call = sequence.next_call()
        expected, found = await run(call, memory, 0), await run(call, redis, 1)
        if time.monotonic() - began > STILL_S:
            return False
        assert comparable(found) == comparable(expected), f"seed {seed}, step {step}"
        if isinstance(expected, Grant):
            sequence.grants.append((expected, found))
    return True


def context(clock: Any) -> DriverContext:
    return DriverContext(clock=clock, random=random.Random(1), namespace="n", host=HostId("h"))


async def test_random_sequences_end_alike(redis_url) -> None:
    memory = await MemoryFactory().open(parse_url("memory://"), context(ManualClock()))
    redis = await RedisFactory().open(parse_url(redis_url), context(SystemClock()))
    try:
        judged = [await agree(seed, memory, redis) for seed in range(SEQUENCES)]
    finally:
        await redis.close()
        await memory.close()
    assert sum(judged) > SEQUENCES / 2, "the machine was too slow to judge"
