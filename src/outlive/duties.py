"""What a host does while it runs: the jobs, flows, leaderships and ticks that its app defines.

Owns their beginning and their end: all of them begin together, and none outlives the run. Knows no
backend by name.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from outlive.app import App
from outlive.errors import OutliveError
from outlive.flows.desk import FlowDesk
from outlive.flows.executing import Executor
from outlive.flows.host import FlowHost
from outlive.flows.household import Household
from outlive.flows.schedule import poll_of
from outlive.flows.store_clock import StoreClock
from outlive.leases.leases import Leases
from outlive.model.flow_options import FlowOptions
from outlive.model.options import seconds
from outlive.ports.driver import Driver
from outlive.runtime.runtime import Runtime
from outlive.telemetry import HostLogs, Telemetry
from outlive.work.current import Middleware
from outlive.work.handler import Handler
from outlive.work.scheduler import Scheduler
from outlive.work.work import Work
from outlive.work.worker import Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a connected host has to do its duties with."""

    host: str
    runtime: Runtime
    driver: Driver
    leases: Leases
    work: Work | None
    desk: FlowDesk | None
    telemetry: Telemetry
    logs: HostLogs
    flows: FlowOptions
    claim_batch: int
    stopping: Callable[[], None]


class Duties:
    """The duties of one run. Used once."""

    def __init__(self, app: App, means: Means, handlers: Sequence[Handler[Any, Any]]) -> None:
        self._app = app
        self._means = means
        self._worker = self._make_worker(handlers)
        self._flows = self._make_flow_host()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._runs = self._stopping = self._signalled = self._defined = False
        # Set by who does not want to wait for the grace.
        self._hurry = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.begun = asyncio.Event()
        """Set once everything has begun: a flow that is started now begins here at once."""

    @property
    def runs(self) -> bool:
        """Whether they are being done; not if the loop was closed under them."""
        return self._runs and not self._loop.is_closed()

    def hear_defined(self) -> None:
        """A flow was defined meanwhile: run it as well. Safe from any thread."""
        self._loop.call_soon_threadsafe(self._note_defined)

    def stop(self, *, now: bool = False) -> None:
        """Let ``run`` end in order; ``now`` without the rest of the grace. Safe from any thread."""
        self._loop.call_soon_threadsafe(self._hear_stop, now)

    async def give_back(self) -> None:
        """Give everything back at once that others could do."""
        try:
            if self._worker is not None:
                await self._worker.stop(0.0)
        finally:
            if self._flows is not None:
                await self._flows.stop(0.0)

    async def run(self, grace_s: float, *, signals: bool) -> None:
        """Do them until ``stop``, or, with ``signals``, until SIGTERM or SIGINT.

        A second signal ends the grace.
        """
        spawn = self._means.runtime.spawn
        self._runs = True
        self._app.observed(self)
        handled = self._handle_signals() if signals else []
        self._start_roles()
        if self._worker is not None:
            self._tasks.append(spawn(self._worker.run(), name="outlive-worker"))
        if self._flows is not None:
            self._tasks.append(spawn(self._flows.run(), name="outlive-flows"))
        waiting = spawn(self._wait(), name="outlive-run")
        try:
            await asyncio.wait([waiting, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            grace_s = 0.0
            raise
        finally:
            self._runs = False
            try:
                # Together: both have the same grace.
                duties = (each for each in (self._worker, self._flows) if each is not None)
                await asyncio.gather(*(each.stop(grace_s, self._hurry) for each in duties))
            finally:
                # Also for a caller who is cancelled once more: no role may outlive this call.
                if self._means.desk is not None:
                    self._means.desk.host = None
                for number in handled:
                    self._loop.remove_signal_handler(number)
                for task in (waiting, *self._tasks):
                    task.cancel()
            await asyncio.wait([waiting, *self._tasks])
        for task in self._tasks:
            if not task.cancelled():
                # A role ends by itself only through a mistake in its arguments.
                task.result()

    async def _wait(self) -> None:
        """Wait for the wish to stop, and look at what is defined meanwhile."""
        # Those that were spawned take their first step before this one goes on.
        await asyncio.sleep(0)
        self.begun.set()
        while not self._stopping:
            await self._news.wait()
            self._news.clear()
            if self._defined:
                self._defined = False
                self._look_again()

    def _hear_stop(self, now: bool) -> None:  # noqa: FBT001 - a loop passes no keywords
        if not self._stopping:
            self._means.stopping()
        self._stopping = True
        self._news.set()
        if now:
            self._hurry.set()

    def _hear_signal(self) -> None:
        # The second one is in a hurry, and not the first of a program that is stopping already.
        again, self._signalled = self._signalled, True
        self._hear_stop(again)

    def _note_defined(self) -> None:
        self._defined = True
        self._news.set()

    def _look_again(self) -> None:
        """Flows were defined since this began: run them as well."""
        if self._flows is not None:
            self._flows.defined(tuple(self._app.flows))
            return
        try:
            self._flows = self._make_flow_host()
        except OutliveError as error:
            self._means.logs.logger("outlive.host").error(
                "could not start flows that were defined after the start: %s", error
            )
            return
        if self._flows is not None:
            spawn = self._means.runtime.spawn
            self._tasks.append(spawn(self._flows.run(), name="outlive-flows"))

    def _make_worker(self, handlers: Sequence[Handler[Any, Any]]) -> Worker | None:
        means = self._means
        if not handlers or means.work is None:
            return None
        return Worker(
            means.work,
            means.leases,
            handlers,
            self._app.middlewares,
            host=means.host,
            log=means.logs.logger("outlive.work"),
            claim_batch=means.claim_batch,
            poll_s=poll_of(handlers, means.flows, means.runtime),
        )

    def _make_flow_host(self) -> FlowHost | None:
        means = self._means
        if not self._app.flows or means.desk is None:
            return None
        means.desk.host = flow_host(
            means.desk,
            self._app.middlewares,
            options=means.flows,
            claim_batch=means.claim_batch,
        )
        return means.desk.host

    def _start_roles(self) -> None:
        means = self._means
        leases, spawn = means.leases, means.runtime.spawn
        for role in self._app.leaders.values():
            leading = leases.lead(role.key, role.function, **role.options)
            self._tasks.append(spawn(leading, name=f"lead-{role.key}"))
        for periodic in self._app.periodics.values():
            ticks = leases.every(
                periodic.interval_s, periodic.function, key=periodic.key, **periodic.options
            )
            self._tasks.append(spawn(ticks, name=f"every-{periodic.key}"))
        if means.driver.schedules is not None:
            scheduler = Scheduler(
                means.runtime,
                means.driver.schedules,
                means.driver.wakeups,
                defined=self._app.crons,
                telemetry=means.telemetry,
                log=means.logs.logger("outlive.schedules"),
            )
            self._tasks.append(spawn(scheduler.run(), name="schedules"))

    def _handle_signals(self) -> list[signal.Signals]:
        # A web server around us that listens already would never hear that it is to stop.
        heard = callable(signal.getsignal(signal.SIGTERM))
        if heard or threading.current_thread() is not threading.main_thread():
            return []
        handled: list[signal.Signals] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._loop.add_signal_handler(number, self._hear_signal)
            except (NotImplementedError, RuntimeError, ValueError):
                # Loops without signal support (a simulation, an embedding) are stopped by cancel.
                continue
            handled.append(number)
        return handled


def flow_host(
    desk: FlowDesk,
    middlewares: Sequence[Middleware],
    *,
    options: FlowOptions,
    claim_batch: int,
) -> FlowHost:
    """What runs the flows that ``desk`` knows."""
    clock = StoreClock(desk.runtime.clock, desk.driver.capabilities.drift)
    executor = Executor(
        desk.runtime,
        clock,
        threads=options.threads,
        middlewares=middlewares,
        telemetry=desk.telemetry,
        host=desk.host_name,
        log=desk.log,
    )
    home = Household(
        desk,
        clock=clock,
        executor=executor,
        park_grace_s=seconds(options.park_grace, "park_grace"),
    )
    return FlowHost(
        home,
        desk.claimer,
        desk.bell,
        names=tuple(desk.flows),
        options=options,
        claim_batch=claim_batch,
        log=desk.log,
    )
