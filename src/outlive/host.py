"""A connected host: one incarnation of one process, its features and the keeper behind them.

Joins features to an open driver; knows no backend by name. Opening and closing happen in a fixed
order, and closing tolerates a half-opened host.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from outlive.app import App
from outlive.duties import Duties, Means
from outlive.errors import OutliveError, StoreError, UnsupportedByDriver, UsageError
from outlive.flows.desk import FlowDesk
from outlive.flows.flows import Flows
from outlive.flows.remote import RemoteSteps
from outlive.flows.schedule import start_handler
from outlive.host_plan import HostPlan
from outlive.leases.leases import Leases
from outlive.leases.ownership import Ownership
from outlive.leases.renewing import Renewals
from outlive.leases.requesting import Requests
from outlive.leases.tenure import caller_now
from outlive.model.instance import InstanceStatus
from outlive.model.job import JobState, Reclaimed
from outlive.model.options import Duration, seconds
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.ports.capabilities import Capabilities
from outlive.ports.driver import Driver, Finding
from outlive.ports.instance_store import InstanceStore
from outlive.ports.job_store import JobStore
from outlive.runtime.entering import running_block
from outlive.runtime.heartbeat import Heartbeat
from outlive.runtime.hosts import Hosts
from outlive.runtime.keeper import Keeper
from outlive.runtime.outside import check_outside
from outlive.runtime.reaper import RECLAIM_MAX, Reaper
from outlive.runtime.runtime import Runtime
from outlive.runtime.sessions import Sessions
from outlive.runtime.tender import Tender
from outlive.runtime.watchdog import Watchdog
from outlive.serialization import encode_metadata
from outlive.telemetry import HostLogs, Telemetry, bind_host, combine, events, name_process
from outlive.work.bell import Bell
from outlive.work.claiming import Claimer
from outlive.work.handler import Handler
from outlive.work.schedules import Schedules
from outlive.work.work import Work
from outlive.work.worker import GRACE_S

# A store that does not answer must not keep a process from ending (what it held ends by its ttl),
# nor a health check from saying so.
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The answer of a health check: ``ok`` is false if any finding is an error."""

    ok: bool
    host: str
    owned: int
    heartbeat_age_s: float | None
    stalled_s: float
    findings: tuple[Finding, ...]


