"""What goes wrong between hosts and a store, drawn from a seed, counted by kind.

Owns the network: every request and reply of a simulated host passes here, is delayed, lost or
repeated, and the host may be paused or killed on the way. Must never change what the store
decides. ``heal`` ends the chaos, so that liveness can be asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from outlive.errors import OutcomeUnknown, OutliveError, StoreUnavailable
from outlive.testing.loop import context_of
from outlive.testing.simulation import SimHost, Simulation

T = TypeVar("T")


class Fault(StrEnum):
    """Each kind of fault; a test asks that every kind it claims to survive has happened."""

    FAIL_BEFORE = "fail before"
    REQUEST_LOST = "request lost"
    REPLY_LOST = "reply lost"
    DELAY = "delay"
    DUPLICATE = "duplicate"
    HOST_CRASH = "host crash"
    HOST_PAUSE = "host pause"
    WALL_JUMP = "wall jump"
    CLOCK_RATE = "clock rate"
    STORE_RESTART = "store restart"
    SLOW_STORE = "slow store"
    WAKEUP_LOST = "wake-up lost"


class Repeat(StrEnum):
    """When the network may carry a request out a second time."""

    ALWAYS = "always"
    UNANSWERED = "only if the reply was lost"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """Probabilities per request, and how often larger things happen (seconds between them)."""

    ttl_s: float = 2.0
    latency_s: float = 0.002
    # Without jitter, requests arrive in the order in which they were sent.
    jitter: bool = True
    fail_before: float = 0.0
    request_lost: float = 0.0
    reply_lost: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    crash: float = 0.0
    pause: float = 0.0
    wakeup_lost: float = 0.0
    disaster_every_s: float = 0.0

    @classmethod
    def drawn(cls, rng: random.Random, *, ttl_s: float) -> FaultPlan:
        """A plan from calm to stormy; each kind of fault is left out of some plans."""
        severity = rng.choice((0.3, 1.0, 1.0, 2.0))
        most = {
            "fail_before": 0.03,
            "request_lost": 0.02,
            "reply_lost": 0.03,
            "delay": 0.05,
            "duplicate": 0.05,
            "crash": 0.004,
            "pause": 0.008,
            "wakeup_lost": 0.3,
        }
        drawn: dict[str, Any] = {
            name: 0.0 if rng.random() < 0.2 else severity * rng.uniform(0.2, 1) * value
            for name, value in most.items()
        }
        return cls(
            ttl_s=ttl_s,
            latency_s=rng.choice((0.0005, 0.002, 0.02)),
            disaster_every_s=rng.uniform(2, 8) * ttl_s / severity,
            **drawn,
        )

    def __str__(self) -> str:
        return " ".join(f"{field.name}={getattr(self, field.name):g}" for field in fields(self))


@dataclass(slots=True)
class _Fate:
    """What will happen to one request, drawn before it leaves."""

    request_s: float
    reply_s: float
    lost: Fault | None = None
    again_after_s: float | None = None
    crash: bool = False
    pause_s: float = 0.0


class Faults:
    """The network of one simulation."""

    def __init__(self, simulation: Simulation, plan: FaultPlan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.counts: Counter[Fault] = Counter()
        self.healed = False
        self._random = simulation.stream("faults")
        self._down_until = -1.0
        self._slow_until = -1.0
        self._restarts = 0

    @property
    def store_down(self) -> bool:
        """Whether the store is restarting now."""
        return self.simulation.now < self._down_until

    def heal(self) -> None:
        """End the chaos: no new fault, everybody resumes, the store is up and fast."""
        self.healed = True
        self._down_until = self._slow_until = -1.0
        for host in self.simulation.hosts.values():
            host.resume(at_once=True)
            self.counts[Fault.WALL_JUMP] += host.clock.jumps
            self.counts[Fault.CLOCK_RATE] += host.rate != 1.0

    async def call(
        self,
        host: SimHost,
        operation: Callable[[], Awaitable[T]],
        *,
        repeat: Repeat = Repeat.ALWAYS,
    ) -> T:
        """Send ``operation`` from ``host`` to the store's side and wait for the reply.

        The store's side goes on whatever becomes of the host. Cancelling the caller takes
        nothing back that was sent.

        Raises:
            StoreUnavailable: It was not applied.
            OutcomeUnknown: It was applied, or not.
            OutliveError: What the operation raised.
        """
        loop = self.simulation.loop
        if not self.healed and self._hit(Fault.FAIL_BEFORE, self.plan.fail_before):
            await asyncio.sleep(self._latency_s())
            raise StoreUnavailable("simulated: the request was refused")
        reply: asyncio.Future[T] = loop.create_future()
        fate = self._fate()
        if repeat is Repeat.NEVER or (repeat is Repeat.UNANSWERED and fate.lost is None):
            fate.again_after_s = None
        serving = self._serve(host, operation, reply, fate)
        loop.create_task(serving, name=f"serve/{host.name}", context=_world())
        return await reply

    async def stall(self, host: SimHost) -> None:
        """Perhaps pause ``host`` right here, as between a check and the use of its answer."""
        if not self.healed and self._random.random() < 10 * self.plan.pause:
            self.pause(host)
        await asyncio.sleep(0)

    def pause(self, host: SimHost) -> None:
        """Stop ``host`` for up to ten times the ttl, more often for about one."""
        self.counts[Fault.HOST_PAUSE] += 1
        host.pause(
            self.plan.ttl_s * self._random.choice((0.2, 1.1, 3.0, 10.0)) * self._random.random()
        )

    def crash(self, host: SimHost) -> None:
        """Kill ``host``."""
        if not host.crashed:
            self.counts[Fault.HOST_CRASH] += 1
            host.crash()

    def loses_wakeup(self) -> bool:
        """Whether this wake-up never arrives."""
        if self.store_down:
            self.counts[Fault.WAKEUP_LOST] += 1
            return True
        return not self.healed and self._hit(Fault.WAKEUP_LOST, self.plan.wakeup_lost)

    def wakeup_delay_s(self) -> float:
        """How long a wake-up travels."""
        return self._latency_s()

    async def disasters(self) -> None:
        """Until healed, let the store restart or crawl, or a host stop, at random times."""
        if self.plan.disaster_every_s <= 0:
            return
        while not self.healed:
            await asyncio.sleep(self._random.expovariate(1 / self.plan.disaster_every_s))
            if self.healed:
                return
            kind = self._random.choice(
                (Fault.STORE_RESTART, Fault.SLOW_STORE, Fault.HOST_PAUSE, Fault.HOST_CRASH)
            )
            host = self._random.choice(list(self.simulation.hosts.values()))
            if kind is Fault.STORE_RESTART:
                self.restart_store()
            elif kind is Fault.SLOW_STORE:
                self.counts[kind] += 1
                self._slow_until = self.simulation.now + self.plan.ttl_s * self._random.uniform(
                    0, 2
                )
            elif kind is Fault.HOST_PAUSE:
                self.pause(host)
            else:
                self.crash(host)

    def restart_store(self) -> None:
        """Refuse requests for a while, and lose the replies and wake-ups under way."""
        self.counts[Fault.STORE_RESTART] += 1
        self._restarts += 1
        self._down_until = self.simulation.now + self.plan.ttl_s * self._random.uniform(0, 1)

    def _hit(self, fault: Fault, probability: float) -> bool:
        if probability <= 0 or self._random.random() >= probability:
            return False
        self.counts[fault] += 1
        return True

    def _latency_s(self) -> float:
        latency_s = self.plan.latency_s
        if self.plan.jitter:
            latency_s *= self._random.uniform(0.2, 2)
        if self.simulation.now < self._slow_until:
            latency_s += self.plan.ttl_s * self._random.uniform(0, 0.3)
        return latency_s

    def _fate(self) -> _Fate:
        fate = _Fate(self._latency_s(), self._latency_s())
        if self.healed:
            return fate
        plan, draw = self.plan, self._random
        if self._hit(Fault.REQUEST_LOST, plan.request_lost):
            fate.lost = Fault.REQUEST_LOST
        elif self._hit(Fault.REPLY_LOST, plan.reply_lost):
            fate.lost = Fault.REPLY_LOST
        if self._hit(Fault.DELAY, plan.delay):
            # Either way may be the slow one; up to the ttl and a little beyond it.
            late_s = plan.ttl_s * draw.uniform(0, 1.2)
            if draw.random() < 0.5:
                fate.request_s += late_s
            else:
                fate.reply_s += late_s
        if self._hit(Fault.DUPLICATE, plan.duplicate):
            fate.again_after_s = draw.choice((0.0, plan.ttl_s * draw.uniform(0, 2)))
        if draw.random() < plan.crash:
            fate.crash = True
        elif draw.random() < plan.pause:
            self.counts[Fault.HOST_PAUSE] += 1
            fate.pause_s = plan.ttl_s * draw.choice((1.0, 10.0)) * draw.random()
        return fate

    async def _serve(
        self,
        host: SimHost,
        operation: Callable[[], Awaitable[T]],
        reply: asyncio.Future[T],
        fate: _Fate,
    ) -> None:
        restarts = self._restarts
        await asyncio.sleep(fate.request_s)
        if self.store_down:
            _answer(reply, error=StoreUnavailable("simulated: the store is restarting"))
            return
        result: Any = None
        error: OutliveError | None = None
        if fate.lost is not Fault.REQUEST_LOST and restarts == self._restarts:
            result, error = await _apply(operation)
            if fate.again_after_s is not None:
                self._repeat(operation, fate.again_after_s)
        if fate.crash:
            self.crash(host)
        if fate.pause_s:
            host.pause(fate.pause_s)
        await asyncio.sleep(fate.reply_s)
        if fate.lost is not None or restarts != self._restarts:
            error = OutcomeUnknown("simulated: the reply was lost")
        _answer(reply, result, error)

    def _repeat(self, operation: Callable[[], Awaitable[Any]], after_s: float) -> None:
        async def again() -> None:
            await asyncio.sleep(after_s)
            await _apply(operation)

        self.simulation.loop.create_task(again(), name="duplicate", context=_world())


async def _apply(operation: Callable[[], Awaitable[Any]]) -> tuple[Any, OutliveError | None]:
    try:
        return await operation(), None
    except OutliveError as error:
        return None, error


def _answer(
    reply: asyncio.Future[Any], result: object = None, error: Exception | None = None
) -> None:
    if reply.done():
        return
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(result)


def _world() -> Context:
    return context_of(None)
