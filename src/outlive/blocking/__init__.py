"""The same API for code that does not await: one event loop on one thread, driven from yours.

A thin façade: every method has the name and the parameters of its asynchronous twin, and a test
compares them. What cannot be the same is said here once: a thread cannot be cancelled from
outside, so a block under ``hold`` runs on when its lease is lost; look at ``lease.is_held`` or
``lease.check()`` between steps, use ``guard`` for writes, and the end of the block raises
``LeaseLost``. Handlers of events and of jobs' queues run on the façade's thread and its pool.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Self

from outlive import host as host_module
from outlive.blocking.calls import awaited, parameters_of
from outlive.blocking.charts import Group, Machine, Orchestrator
from outlive.blocking.flows import FlowHandle, Flows
from outlive.blocking.leases import Lease, Leases
from outlive.blocking.work import Claim, Job, Work
from outlive.connect import connect as connect_async
from outlive.model.options import Duration
from outlive.names import HostId
from outlive.ports.capabilities import Capabilities
from outlive.runtime import hosts as hosts_module
from outlive.runtime.outside import check_outside
from outlive.runtime.portal import Portal
from outlive.work import schedules as schedules_module
from outlive.work.worker import GRACE_S

__all__ = [
    "Claim",
    "FlowHandle",
    "Flows",
    "Group",
    "Host",
    "Hosts",
    "Job",
    "Lease",
    "Leases",
    "Machine",
    "Orchestrator",
    "Schedules",
    "Work",
    "connect",
]


class Schedules:
    """The schedules of one namespace; see ``outlive.Schedules``."""

    def __init__(self, schedules: schedules_module.Schedules, portal: Portal) -> None:
        self._twin = schedules
        self._portal = portal

    create = awaited(schedules_module.Schedules.create)
    get = awaited(schedules_module.Schedules.get)
    list = awaited(schedules_module.Schedules.list)
    pause = awaited(schedules_module.Schedules.pause)
    resume = awaited(schedules_module.Schedules.resume)

    def run_now(self, name: str) -> Job[Any]:
        """Enqueue a job of a schedule now."""
        return Job(self._portal.run(self._twin.run_now(name)), self._portal)

    delete = awaited(schedules_module.Schedules.delete)


class Hosts:
    """The hosts of one namespace; see ``outlive.Hosts``."""

    def __init__(self, hosts: hosts_module.Hosts, portal: Portal) -> None:
        self._twin = hosts
        self._portal = portal

    list = awaited(hosts_module.Hosts.list)


class Host:
    """A connected host; see ``outlive.Host``."""

    def __init__(self, host: host_module.Host, portal: Portal) -> None:
        self._twin = host
        self._portal = portal
        self.leases = Leases(host.leases, portal)

    @property
    def work(self) -> Work:
        """The jobs of the namespace; see ``outlive.Host.work``."""
        return Work(self._twin.work, self._portal)

    @property
    def flows(self) -> Flows:
        """The flows of the namespace; see ``outlive.Host.flows``."""
        return Flows(self._twin.flows, self._portal)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the namespace; see ``outlive.Host.schedules``."""
        return Schedules(self._twin.schedules, self._portal)

    @property
    def hosts(self) -> Hosts:
        """The hosts of the namespace; see ``outlive.Host.hosts``."""
        return Hosts(self._twin.hosts, self._portal)

    @property
    def name(self) -> str:
        """The host's human name."""
        return self._twin.name

    @property
    def id(self) -> HostId:
        """The id of this incarnation."""
        return self._twin.id

    @property
    def namespace(self) -> str:
        """The namespace that every statement carries."""
        return self._twin.namespace

    @property
    def capabilities(self) -> Capabilities:
        """What the backend promises."""
        return self._twin.capabilities

    def run(self, *, grace: Duration = GRACE_S) -> None:
        """Do what the app defines until ``stop``, or, on the main thread, SIGTERM or Ctrl-C.

        A second Ctrl-C does not wait for handlers.
        """
        with self._stopped_by_signals():
            self._portal.run(self._twin.run(grace=grace))

    @contextmanager
    def running(self, *, grace: Duration = GRACE_S) -> Generator[Self, None, None]:
        """Do what the app defines for the length of the block; see ``outlive.Host``.

        A thread cannot be cancelled: what goes wrong meanwhile is raised at the end of the block.
        """
        running = self._twin.running(grace=grace)
        self._portal.run(_entered(running))
        try:
            yield self
        except BaseException as error:
            self._portal.run(_left(running, error))
            raise
        else:
            self._portal.run(_left(running, None))

    def stop(self, *, now: bool = False) -> None:
        """Let ``run`` end in order, as SIGTERM does; ``now`` without the rest of the grace.

        Safe from any thread.
        """
        self._twin.stop(now=now)

    @contextmanager
    def _stopped_by_signals(self) -> Generator[None, None, None]:
        # The loop runs on the portal's thread, where Python delivers no signals.
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

        def restore() -> None:
            for number, handler in before.items():
                # None is a handler that was not installed from Python, and cannot be again.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def told(*_: object) -> None:
            restore()
            self.stop()

        for number in before:
            signal.signal(number, told)
        try:
            yield
        finally:
            restore()

    health = awaited(host_module.Host.health)
    measure = awaited(host_module.Host.measure)

    def close(self) -> None:
        """Release every lease, end the session, disconnect, end the thread. Repeatable."""
        if not self._portal.closed:
            self._portal.run(self._twin.close())
            self._portal.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


async def _entered(block: AbstractAsyncContextManager[Any]) -> None:
    await block.__aenter__()


async def _left(block: AbstractAsyncContextManager[Any], error: BaseException | None) -> None:
    await block.__aexit__(None if error is None else type(error), error, None)


@parameters_of(connect_async)
def connect(*args: Any, **options: Any) -> Host:
    """Connect this process to a store; see ``outlive.connect``. Close it, or use ``with``."""
    check_outside("blocking.connect()")
    portal = Portal()

    async def opening() -> host_module.Host:
        return await connect_async(*args, **options)

    try:
        return Host(portal.run(opening()), portal)
    except BaseException:
        portal.stop()
        raise
