"""One worker of a simulated host: a user of leases in random moods, who notes what it sees.

Owns the workload and its record. Must never look into the store: it sees what a user sees.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Protocol

from outlive.errors import AcquireTimeout, LeaseLost, OutcomeUnknown, OutliveError
from outlive.host import Host
from outlive.leases.events import Lost
from outlive.leases.lease import Lease
from outlive.testing.faults import Faults
from outlive.testing.simulation import SimHost
from tests.simulation.oracles.history import Call, History

TTL_S = 2.0
LOCKS = ("report", "ledger")
SEMAPHORE = "gpu"
SLOTS = 2


class Team(Protocol):
    """What the workers of one run share."""

    faults: Faults
    history: History
    seen: Counter[str]
    tokens: dict[str, int]
    led_until: dict[tuple[str, int], float]
    lost: set[str]
    stopping: bool
    fenced: bool
    several: bool

    @property
    def now(self) -> float:
        """True time."""
        ...

    def stream(self, name: str) -> random.Random:
        """A random stream of its own."""
        ...


class Worker:
    """One task of one host: acquires, believes, writes, renews, releases, in random order."""

    def __init__(self, fleet: Team, machine: SimHost, host: Host, proc: str, number: int) -> None:
        self.fleet = fleet
        self.host = machine
        self.proc = proc
        self.leases = host.leases
        self.history = fleet.history
        self.seen = fleet.seen
        self.draw = fleet.stream(f"worker/{proc}/{number}")

    async def run(self) -> None:
        acts = (
            # Often: an attempt that does not wait is what can end without knowing.
            self._try,
            self._try,
            self._try,
            self._wait,
            self._wait,
            self._hold,
            self._hold,
            self._slot,
            self._cancel,
            self._lead,
            self._hold_all if self.fleet.several else self._hold,
        )
        while not self.fleet.stopping:
            await asyncio.sleep(self.draw.uniform(0, TTL_S / 2))
            if self.draw.random() < 0.03:
                await self._break()
            await self.draw.choice(acts)()

    async def _try(self) -> None:
        key = self.draw.choice(LOCKS)
        call = self._asking(key, 1)
        try:
            lease = await self.leases.try_acquire(key, auto_renew=self.draw.random() < 0.7)
        except OutliveError as error:
            self._failed(call, error)
            return
        self._answered(call, lease)
        if lease is not None:
            await self._use_and_release(lease)

    async def _wait(self) -> None:
        timeout = self.draw.choice((0.0, self.draw.uniform(0, 2 * TTL_S)))
        renewing = self.draw.random() < 0.7
        lease = await self.wait_for(
            self.draw.choice(LOCKS), 1, timeout=timeout, auto_renew=renewing
        )
        if lease is not None:
            await self._use_and_release(lease)

    async def wait_for(
        self, key: str, limit: int, *, timeout: float, **options: object
    ) -> Lease | None:
        call = self._asking(key, limit)
        try:
            lease = await self.leases.acquire(key, timeout=timeout, limit=limit, **options)
        except OutliveError as error:
            self._failed(call, error)
            return None
        self._answered(call, lease)
        return lease

    async def _cancel(self) -> None:
        """Give up waiting by cancellation, which may race the grant."""
        key = self.draw.choice(LOCKS)
        task = asyncio.create_task(self.wait_for(key, 1, timeout=3 * TTL_S))
        try:
            await asyncio.wait((task,), timeout=self.draw.uniform(0, TTL_S / 2))
        finally:
            self.seen["cancelled"] += not task.done()
            await _end(task)
        lease = None if task.cancelled() else task.result()
        if lease is not None:
            await self._use_and_release(lease)

    async def _hold(self) -> None:
        key = self.draw.choice(LOCKS)
        await self._block(key, 1)

    async def _slot(self) -> None:
        await self._block(SEMAPHORE, SLOTS)

    async def _block(self, key: str, limit: int) -> None:
        call = self._asking(key, limit)
        block = self.leases.hold(key, limit=limit, timeout=self.draw.uniform(0, 2 * TTL_S))
        releasing: Call | None = None
        try:
            async with block as lease:
                self._answered(call, lease)
                # To be inside the block is to believe: the block is the protected call.
                self._about("believe", lease).finish(ok=True)
                try:
                    await self._use(lease)
                finally:
                    releasing = self._about("release", lease)
        except LeaseLost:
            self.seen["hold lost"] += 1
        except OutliveError as error:
            if releasing is None:
                self._failed(call, error)
        if releasing is not None:
            releasing.finish(ok=None)

    async def _hold_all(self) -> None:
        calls = [self._asking(key, 1) for key in sorted(LOCKS)]
        releasing: list[Call] = []
        try:
            async with self.leases.hold_all(LOCKS, timeout=self.draw.uniform(0, 2 * TTL_S)) as both:
                self.seen["hold all"] += 1
                for call, lease in zip(calls, both, strict=True):
                    self._answered(call, lease)
                try:
                    await self._use(self.draw.choice(both))
                finally:
                    releasing += [self._about("release", lease) for lease in both]
        except LeaseLost:
            self.seen["hold lost"] += 1
        except OutliveError as error:
            for call in calls:
                if not call.ok:
                    self._failed(call, error)
        for call in releasing:
            call.finish(ok=None)

    async def _lead(self) -> None:
        key = self.draw.choice(LOCKS)
        asked = [self._asking(key, 1)]

        async def body(lease: Lease) -> None:
            self.seen["led"] += 1
            self._answered(asked.pop(), lease)
            self._about("believe", lease).finish(ok=True)
            try:
                await self._use(lease)
            finally:
                self._about("release", lease).finish(ok=None)
                # Even a slow end of the function comes before the key is given to others.
                await asyncio.sleep(self.draw.uniform(0, 0.1))
                mine = (lease.owner, self._token_of(lease))
                self.fleet.led_until[mine] = self.fleet.now
                asked.append(self._asking(key, 1))

        task = asyncio.create_task(self.leases.lead(key, body))
        try:
            await asyncio.wait((task,), timeout=self.draw.uniform(0, 2 * TTL_S))
        finally:
            await _end(task)

    async def _use_and_release(self, lease: Lease) -> None:
        try:
            await self._use(lease)
        except LeaseLost as error:
            self.seen[f"lost {error.reason}"] += 1
        if self.draw.random() < 0.1:
            # Some programs forget to release; the handle is dropped and its ttl ends it.
            self.seen["dropped"] += 1
            return
        call = self._about("release", lease)
        try:
            await lease.release()
        except OutliveError:
            call.finish(ok=None)
        else:
            call.finish(ok=None)

    async def _use(self, lease: Lease) -> None:
        for _ in range(self.draw.randrange(1, 12)):
            if self.fleet.stopping or not self._believe(lease):
                return
            act = self.draw.random()
            if act < 0.35:
                await self._write(lease)
            elif act < 0.5:
                await self._renew(lease)
            else:
                await asyncio.sleep(self.draw.uniform(0, TTL_S / 4))

    def _believe(self, lease: Lease) -> bool:
        left_s = lease.remaining_s
        if left_s <= 0:
            return False
        call = self._about("believe", lease)
        call.finish(ok=True, deadline=self.fleet.now + left_s / self.host.rate)
        return True

    async def _write(self, lease: Lease) -> None:
        token = lease.token
        call = self._about("write", lease)
        started = self.fleet.now
        resource = self.history.resource(f"{lease.key}/{lease.slot}", fenced=self.fleet.fenced)
        await self.fleet.faults.stall(self.host)

        async def apply() -> bool:
            return resource.apply(self.proc, token, started)

        try:
            call.finish(ok=await self.fleet.faults.call(self.host, apply))
        except OutliveError:
            call.finish(ok=None)

    async def _renew(self, lease: Lease) -> None:
        call = self._about("renew", lease)
        try:
            await lease.renew()
        except LeaseLost:
            call.finish(ok=False)
            raise
        except OutliveError:
            call.finish(ok=None)
        else:
            call.finish(ok=True)

    async def _break(self) -> None:
        try:
            broken = await self.leases.break_lease(self.draw.choice(LOCKS), reason="simulated")
        except OutliveError:
            self.seen["break failed"] += 1
        else:
            self.seen["break"] += len(broken)

    def _asking(self, key: str, limit: int) -> Call:
        rate = self.host.rate
        return self.history.start(self.proc, "acquire", key, ttl_s=TTL_S, capacity=limit, rate=rate)

    def _answered(self, call: Call, lease: Lease | None) -> None:
        if lease is None:
            call.finish(ok=False)
            return
        call.grant = lease.owner
        call.finish(ok=True, token=self._token_of(lease), slot=lease.slot)
        if lease.previous_owner is not None:
            self.seen["takeover"] += 1
        history, proc, owner = self.history, self.proc, lease.owner

        def lost(event: Lost) -> None:
            self.seen[f"lost event {event.reason}"] += 1
            self.fleet.lost.add(owner)
            history.note(proc, "lost", event.key, grant=owner, token=event.token)

        lease.on(LeaseLost, lost)

    def _token_of(self, lease: Lease) -> int:
        """The token, even of a lease that was lost before its handle came: it was granted."""
        tokens = self.fleet.tokens
        if lease.owner not in tokens:
            for served in reversed(self.history.served):
                if served.grant == lease.owner and served.ok and served.op == "acquire":
                    tokens[lease.owner] = served.token
                    break
        return tokens[lease.owner]

    def _failed(self, call: Call, error: OutliveError) -> None:
        unknown = isinstance(error, OutcomeUnknown)
        self.seen["acquire unknown"] += unknown
        self.seen["acquire timeout"] += isinstance(error, AcquireTimeout)
        call.finish(ok=None if unknown else False)

    def _about(self, op: str, lease: Lease) -> Call:
        return self.history.start(
            self.proc,
            op,
            lease.key,
            grant=lease.owner,
            ttl_s=TTL_S,
            rate=self.host.rate,
            token=self._token_of(lease),
            slot=lease.slot,
        )


async def _end(task: asyncio.Task[object]) -> None:
    """Cancel ``task`` and wait for its end, whatever happens to the one who waits."""
    task.cancel()
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
