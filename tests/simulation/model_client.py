"""A client of the lease port as the specification states it, in a few lines and nothing more.

Owns the rules of a safe owner: one nonce per acquire, a deadline from before the request, no
revival. It proves stores and the tools of the simulation without the real feature.
"""

from __future__ import annotations

import asyncio
import itertools

from outlive.errors import LeaseLost, OutcomeUnknown, OutliveError
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.options import CLOCK_DRIFT
from outlive.names import HostId, Owner
from outlive.ports.lease_store import LeaseStore
from outlive.testing.simulation import SimHost
from tests.simulation.fleet import WORKERS, Fleet
from tests.simulation.oracles.history import Call
from tests.simulation.oracles.lease_checker import LIVENESS_BOUND_S
from tests.simulation.worker import LOCKS, TTL_S

SAFE_S = TTL_S * (1 - CLOCK_DRIFT) - min(0.5, TTL_S / 10)
ATTEMPTS = 4


class ModelClient:
    """One worker of one host, straight on the port."""

    def __init__(self, fleet: Fleet, host: SimHost, store: LeaseStore, number: int) -> None:
        self.fleet = fleet
        self.host = host
        self.store = store
        self.history = fleet.history
        self.seen = fleet.seen
        self.draw = fleet.simulation.stream(f"model/{host.name}/{number}")
        self.nonces = (f"{host.name}.{number}.{count}" for count in itertools.count())
        self.grant: Grant | None = None
        self.deadline = 0.0

    @property
    def held(self) -> bool:
        return self.grant is not None and self.host.clock.monotonic() < self.deadline

    async def run(self) -> None:
        while not self.fleet.stopping:
            await asyncio.sleep(self.draw.uniform(0, TTL_S / 2))
            if await self.acquire(self.draw.choice(LOCKS)):
                await self._use()
                await self._release()

    async def acquire(self, key: str) -> bool:
        request = AcquireRequest(
            key=key,
            owner=Owner(f"{self.host.machine}/{next(self.nonces)}"),
            ttl_us=round(TTL_S * 1e6),
            metadata="{}",
            host=HostId(self.host.name),
        )
        call = self._call("acquire", key, request.owner)
        for _ in range(ATTEMPTS):
            asked_at = self.host.clock.monotonic()
            try:
                result = await self.store.acquire(request)
            except OutcomeUnknown:
                continue
            except OutliveError:
                break
            if not isinstance(result, Grant):
                call.finish(ok=False)
                return False
            self.grant, self.deadline = result, asked_at + SAFE_S
            self.seen["takeover"] += result.previous_owner is not None
            call.finish(
                ok=True, token=result.token, slot=result.slot, deadline=self._true(self.deadline)
            )
            return self.held
        call.finish(ok=None)
        return False

    async def _use(self) -> None:
        for _ in range(self.draw.randrange(1, 10)):
            if not self.held:
                self.seen["expired by its own clock"] += 1
                return
            act = self.draw.random()
            if act < 0.4:
                await self._write()
            elif act < 0.7:
                await self._renew()
            else:
                await asyncio.sleep(self.draw.uniform(0, TTL_S / 3))

    async def _write(self) -> None:
        assert self.grant is not None
        token = self.grant.token
        call = self._call("write", self.grant.key, self.grant.owner)
        started = self.fleet.simulation.now
        resource = self.history.resource(self.grant.key)
        await self.fleet.faults.stall(self.host)

        async def apply() -> bool:
            return resource.apply(self.host.name, token, started)

        try:
            call.finish(ok=await self.fleet.faults.call(self.host, apply))
        except OutliveError:
            call.finish(ok=None)

    async def _renew(self) -> None:
        assert self.grant is not None
        call = self._call("renew", self.grant.key, self.grant.owner)
        asked_at = self.host.clock.monotonic()
        try:
            renewed = await self.store.renew(self.grant, self.grant.ttl_us)
        except LeaseLost:
            call.finish(ok=False)
            self.deadline = 0.0
        except OutliveError:
            call.finish(ok=None)
        else:
            # A reply after the deadline revives nothing; it is as good as none.
            if self.held:
                self.grant, self.deadline = renewed, asked_at + SAFE_S
                call.finish(ok=True, deadline=self._true(self.deadline))
            else:
                call.finish(ok=None)

    async def _release(self) -> None:
        assert self.grant is not None
        grant, self.grant = self.grant, None
        call = self._call("release", grant.key, grant.owner, token=grant.token)
        try:
            await self.store.release(grant)
        except OutliveError:
            call.finish(ok=None)
        else:
            call.finish(ok=True)

    def _true(self, deadline: float) -> float:
        return self.host.true_at(deadline)

    def _call(self, op: str, key: str, owner: str, token: int | None = None) -> Call:
        if token is None and self.grant is not None:
            token = self.grant.token
        return self.history.start(
            self.host.name, op, key, ttl_s=TTL_S, grant=owner, rate=self.host.rate, token=token
        )


class StoreFleet(Fleet):
    """The same machines and faults, with model clients instead of the feature."""

    async def host_main(self, host: SimHost) -> None:
        store = (await self._store.open_for(host, HostId(host.name))).leases
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(ModelClient(self, host, store, number).run())

    async def _probe_all(self, host: SimHost) -> None:
        store = (await self._store.open_for(host, HostId(host.name))).leases
        await asyncio.sleep(TTL_S + LIVENESS_BOUND_S + 1)
        for number, key in enumerate(LOCKS):
            self.seen["probe"] += await ModelClient(self, host, store, number).acquire(key)
