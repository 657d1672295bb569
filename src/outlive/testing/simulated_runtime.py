"""The real features on a simulated host: its clock, its randomness, its keeper as a task.

Owns the composition of one simulated host. Must never change a feature: what runs here is the
code that users run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from outlive.app import App
from outlive.errors import StoreError
from outlive.host import Host
from outlive.host_plan import HostPlan
from outlive.model.flow_options import FlowOptions
from outlive.model.location import parse_url
from outlive.model.options import LeaseOptions
from outlive.names import HostId
from outlive.ports.driver import Driver, DriverContext, DriverFactory
from outlive.runtime.runtime import TICK_S, Background, Runtime
from outlive.testing.fault_proxy import FaultyDriver, Interceptor
from outlive.testing.faults import Faults
from outlive.testing.simulation import SimHost

T = TypeVar("T")

# A session of a simulated host; short beside the default, so that simulations see it expire.
_SESSION_TTL_S = 4.0


class _KeeperTask:
    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task = task

    async def join(self) -> None:
        await self._task


class _AtOnce(Executor):
    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done


class SimulatedRuntime(Runtime):
    """The world of one connection of a simulated host.

    ``number`` tells the connections of a host apart, so that no two draw the same ids.
    """

    def __init__(self, host: SimHost, faults: Faults, *, number: int = 0) -> None:
        stream = faults.simulation.stream(f"runtime/{host.name}/{number}")
        super().__init__(clock=host.clock, rng=stream)
        self._host = host

    def alive(self) -> bool:
        """Not once the host has crashed or the simulation is over: what is left is only garbage.

        A crash was asked for; what its victims would say when they are collected is no news.
        """
        return not self._host.gone.done() and not self._host.gone.get_loop().is_closed()

    def pid(self) -> int:
        """One number per incarnation; simulated processes do not fork."""
        return self._host.incarnation

    def thread_id(self) -> int:
        """There is one thread."""
        return 0

    def stack_of(self, thread_id: int) -> str:
        """Nothing to show: the simulated loop is never blocked inside a callback."""
        return f"(simulated thread {thread_id})"

    def start_pool(self, size: int, *, name: str) -> Executor:
        """Run what blocks at once: in a simulation nothing does, and there are no threads."""
        del size, name
        return _AtOnce()

    def start_keeper(self, main: Callable[[], Coroutine[Any, Any, None]]) -> Background:
        """Run the keeper as a task of the same host, so that it dies and stops with it."""
        return _KeeperTask(self._host.spawn(main(), name="keeper"))


class SimulatedStore:
    """One store that all hosts of a simulation reach through the faulty network.

    The store runs on true time; every driver opened on it is wrapped for its host. ``interceptor``
    sees the calls of all hosts.
    """

    def __init__(
        self,
        factory: DriverFactory,
        url: str,
        faults: Faults,
        interceptor: Interceptor | None = None,
    ) -> None:
        self._factory = factory
        self._location = parse_url(url)
        self._connections = 0
        # The newest session of each host.
        self.sessions: dict[SimHost, HostId] = {}
        self.faults = faults
        self._interceptor = interceptor

    async def open(self, host: HostId, *, role: str = "host") -> Driver:
        """A driver without faults, for the test itself and to keep a memory store alive."""
        simulation = self.faults.simulation
        context = DriverContext(
            clock=simulation.clock,
            random=simulation.stream(f"driver/{host}/{role}"),
            namespace="default",
            host=host,
            role=role,
        )
        return await self._factory.open(self._location, context)

    async def open_for(self, host: SimHost, host_id: HostId, *, role: str = "host") -> Driver:
        """A driver behind the network of ``host``."""
        driver = await self.open(host_id, role=role)
        return FaultyDriver(driver, self.faults, host, self._interceptor)

    async def connect(
        self,
        host: SimHost,
        options: LeaseOptions,
        *,
        app: App | None = None,
        session_ttl_s: float = _SESSION_TTL_S,
        flows: FlowOptions | None = None,
        tick_s: float = TICK_S,
        patience: float = 1.0,
    ) -> Host:
        """The features of one host, running. Call it on that host; close what it returns.

        Raises:
            StoreError: The store could not be reached; nothing is left behind.
        """
        self._connections += 1
        runtime = SimulatedRuntime(host, self.faults, number=self._connections)
        runtime.tick_s = tick_s
        runtime.patience = patience
        plan = HostPlan(
            name=host.machine,
            id=HostId(runtime.new_id()),
            namespace="default",
            session_ttl_s=session_ttl_s,
            leases=options,
            metadata={},
            flows=flows or FlowOptions(),
        )
        self.sessions[host] = plan.id
        driver = await self.open_for(host, plan.id)
        connected = Host(
            runtime, driver, lambda: self.open_for(host, plan.id, role="keeper"), plan, app=app
        )
        try:
            await connected.start()
        except StoreError:
            await connected.close()
            raise
        return connected
