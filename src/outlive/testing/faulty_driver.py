"""A driver behind a faulty network, for one simulated host.

Owns the wrapping of ports and the record of every request. Must never answer by itself: what the
store decided is passed on, late, twice or not at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeVar

from outlive.errors import LeaseLost, OutcomeUnknown, OutliveError
from outlive.model.lease import AcquireRequest, Grant, Held, LeaseRecord, Tenancy
from outlive.model.options import CLOCK_DRIFT
from outlive.model.session import HostSession
from outlive.names import HostId, Owner, WaiterId
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import Driver, Finding
from outlive.ports.host_store import HostStore
from outlive.ports.lease_store import LeaseStore
from outlive.ports.wakeups import Listener, Wakeup, Wakeups
from outlive.testing.faults import Faults
from outlive.testing.faulty_instances import FaultyInstanceStore
from outlive.testing.faulty_jobs import FaultyJobStore
from outlive.testing.faulty_port import FaultyPort
from outlive.testing.faulty_schedules import FaultyScheduleStore
from outlive.testing.history import Call, History, Served
from outlive.testing.instance_history import InstanceServed
from outlive.testing.job_history import JobServed
from outlive.testing.simulation import SimHost

T = TypeVar("T")


class FaultyLeaseStore:
    """A lease store as a host sees it through the network; each request is recorded."""

    def __init__(
        self, store: LeaseStore, faults: Faults, host: SimHost, history: History | None = None
    ) -> None:
        self._store = store
        self._faults = faults
        self._host = host
        self._history = history or History(faults.simulation.seed, lambda: faults.simulation.now)

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """See the port."""
        op = "store.resume" if request.resume else "store.acquire"
        call = self._start(op, request.key, request.owner, request.ttl_us, request.limit)

        async def apply() -> Grant | Held:
            result = await self._store.acquire(request)
            granted = result if isinstance(result, Grant) else None
            self._serve(
                "acquire",
                request.key,
                request.owner,
                ok=granted is not None,
                token=granted.token if granted else 0,
                slot=granted.slot if granted else 0,
                ttl_s=request.ttl_us / 1e6,
                limit=request.limit,
                ahead=result.ahead if isinstance(result, Held) else 0,
                resume=request.resume,
            )
            return result

        result = await self._send(call, apply)
        if isinstance(result, Grant):
            call.finish(ok=True, token=result.token, slot=result.slot)
        else:
            call.finish(ok=False)
        return result

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """See the port."""
        call = self._start_owned("store.renew", grant, ttl_us)

        async def apply() -> Grant:
            with self._serving("renew", grant, ttl_us):
                return await self._store.renew(grant, ttl_us, state=state)

        result = await self._send(call, apply)
        call.finish(ok=True)
        return result

    async def release(self, grant: Grant) -> None:
        """See the port."""
        call = self._start_owned("store.release", grant, grant.ttl_us)

        async def apply() -> None:
            with self._serving("release", grant, grant.ttl_us):
                await self._store.release(grant)

        await self._send(call, apply)
        call.finish(ok=True)

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """See the port."""
        await self._faults.call(self._host, lambda: self._store.leave(key, waiter, owner))

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """See the port."""

        async def apply() -> Sequence[LeaseRecord]:
            # Recorded where it happens: a break ends whoever owns the key by then, and late or
            # repeated ones end somebody else.
            records = await self._store.break_lease(key, reason=reason)
            for record in records:
                # Expired grants that nobody took are not ended by it, so only these are told.
                self._start("store.break", key, "", 0, 1).finish(ok=True, slot=record.slot)
            self._serve("break", key, "", ok=True)
            return records

        return await self._faults.call(self._host, apply)

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """See the port."""
        return await self._faults.call(self._host, lambda: self._store.get(key))

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """See the port."""
        return await self._faults.call(
            self._host,
            lambda: self._store.list(
                prefix=prefix, owner=owner, active=active, after=after, limit=limit
            ),
        )

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """See the port."""
        return await self._faults.call(self._host, lambda: self._store.history(key, limit=limit))

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """See the port."""
        return await self._faults.call(self._host, lambda: self._store.raw(key))

    async def guard(self, grant: Grant, tx: object) -> None:
        """See the port. The transaction is the caller's own, so no fault is added here."""
        await self._store.guard(grant, tx)

    def _start(self, op: str, key: str, owner: str, ttl_us: int, limit: int) -> Call:
        return self._history.start(
            self._host.name,
            op,
            key,
            ttl_s=ttl_us / 1e6,
            capacity=limit,
            grant=owner,
            rate=self._host.rate,
        )

    def _start_owned(self, op: str, grant: Grant, ttl_us: int) -> Call:
        call = self._start(op, grant.key, grant.owner, ttl_us, 1)
        call.token = grant.token
        call.slot = grant.slot
        return call

    def _serve(self, op: str, key: str, grant: str, *, ok: bool, **fields: Any) -> None:
        at = self._faults.simulation.now
        self._history.serve(Served(at=at, op=op, key=key, grant=grant, ok=ok, **fields))

    @contextmanager
    def _serving(self, op: str, grant: Grant, ttl_us: int) -> Generator[None]:
        about = {"token": grant.token, "slot": grant.slot, "ttl_s": ttl_us / 1e6}
        try:
            yield
        except LeaseLost:
            self._serve(op, grant.key, grant.owner, ok=False, **about)
            raise
        self._serve(op, grant.key, grant.owner, ok=True, **about)

    async def _send(self, call: Call, operation: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._faults.call(self._host, operation)
        except OutcomeUnknown:
            call.finish(ok=None)
            raise
        except OutliveError:
            call.finish(ok=False)
            raise
        # A cancelled or killed caller never learns the outcome: the call stays open.


class FaultyHostStore(FaultyPort):
    """A host store as a host sees it through the network."""

    def __init__(
        self, store: HostStore, faults: Faults, host: SimHost, history: History | None = None
    ) -> None:
        super().__init__(faults, host)
        self._store = store
        self._history = history

    async def open(self, session: HostSession) -> None:
        """See the port."""
        await self._call(lambda: self._store.open(session))

    async def renew(self, host: HostId, ttl_us: int) -> None:
        """See the port."""
        await self._call(lambda: self._store.renew(host, ttl_us))

    async def close(self, host: HostId) -> None:
        """See the port."""

        async def apply() -> None:
            await self._store.close(host)
            self._ended(host)

        await self._call(apply)

    async def reap(self, *, limit: int) -> Sequence[HostSession]:
        """See the port."""

        async def apply() -> Sequence[HostSession]:
            reaped = await self._store.reap(limit=limit)
            for session in reaped:
                self._ended(session.id)
            return reaped

        return await self._call(apply)

    async def get(self, host: HostId) -> HostSession | None:
        """See the port."""
        return await self._call(lambda: self._store.get(host))

    async def list(self, *, limit: int) -> Sequence[HostSession]:
        """See the port."""
        return await self._call(lambda: self._store.list(limit=limit))

    def _ended(self, host: HostId) -> None:
        # What is claimed hangs on sessions: whose has ended is part of its story.
        if self._history is not None:
            at, op = self._now, "session.end"
            jobs, instances = self._history.jobs, self._history.instances
            jobs.served.append(JobServed(at=at, op=op, job="", session=host))
            instances.served.append(InstanceServed(at=at, op=op, instance="", session=host))


class FaultyWakeups:
    """Wake-ups that arrive late or never, on the host that asked for them."""

    def __init__(self, wakeups: Wakeups, faults: Faults, host: SimHost) -> None:
        self._wakeups = wakeups
        self._faults = faults
        self._host = host

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """See the port."""
        loop = self._faults.simulation.loop
        context = copy_context()

        def deliver(wakeup: Wakeup) -> None:
            if not self._faults.loses_wakeup():
                loop.call_later(self._faults.wakeup_delay_s(), listener, wakeup, context=context)

        return self._wakeups.subscribe(deliver)

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """See the port."""
        await self._wakeups.ring(wakeup, host=host)

    @property
    def deaf(self) -> bool:
        """What the driver itself knows; lost wake-ups are not known to be lost."""
        return self._wakeups.deaf


class FaultyDriver:
    """An open driver behind the network of one simulation.

    Its capabilities admit the drift of clocks, because simulated hosts do not share the store's.
    """

    def __init__(
        self, driver: Driver, faults: Faults, host: SimHost, history: History | None = None
    ) -> None:
        self._driver = driver
        simulation = faults.simulation
        history = history or History(simulation.seed, lambda: simulation.now)
        self._leases = FaultyLeaseStore(driver.leases, faults, host, history)
        hosts, jobs = driver.hosts, driver.jobs
        self._hosts = None
        if hosts is not None:
            self._hosts = FaultyHostStore(hosts, faults, host, history)
        self._jobs = None if jobs is None else FaultyJobStore(jobs, faults, host, history.jobs)
        instances = driver.instances
        self._instances = None
        if instances is not None:
            self._instances = FaultyInstanceStore(instances, faults, host, history.instances)
        schedules = driver.schedules
        self._schedules = (
            None if schedules is None else FaultyScheduleStore(schedules, faults, host)
        )
        self._wakeups = FaultyWakeups(driver.wakeups, faults, host)

    @property
    def capabilities(self) -> Capabilities:
        """The driver's, with the drift that a simulation has."""
        return replace(self._driver.capabilities, drift=CLOCK_DRIFT, across="network")

    @property
    def leases(self) -> FaultyLeaseStore:
        """Leases through the network."""
        return self._leases

    @property
    def hosts(self) -> FaultyHostStore | None:
        """Sessions through the network."""
        return self._hosts

    @property
    def jobs(self) -> FaultyJobStore | None:
        """Jobs through the network."""
        return self._jobs

    @property
    def instances(self) -> FaultyInstanceStore | None:
        """Instances through the network."""
        return self._instances

    @property
    def schedules(self) -> FaultyScheduleStore | None:
        """Schedules through the network."""
        return self._schedules

    @property
    def tokens(self) -> None:
        """No bearer tokens: a simulation serves no HTTP."""
        return

    @property
    def wakeups(self) -> FaultyWakeups:
        """Hints through the network."""
        return self._wakeups

    async def check(self) -> Sequence[Finding]:
        """The driver's own findings."""
        return await self._driver.check()

    async def close(self) -> None:
        """Close the driver; requests under way find it closed."""
        await self._driver.close()