class Host:
    """A connected host. Made by ``outlive.connect``; ``close`` gives everything back."""

    def __init__(
        self,
        runtime: Runtime,
        driver: Driver,
        open_keeper: Callable[[], Awaitable[Driver]],
        plan: HostPlan,
        *,
        app: App | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._runtime = runtime
        self._driver = driver
        self._plan = plan
        self._app = app
        self._logs = logs = bind_host(plan.name, plan.namespace, runtime.alive)
        self._log = logs.logger("outlive.host")
        name_process(plan.name)
        self._keeper = Keeper(runtime, open_keeper, log=self._log)
        self._watchdog = Watchdog(runtime, log=self._log)
        self._heartbeat = Heartbeat(
            runtime,
            self._session(),
            drift=driver.capabilities.drift,
            watchdog=self._watchdog,
            stall_limit_s=seconds(plan.leases.stall_limit, "stall_limit"),
            log=self._log,
        )
        telemetry = combine(telemetry or Telemetry(), log=logs.logger("outlive.telemetry"))
        self._telemetry = telemetry
        self._reaper = Reaper(
            runtime,
            self._heartbeat,
            reclaimed=partial(_count_reclaimed, telemetry),
            taken_over=lambda taken: telemetry.record(events.FLOWS, len(taken), event="taken_over"),
            log=self._log,
        )
        self._leases, renewals = self._leasing(logs, telemetry)
        self._sessions = Sessions(
            runtime,
            self._heartbeat,
            self._keeper,
            kept=plan.session and driver.hosts is not None,
            log=self._log,
        )
        self._work = self._working(logs, telemetry)
        self._desk = self._flowing(logs, telemetry)
        self._flows = None if self._desk is None else Flows(self._desk, lambda: self.schedules)
        self._keeper.add(self._watchdog)
        self._keeper.add(renewals)
        self._remote: RemoteSteps | None = None
        # What ``run`` does, while it runs.
        self._duties: Duties | None = None
        self._closing: asyncio.Task[None] | None = None
        # Queues that were measured: one that is gone has no jobs.
        self._measured: set[str] = set()
        # Writes into the session that this host was told to stop.
        self._draining: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The host's human name."""
        return self._plan.name

    @property
    def id(self) -> HostId:
        """The id of this incarnation."""
        return self._plan.id

    @property
    def namespace(self) -> str:
        """The namespace that every statement carries."""
        return self._plan.namespace

    @property
    def capabilities(self) -> Capabilities:
        """What the backend promises."""
        return self._driver.capabilities

    @property
    def leases(self) -> Leases:
        """The leases of the namespace: acquire, hold, lead, look.

        Raises:
            UsageError: The code of a flow asks.
        """
        check_outside("host.leases", "hold the lease in a step (@app.step) and await the step")
        return self._leases

    @property
    def work(self) -> Work:
        """The jobs of the namespace: enqueue, claim, look, operate.

        Raises:
            UnsupportedByDriver: The backend keeps no jobs.
            UsageError: The code of a flow asks.
        """
        check_outside("host.work", "call a step with queue=, or enqueue in a step (@app.step)")
        if self._work is None:
            raise _unkept("jobs", self.capabilities)
        return self._work

    @property
    def flows(self) -> Flows:
        """The flows of the namespace: start, find, look, operate.

        Raises:
            UnsupportedByDriver: The backend keeps no flows.
            UsageError: The code of a flow asks.
        """
        check_outside(
            "host.flows",
            "call the flow itself (`await child(…)`), or use outlive.start_child and "
            "outlive.signal; do anything else in a step (@app.step)",
        )
        if self._flows is None:
            raise _unkept("flows", self.capabilities)
        return self._flows

    @property
    def hosts(self) -> Hosts:
        """The hosts of the namespace: which processes live, and what each owns.

        Raises:
            UsageError: The code of a flow asks.
        """
        check_outside("host.hosts")
        return Hosts(self._driver)

    @property
    def driver(self) -> Driver:
        """The open driver and its ports, for those who serve them to others."""
        return self._driver

    def expect_session(self, ttl_s: float) -> None:
        """A session was opened for somebody else: look when it could have ended."""
        self._reaper.expect(ttl_s)
        self._keeper.wake()

    @property
    def schedules(self) -> Schedules:
        """The schedules of the namespace: create, look, pause, resume, run now, delete.

        Raises:
            UnsupportedByDriver: The backend keeps no schedules.
            UsageError: The code of a flow asks.
        """
        check_outside("host.schedules")
        if self._driver.schedules is None or self._work is None:
            raise _unkept("schedules", self.capabilities)
        return Schedules(self._driver.schedules, self._driver.wakeups, self._work)

    async def start(self) -> None:
        """Start the keeper and the session. Called once, by ``connect``."""
        await self._keeper.start()
        if self._plan.session and self._driver.hosts is not None:
            asked_at = self._runtime.clock.monotonic()
            await self._driver.hosts.open(self._heartbeat.session)
            self._heartbeat.opened(asked_at)
            self._keeper.add(self._heartbeat)
            self._keeper.add(self._reaper)
            self._keeper.add(Tender(self._runtime, log=self._log))
            self._log.info(
                "host %s joined: others take over %g s after its death",
                *(self.name, self._plan.session_ttl_s),
                extra={"session": self._heartbeat.session.id},
            )

    async def run(self, *, grace: Duration = GRACE_S) -> None:
        """Do what the app defines, until cancelled or told to stop by SIGTERM or SIGINT.

        Told to stop, it claims no more jobs and flows, lets handlers and steps end within
        ``grace``, gives back those that did not, steps down from every leadership in order and
        hands over at once. Cancelled, it does the same without the grace, which a second signal
        ends, too. Where the program listens for SIGTERM itself, as web servers do, signals are left
        to it: call ``stop`` from there.

        Raises:
            UsageError: The connection was made without an app, so that there is nothing to do, or
                it runs already.
            UnsupportedByDriver: The app has handlers or flows, and the backend keeps none.
        """
        check_outside("host.run()")
        grace_s = seconds(grace, "grace")
        await self._do(self._take_on(), grace_s, signals=True)

    @running_block
    async def running(self, *, grace: Duration = GRACE_S) -> AsyncGenerator[Self]:
        """Do what the app defines for the length of the block, as ``run`` does.

        The block begins when everything has: a flow that is started in it begins here at once. At
        its end no more is claimed, handlers and steps have ``grace`` to end, and what is left is
        given back. A block that raises, or is cancelled, does not wait for the grace. Signals are
        left to the program. Should a role of the app fail by a mistake in its arguments, the block
        is cancelled, and the error raised.

        Raises:
            UsageError, UnsupportedByDriver: As ``run``.
        """
        check_outside("host.running()")
        grace_s = seconds(grace, "grace")
        duties, block = self._take_on(), asyncio.current_task()
        over = cancelled = False

        def ended(task: asyncio.Task[None]) -> None:
            nonlocal cancelled
            if not over and not task.cancelled() and task.exception() is not None:
                assert block is not None
                cancelled = block.cancel()

        doing = self._do(duties, grace_s, signals=False)
        task = self._runtime.spawn(doing, name=f"outlive-running-{self.name}")
        task.add_done_callback(ended)
        try:
            await duties.begun.wait()
            yield self
        except BaseException:
            task.cancel()
            raise
        finally:
            over = True
            duties.stop()
            await asyncio.wait([task])
            # Also if the task never took its first step.
            self._duties = None
            if cancelled and block is not None:
                block.uncancel()
            if not task.cancelled():
                task.result()

    def _take_on(self) -> Duties:
        """The duties of the app, which this host has from now on."""
        self._check_runnable()
        assert self._app is not None
        self._duties = Duties(self._app, self._means(), self._handlers())
        return self._duties

    async def _do(self, duties: Duties, grace_s: float, *, signals: bool) -> None:
        try:
            if self._draining is not None:
                await asyncio.wait([self._draining])
                self._draining = None
                await self._show_in_session(draining=False)
            await duties.run(grace_s, signals=signals)
        finally:
            self._duties = None
            if self._remote is not None:
                self._remote.close()

    def _means(self) -> Means:
        return Means(
            host=self.name,
            runtime=self._runtime,
            driver=self._driver,
            leases=self._leases,
            work=self._work,
            desk=self._desk,
            telemetry=self._telemetry,
            logs=self._logs,
            flows=self._plan.flows,
            claim_batch=self._plan.claim_batch,
            stopping=self._drain,
        )

    def _drain(self) -> None:
        showing = self._show_in_session(draining=True)
        self._draining = self._runtime.spawn(showing, name=f"outlive-draining-{self.name}")

    async def _show_in_session(self, *, draining: bool) -> None:
        """Write for others to see whether this host has stopped claiming."""
        hosts = self._driver.hosts
        if hosts is not None and self._plan.session:
            metadata = self._session_metadata(draining=draining)
            # The one that is renewed now: the first of this host may have been lost.
            opening = hosts.open(replace(self._heartbeat.session, metadata=metadata))
            await self._patiently(opening, "update the host session", then="it is shown as it was")

    def _check_runnable(self) -> None:
        if self._app is None:
            raise UsageError("nothing to run: pass an App to connect(app=…)")
        if self._duties is not None:
            raise UsageError("this host is already running: call stop() before run() again")
        # Refused before anything runs, where the backend keeps none.
        if self._app.crons:
            _ = self.schedules
        if self._app.flows:
            _ = self.flows

    def stop(self, *, now: bool = False) -> None:
        """Let ``run`` end in order, as SIGTERM does. Nothing if it does not run.

        With ``now`` the grace is over, also one that has begun. Safe from any thread and from a
        signal handler. Returns at once; ``run`` returns when what it runs has ended or was given
        back.
        """
        if self._duties is not None:
            self._duties.stop(now=now)

    def _handlers(self) -> list[Handler[Any, Any]]:
        """Those of the app, those of steps that run in queues, and the one that starts flows."""
        app = self._app
        assert app is not None
        threads = self._plan.flows.threads
        self._remote = RemoteSteps(app.steps, self._runtime, self._driver.jobs, threads=threads)
        handlers = [*app.handlers.values(), *self._remote.handlers(app.handlers)]
        if app.flows and self._desk is not None and self._driver.schedules is not None:
            handlers.append(start_handler(self._desk))
        if handlers:
            # Refused, where the backend keeps none.
            _ = self.work
        return handlers

    async def health(self) -> Health:
        """Ask the store and look at this host's own pulse. Never raises for a sick store."""
        check_outside("host.health()")
        now = self._runtime.clock.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                findings = tuple(await self._driver.check())
        except (StoreError, TimeoutError) as error:
            findings = (Finding(level="error", what=f"the store does not answer: {error}"),)
        stalled_s = self._watchdog.stalled_s(now)
        age = self._heartbeat.age_s(now) if self._plan.session and self._driver.hosts else None
        if age is not None and age > self._plan.session_ttl_s:
            findings += (Finding(level="error", what=f"no heartbeat for {age:.0f} s"),)
        findings += _charts_found()
        return Health(
            ok=all(finding.level != "error" for finding in findings),
            host=self.name,
            owned=self.leases.owned,
            heartbeat_age_s=age,
            stalled_s=stalled_s,
            findings=findings,
        )

    async def measure(self) -> None:
        """Ask the store how full its queues are and in which status its flows, for the telemetry.

        Counting takes time that grows with what is stored: ask once a minute or less often.

        Raises:
            StoreError: The store did not answer; the gauges keep what they say.
        """
        check_outside("host.measure()")
        record = self._telemetry.record
        if self._work is not None:
            queues = {each.name: each for each in await self._work.queues()}
            for name in sorted(queues.keys() | self._measured):
                found = queues.get(name)
                for state in JobState:
                    count = 0 if found is None else found.counts.get(state, 0)
                    record(events.QUEUE_JOBS, count, queue=name, state=state.value)
                oldest_s = None if found is None else found.oldest_ready_s
                record(events.QUEUE_OLDEST, oldest_s or 0.0, queue=name)
            self._measured = set(queues)
        if self._flows is not None:
            counts = await self._flows.count()
            for status in InstanceStatus:
                record(events.FLOWS_STORED, counts.get(status, 0), status=status.value)
            stuck = await self._flows.count(stuck=True)
            record(events.FLOWS_STUCK, sum(stuck.values()))

    async def close(self) -> None:
        """Release every lease, end the session, stop the keeper, disconnect. Repeatable.

        Blocks under ``hold`` and functions that lead are cancelled, and awaited within the ttl,
        before their key is free. A store that does not answer holds this up for a few seconds at
        most. A caller that is cancelled does not stop the closing.
        """
        check_outside("host.close()")
        if self._closing is None:
            self._closing = self._runtime.spawn(
                self._close(caller_now()), name=f"outlive-close-{self.name}"
            )
        await asyncio.shield(self._closing)

    async def _close(self, closer: object) -> None:
        if self._duties is not None:
            await self._patiently(self._duties.give_back(), "release running jobs and flows")
        if self._desk is not None:
            await self._patiently(self._desk.close(), "release flows")
        await self._patiently(
            self.leases.close(closer), "release leases", then="they expire by their ttl"
        )
        if self._work is not None:
            await self._patiently(self._work.close(), "release claims of jobs")
        await self._keeper.stop()
        if self._draining is not None:
            await asyncio.wait([self._draining])
        if self._plan.session and self._driver.hosts is not None:
            await self._patiently(self._end_session(), "end the host session")
        await self._driver.close()

    async def _end_session(self) -> None:
        """End the session, and let others have at once what still hangs on it."""
        hosts = self._driver.hosts
        assert hosts is not None
        await hosts.close(self._heartbeat.session.id)
        self._log.info("host %s left", self.name, extra={"session": self._heartbeat.session.id})
        for store in (self._driver.jobs, self._driver.instances):
            if store is not None:
                await self._patiently(
                    _reclaim_all(store),
                    "release this host's claims at shutdown",
                    then="other hosts recover them",
                )

    async def _patiently(self, step: Awaitable[None], what: str, *, then: str = "") -> None:
        then = then or f"the session expires within {self._plan.session_ttl_s:g} s (session_ttl)"
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await step
        except (OutliveError, TimeoutError) as error:
            self._log.warning("could not %s: %r; %s", what, error, then)
        except Exception:  # noqa: BLE001 - whatever it is, the rest must be given back
            self._log.exception("could not %s; %s", what, then)

    def _leasing(self, logs: HostLogs, telemetry: Telemetry) -> tuple[Leases, Renewals]:
        runtime, driver, plan = self._runtime, self._driver, self._plan
        ownership = Ownership(
            runtime,
            driver.leases,
            host=plan.name,
            telemetry=telemetry,
            log=logs.logger("outlive.leases"),
        )
        renewals = Renewals(ownership, self._keeper, self._watchdog)
        requests = Requests(
            driver.capabilities,
            plan.leases,
            host_name=plan.name,
            host_id=plan.id,
            metadata=plan.metadata,
        )
        return Leases(driver, ownership, renewals, requests), renewals

    def _working(self, logs: HostLogs, telemetry: Telemetry) -> Work | None:
        driver = self._driver
        if driver.jobs is None:
            return None
        claimer = Claimer(
            self._runtime,
            driver.jobs,
            sessions=self._sessions,
            bell=Bell(driver.wakeups, logs.logger("outlive.work")),
            host=self.name,
            log=logs.logger("outlive.work"),
        )
        return Work(driver, claimer, telemetry)

    def _flowing(self, logs: HostLogs, telemetry: Telemetry) -> FlowDesk | None:
        if self._driver.instances is None:
            return None
        return FlowDesk(
            self._runtime,
            self._driver,
            self._sessions,
            self._app.flows if self._app is not None else {},
            telemetry=telemetry,
            host_name=self.name,
            logs=logs,
        )

    def _session(self) -> HostSession:
        plan = self._plan
        return HostSession(
            id=plan.id,
            name=plan.name,
            ttl_us=round(plan.session_ttl_s * 1e6),
            metadata=self._session_metadata(draining=False),
        )

    def _session_metadata(self, *, draining: bool) -> str:
        plan = self._plan
        return encode_metadata({**plan.metadata, "version": plan.version, "draining": draining})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


def _charts_found() -> tuple[Finding, ...]:
    """What is wrong with the orchestrator of charts that the process shares, if it has one."""
    # A program without charts has not imported them, and need not.
    charts = sys.modules.get("outlive.charts.orchestrator")
    made = None if charts is None else charts.shared.made
    if made is None:
        return ()
    health = made.health()
    level = {"degraded": "warning", "unhealthy": "error"}.get(health.level, "ok")
    return tuple(Finding(level=level, what=f"charts: {reason}") for reason in health.reasons)


def _count_reclaimed(telemetry: Telemetry, taken: Sequence[Reclaimed]) -> None:
    for each in taken:
        telemetry.record(events.JOBS_RECLAIMED, queue=each.queue)


async def _reclaim_all(store: JobStore | InstanceStore) -> None:
    while len(await store.reclaim(limit=RECLAIM_MAX)) == RECLAIM_MAX:
        continue


def _unkept(what: str, of: Capabilities) -> UnsupportedByDriver:
    return UnsupportedByDriver(
        f"{of.backend} does not support {what}; docs/reference/capabilities.md lists the backends "
        "that do"
    )
