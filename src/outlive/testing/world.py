"""A calm world for tests of users: real hosts on one store in memory, and time that skips.

Owns the hosts of one test, on one virtual loop. When nobody has anything to do, time moves to the
next timer: a day in which flows only sleep passes in about a second.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from outlive.app import App
from outlive.drivers.memory import MemoryFactory
from outlive.errors import UsageError
from outlive.host import Host
from outlive.model.flow_options import FlowOptions
from outlive.model.options import Duration, LeaseOptions, seconds
from outlive.names import HostId
from outlive.testing.fault_proxy import Interceptor
from outlive.testing.faults import FaultPlan, Faults
from outlive.testing.loop import LoopHost, StepLimit, current_host
from outlive.testing.simulated_runtime import SimulatedStore
from outlive.testing.simulation import SimHost, Simulation
from outlive.testing.standstill import NOBODY_SERVES, Standstill

T = TypeVar("T")

# The default of real hosts: what a host that crashed had is taken over as late as users see it.
SESSION_TTL_S = 10.0

# Sessions of this world are ended by the world itself, so that nobody has to renew them through
# months of sleep; nor does anybody look around where no ring is lost and no machine is suspended.
_KEPT_S = 365 * 86_400.0
_TICK_S = 86_400.0
_PATIENCE = 720.0
_FLOWS = FlowOptions(poll=3600.0)

# One look takes back so many; a test has fewer.
_RECLAIM_MAX = 1000

# A store in memory answers at once; one in the next rack takes about so long.
_LATENCY_S = 0.001

# Longer than most stories wait before they send something to a flow, and some 20 s of real time.
LIMIT_S = 30 * 86_400.0

_names = itertools.count()


class World:
    """One store and any number of hosts, in one thread.

    ``run`` runs a story; inside of it ``connect`` gives a connected host for the story's own code,
    and ``serve`` starts others, which run an app until they are crashed or the story ends.

    Args:
        seed: The order in which hosts take their turns; one seed is one run.
        session_ttl_s: How long after its crash a host's flows and jobs are taken over.
        interceptor: Sees each call of a port that a host of this world makes.
        limit: The story has failed if nothing happened to any flow or job for so long, by the
            world's own time, though some are not done; it does not count while a host is at one,
            one has a time at which it goes on, a schedule has a tick to come, or a host runs an
            app with leaders or ``every``, which may do something at any time.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        session_ttl_s: float = SESSION_TTL_S,
        interceptor: Interceptor | None = None,
        limit: Duration = LIMIT_S,
    ) -> None:
        self._limit_s = seconds(limit, "limit", zero=False)
        self.simulation = Simulation(seed, drift_max=0.0, wall_jumps=False)
        plan = FaultPlan(ttl_s=session_ttl_s, latency_s=_LATENCY_S, jitter=False)
        self.faults = Faults(self.simulation, plan)
        self._session_ttl_s = session_ttl_s
        url = f"memory://world-{next(_names)}"
        self.store = SimulatedStore(MemoryFactory(), url, self.faults, interceptor)
        self._serving: dict[str, tuple[SimHost, asyncio.Task[None]]] = {}
        self._burials: list[asyncio.Task[None]] = []
        # What hosts could run, also those that have crashed.
        self._hosted: list[tuple[LoopHost, App]] = []

    @property
    def now(self) -> datetime:
        """The store's wall clock."""
        return self.simulation.clock.now()

    def run(self, story: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        """Run ``story`` on a host of its own until it returns, and give what it returned.

        Raises:
            UsageError: It was called inside a running event loop, or with no function.
            Deadlock: Everybody waits for something that will never happen; it says what. At once
                where nobody has anything to do any more, else after ``limit``.
            Unhandled: A task failed and nobody looked.
            StepLimit: The story does not end: somebody waits, and looks again and again, for what
                never comes; a note says what may be missing.
        """
        if asyncio.iscoroutine(story):
            story.close()
        if not callable(story):
            raise UsageError(
                "World.run() takes the function of a story, and calls it with the world: give "
                f"`story`, not {'`story(world)`' if asyncio.iscoroutine(story) else repr(story)}"
            )
        try:
            return self.simulation.run(lambda _: self._main(story))
        except StepLimit as error:
            error.add_note(
                "perhaps a task waits for a message that is never sent: give result() a timeout"
                if self._hosted
                else NOBODY_SERVES
            )
            raise

    async def _main(self, story: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        # A memory store lives as long as somebody has it open.
        keep = await self.store.open(HostId("world"))
        watch = Standstill(keep, self.simulation, self._hosted, self._limit_s).watch()
        watching = self.simulation.loop.create_task(watch, name="watch")
        telling = self.simulation.start_host("story").spawn(story(self), name="story")
        try:
            await asyncio.wait((telling, watching), return_when=asyncio.FIRST_COMPLETED)
            return telling.result() if telling.done() else watching.result()
        finally:
            watching.cancel()
            for name in list(self._serving):
                self.crash(name)
            await keep.close()

    async def connect(self, app: App | None = None) -> Host:
        """A connected host for the code that asks; close it, or use it as ``async with``.

        Raises:
            RuntimeError: It is called outside of a story.
        """
        asking = current_host()
        host = next((each for each in self.simulation.hosts.values() if each is asking), None)
        if host is None:
            raise RuntimeError("connect() is for the code of a story: call it inside world.run()")
        return await self.connect_on(host, app)

    async def connect_on(self, host: SimHost, app: App | None = None) -> Host:
        """The same for the code of another host, which must be what calls it."""
        if app is not None:
            self._hosted.append((host, app))
        return await self.store.connect(
            host,
            LeaseOptions(),
            app=app,
            session_ttl_s=_KEPT_S,
            flows=_FLOWS,
            tick_s=_TICK_S,
            patience=_PATIENCE,
        )

    async def serve(self, app: App, name: str = "host") -> None:
        """Start another host, which runs ``app``; returns when it runs."""
        host = self.simulation.start_host(name)
        ready: asyncio.Future[None] = self.simulation.loop.create_future()
        task = host.spawn(self._serve(host, app, ready), name="serve")
        self._serving[name] = (host, task)
        await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()

    async def _serve(self, host: SimHost, app: App, ready: asyncio.Future[None]) -> None:
        async with await self.connect_on(host, app) as connected:
            running = asyncio.ensure_future(connected.run())
            # One turn, in which it begins.
            await asyncio.sleep(0)
            ready.set_result(None)
            await running

    def crash(self, name: str = "host") -> None:
        """Kill a host, as SIGKILL does: nothing of it ever runs again, not even ``finally``."""
        if name not in self._serving:
            serving = ", ".join(map(repr, self._serving)) or "none"
            raise UsageError(f"no host {name!r} serves in this world; there is {serving}")
        host, _ = self._serving.pop(name)
        host.crash()
        self._burials.append(asyncio.ensure_future(self.bury(host)))

    async def bury(self, host: SimHost) -> None:
        """When a dead host's session would have run out, end it, as a peer does that reaps it."""
        await asyncio.sleep(self._session_ttl_s)
        peer = self.simulation.start_host("peer")
        driver = await self.store.open_for(peer, HostId("peer"))
        if driver.hosts is not None and host in self.store.sessions:
            await driver.hosts.close(self.store.sessions[host])
        for kept in (driver.jobs, driver.instances):
            if kept is not None:
                await kept.reclaim(limit=_RECLAIM_MAX)
        await driver.close()
