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

from holdfast.app import App
from holdfast.drivers.memory import MemoryFactory
from holdfast.host import Holdfast
from holdfast.model.flow_options import FlowOptions
from holdfast.model.options import LeaseOptions
from holdfast.names import HostId
from holdfast.testing.crashing import CrashingStore, CrashPoint
from holdfast.testing.faults import FaultPlan, Faults
from holdfast.testing.history import History
from holdfast.testing.loop import StepLimit
from holdfast.testing.loop_host import current_host
from holdfast.testing.simulation import SimHost, Simulation

T = TypeVar("T")

# The default of real hosts: what a host that crashed had is taken over as late as users see it.
SESSION_TTL_S = 10.0

# Sessions of this world are ended by the world itself, so that nobody has to renew them through
# months of sleep; nor does anybody look around where no ring is lost and no machine is suspended.
_KEPT_S = 365 * 86_400.0
_TICK_S = 86_400.0
_FLOWS = FlowOptions(poll=3600.0)

# One look takes back so many; a test has fewer.
_RECLAIM_MAX = 1000

# A store in memory answers at once; one in the next rack takes about so long.
_LATENCY_S = 0.001

_names = itertools.count()


class World:
    """One store and any number of hosts, in one thread.

    ``run`` runs a story; inside of it ``connect`` gives a connected host for the story's own code,
    and ``serve`` starts others, which run an app until they are crashed or the story ends.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        session_ttl_s: float = SESSION_TTL_S,
        crash: CrashPoint | None = None,
    ) -> None:
        self.simulation = Simulation(seed, drift_max=0.0, wall_jumps=False)
        plan = FaultPlan(ttl_s=session_ttl_s, latency_s=_LATENCY_S, jitter=False)
        self.faults = Faults(self.simulation, plan)
        self.history = History(seed, lambda: self.simulation.now)
        self._session_ttl_s = session_ttl_s
        url = f"memory://world-{next(_names)}"
        self.store = CrashingStore(
            MemoryFactory(), url, self.faults, self.history, crash or CrashPoint()
        )
        self._serving: dict[str, tuple[SimHost, asyncio.Task[None]]] = {}
        self._burials: list[asyncio.Task[None]] = []
        # Whether any host could run flows and jobs.
        self._has_app = False

    @property
    def now(self) -> datetime:
        """The store's wall clock."""
        return self.simulation.clock.now()

    def run(self, story: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        """Run ``story`` on a host of its own until it returns, and give what it returned.

        Raises:
            UsageError: It was called inside a running event loop.
            Deadlock: Everybody waits for something that will never happen.
            Unhandled: A task failed and nobody looked.
            StepLimit: The story does not end: somebody waits, and looks again and again, for what
                never comes; a note says what may be missing.
        """
        try:
            return self.simulation.run(lambda _: self._main(story))
        except StepLimit as error:
            error.add_note(
                "perhaps something waits for what nobody sends: give result() a timeout"
                if self._has_app
                else "no host has an app, so that nobody runs flows and jobs: let the story begin "
                "with `await world.serve(app)`"
            )
            raise

    async def _main(self, story: Callable[[World], Coroutine[Any, Any, T]]) -> T:
        # A memory store lives as long as somebody has it open.
        keep = await self.store.open(HostId("world"))
        try:
            return await self.simulation.start_host("story").spawn(story(self), name="story")
        finally:
            for name in list(self._serving):
                self.crash(name)
            await keep.close()

    async def connect(self, app: App | None = None) -> Holdfast:
        """A connected host for the code that asks; close it, or use it as ``async with``.

        Raises:
            RuntimeError: It is called outside of a story.
        """
        asking = current_host()
        host = next((each for each in self.simulation.hosts.values() if each is asking), None)
        if host is None:
            raise RuntimeError("connect() is for the code of a story: call it inside world.run()")
        return await self.connect_on(host, app)

    async def connect_on(self, host: SimHost, app: App | None = None) -> Holdfast:
        """The same for the code of another host, which must be what calls it."""
        self._has_app = self._has_app or app is not None
        return await self.store.connect(
            host, LeaseOptions(), app=app, session_ttl_s=_KEPT_S, flows=_FLOWS, tick_s=_TICK_S
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
