"""``Orchestrator``: the groups of a process, the lanes of its loops, and what is known of them.

Owns the registry of groups and the one process-wide instance. May be used by many threads at once;
its lock is held for a few dictionary operations and never while anything of a user runs.
"""

from __future__ import annotations

import asyncio
import itertools
import logging as logs
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlive.charts.actor import Actor
from outlive.charts.chart import Chart
from outlive.charts.environment import Environment, UnhandledPolicy
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.inspection import Inspect
from outlive.charts.interpreter import Interpreter
from outlive.charts.listening import Unsubscribe
from outlive.charts.orchestrator.acceptance import Acceptance, Refused
from outlive.charts.orchestrator.group import Group, checked_name
from outlive.charts.orchestrator.health import Health, judge
from outlive.charts.orchestrator.lanes import Lanes
from outlive.charts.orchestrator.letters import DeadLetters
from outlive.charts.orchestrator.machine import Machine
from outlive.charts.orchestrator.metrics import Counts, Metrics, percentiles, total
from outlive.charts.orchestrator.monitor import published
from outlive.charts.orchestrator.options import (
    MAILBOX_LIMIT,
    POOL_SIZE,
    POOL_SIZE_MAX,
    MailboxPolicy,
    MailboxRule,
    PoolOptions,
)
from outlive.charts.timers import LoopTimers, Timers
from outlive.errors import GroupReleased, UnknownTarget, UsageError
from outlive.model.options import Duration
from outlive.runtime.runtime import Runtime
from outlive.telemetry import PROCESS, HostLogs, Reading, events

_log = PROCESS.logger("outlive.charts")

_SILENT = HostLogs({}, lambda: False).logger("outlive.charts")

OnError = Callable[[Interpreter, BaseException], None]


class Orchestrator:
    """Runs machines in groups. ``outlive.orchestrator()`` is the one that a process shares.

    ``logging`` is whether machines that come and go, errors that no sender waits for and dead
    letters are logged; a logger says where. ``unhandled`` is what becomes of an event that no
    transition takes. A decision (a guard, an assign) that raises leaves its machine as it was.

    Raises:
        UsageError: The options do not fit together.
    """

    def __init__(  # noqa: PLR0913 - each is a public option
        self,
        *,
        pool_size: int = POOL_SIZE,
        max_pool_size: int = POOL_SIZE_MAX,
        allow_growth: bool = True,
        growth_factor: float = 2.0,
        shrink_threshold: float = 0.25,
        mailbox_limit: int = MAILBOX_LIMIT,
        mailbox_policy: MailboxPolicy = "wait",
        metrics: bool = True,
        logging: bool | logs.Logger = True,
        unhandled: UnhandledPolicy = "ignore",
        timers: Timers | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.pool = PoolOptions(
            pool_size=pool_size,
            max_pool_size=max_pool_size,
            allow_growth=allow_growth,
            growth_factor=growth_factor,
            shrink_threshold=shrink_threshold,
        )
        self.rule = MailboxRule(limit=mailbox_limit, policy=mailbox_policy)
        self.lock = threading.RLock()
        self._runtime = runtime or Runtime()
        self.log = logging if isinstance(logging, logs.Logger) else (_log if logging else _SILENT)
        self._measured = metrics
        self.letters = DeadLetters(self._runtime.clock, self.log)
        self._on_error: tuple[OnError, ...] = ()
        self._inspectors: tuple[Inspect, ...] = ()
        self.environment = Environment(
            timers=timers or LoopTimers(self._runtime.clock),
            unhandled=unhandled,
            faults="keep",
            on_error=self._tell_error,
            dead_letter=self._dead_letter,
        )
        self._numbers = itertools.count(1)
        self._groups: dict[int, Group] = {}
        self._default: Group | None = None
        self._lanes: dict[asyncio.AbstractEventLoop, Lanes] = {}
        self._past = Counts()
        # Machines since it was made.
        self.registered = 0
        self.pid = self._runtime.pid()

    def __repr__(self) -> str:
        return f"<Orchestrator {len(self._groups)} groups>"

    # -- groups ---------------------------------------------------------------------------------

    def group(self, name: str) -> Group:
        """A new group. ``async with`` releases it at the end of the block. In any thread.

        Raises:
            InvalidName: The name is no text, empty or too long.
        """
        checked_name(name, "the name of a group")
        with self.lock:
            number = next(self._numbers)
            made = Group(self, id=number, name=name, created_at=self._runtime.clock.now())
            self._groups[number] = made
        return made

    @property
    def default_group(self) -> Group:
        """Where machines live that were given no group."""
        with self.lock:
            if self._default is None or self._default.released:
                self._default = self.group("default")
            return self._default

    @property
    def groups(self) -> tuple[Group, ...]:
        """Those that are not released, in the order of their making."""
        with self.lock:
            return tuple(self._groups.values())

    def drop(self, group: Group) -> None:
        """Forget a group that was released."""
        with self.lock:
            self._groups.pop(group.id, None)

    def register(self, chart: Chart | Actor, **options: Any) -> Machine:
        """``Group.register`` in the default group."""
        return self.default_group.register(chart, **options)

    async def start(self, chart: Chart | Actor, **options: Any) -> Machine:
        """``Group.start`` in the default group."""
        return await self.default_group.start(chart, **options)

    async def stop(self, *, drain: bool = True, timeout: Duration | None = None) -> None:
        """Stop every machine, which handles what it has accepted first, and release every group."""
        for group in self.groups:
            await asyncio.gather(
                *(machine.stop(drain=drain, timeout=timeout) for machine in group.machines)
            )
            await group.release()

    async def idle(self) -> None:
        """Wait until every event that was sent to machines of the running loop is handled.

        A machine whose action awaits something is not waited for. For tests and batch programs.
        """
        await self.lanes().idle()

    async def force_cleanup(self) -> int:
        """Release every group, whoever it belongs to; gives how many machines that ended.

        For the end of a test run. A program that does this pulls the floor from under its own feet.
        """
        count = 0
        for group in self.groups:
            count += len(group)
            await group.release()
        return count

    # -- what groups and machines need ----------------------------------------------------------

    def new_guid(self) -> str:
        """Something that no other machine has in its id."""
        return self._runtime.new_id()

    def lanes(self) -> Lanes:
        """The lanes of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._lanes.get(loop)
        if found is not None:
            return found
        with self.lock:
            for closed in [each for each in self._lanes if each.is_closed()]:
                self._past.merge(self._lanes.pop(closed).counts)
                self._past.active = 0
            found = self._lanes[loop] = Lanes(loop, self.pool, metrics=self._measured)
        return found

    def send_to(
        self, group: Group, target: str, event: EventLike, data: dict[str, Any]
    ) -> Acceptance:
        """``Group.send``: find the machine, or write a dead letter."""
        try:
            machine = group.get(target)
        except (UnknownTarget, GroupReleased) as error:
            given = Event(event, data) if data and isinstance(event, str) else as_event(event)
            self.write_off(target, group, given, error)
            return Refused(error)
        return machine.send(event, **data)

    def write_off(self, target: str, group: Group, event: Event, error: Exception) -> None:
        """Count and keep the dead letter of a machine that has no loop to count on."""
        with self.lock:
            self._past.dead_letters += 1
        self.letters.add(target, group.name, event, str(error))

    # -- looking --------------------------------------------------------------------------------

    def on_error(self, function: OnError) -> Unsubscribe:
        """Call ``function(machine, error)`` for each error that no sender waits for.

        Those of actions are told here as well when a sender waits. The machine may be a child of
        one, which has no group.
        """
        self._on_error = (*self._on_error, function)

        def forget() -> None:
            self._on_error = tuple(each for each in self._on_error if each is not function)

        return forget

    def inspect(self, function: Inspect) -> Unsubscribe:
        """Call ``function`` with each event, transition, action and snapshot of all machines.

        Costs time while anybody does, and nothing otherwise. See ``outlive.charts.inspection``.
        """
        self._set_inspectors((*self._inspectors, function))
        return lambda: self._set_inspectors(
            tuple(each for each in self._inspectors if each is not function)
        )

    def _set_inspectors(self, inspectors: tuple[Inspect, ...]) -> None:
        with self.lock:
            self._inspectors = inspectors
            told = self._inspected if inspectors else None
            self.environment = replace(self.environment, inspect=told)
            for group in self._groups.values():
                for machine in group.machines:
                    machine.environment = self.environment

    def _inspected(self, record: Any) -> None:
        for function in self._inspectors:
            try:
                function(record)
            except Exception:  # noqa: BLE001 - it is logged, and the machine goes on
                _log.exception("an inspector failed")

    def metrics(self) -> Metrics:
        """The numbers of now. In any thread; those of other loops may be a moment old."""
        with self.lock:
            lanes = list(self._lanes.values())
            groups = list(self._groups.values())
            counts = total((self._past, *(each.counts for each in lanes)))
        return Metrics(
            succeeded=counts.handled - counts.failed - counts.skipped,
            failed=counts.failed,
            timeouts=counts.timeouts,
            throttled=counts.throttled,
            dead_letters=counts.dead_letters,
            discarded=counts.discarded,
            latency_s=percentiles(counts.latency),
            queue_depth=sum(each.waiting for each in lanes),
            queue_age_s=max((each.age_s for each in lanes), default=0.0),
            machines=sum(len(group) for group in groups),
            active_machines=counts.active,
            groups=len(groups),
            loops=len(lanes),
            pool_size=max((each.size for each in lanes), default=self.pool.pool_size),
            pool_size_max=self.pool.max_pool_size,
            grown=counts.grown,
            shrunk=counts.shrunk,
        )

    def readings(self) -> Iterable[Reading]:
        """The same for a telemetry, which ``watch``es this orchestrator, and the machines by chart.

        What other loops count meanwhile comes with the next look.
        """
        now = self.metrics()
        machines = Counter(machine.chart.id for group in self.groups for machine in group.machines)
        for chart, count in machines.items():
            yield events.CHART_MACHINES, count, {"chart": chart}
        yield events.CHART_REGISTRATIONS, self.registered, {}
        yield events.CHART_ENDS, max(0, self.registered - now.machines), {}
        for outcome, count in (
            *(("succeeded", now.succeeded), ("failed", now.failed), ("timeout", now.timeouts)),
            *(("throttled", now.throttled), ("discarded", now.discarded)),
            ("dead_letter", now.dead_letters),
        ):
            yield events.CHART_EVENTS, count, {"outcome": outcome}
        yield events.CHART_LANES, now.pool_size, {}
        yield events.CHART_LANES_CHANGED, now.grown, {"direction": "grown"}
        yield events.CHART_LANES_CHANGED, now.shrunk, {"direction": "shrunk"}
        yield events.CHART_QUEUED, now.queue_depth, {}
        yield events.CHART_QUEUE_AGE, now.queue_age_s, {}

    def health(self, before: Metrics | None = None) -> Health:
        """Whether it keeps up: since ``before``, or since it was made."""
        return judge(self.metrics(), before)

    def published(self, path: Path | None = None) -> AbstractAsyncContextManager[Path]:
        """Let ``outlive chart top`` look at this process while the block runs.

        Processes of the same user can read the numbers and the names of groups, and nothing else;
        ``path`` is where the socket is, by default where the command looks for it.

        Raises:
            ConfigurationError: The socket cannot be made, or its folder is not the user's alone.
        """
        return published(self, path)

    def _tell_error(self, actor: Any, error: BaseException) -> None:
        self.log.error(
            "machine %s: %s", actor.id, error, exc_info=error, extra={"machine": actor.id}
        )
        for function in self._on_error:
            try:
                function(actor, error)
            except Exception:  # noqa: BLE001 - it is logged, and the machine goes on
                _log.exception("an on_error function failed")

    def _dead_letter(self, actor: Interpreter, event: Event) -> None:
        """An event that no transition took, where the policy says that this is a dead letter."""
        root = actor
        while root.parent is not None:
            root = root.parent
        if isinstance(root, Machine):
            root.count_dead_letter()
            self.letters.add(actor.id, root.group.name, event, "no transition for the event")


class Shared:
    """The one orchestrator of the process, made when it is first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: Orchestrator | None = None
        self._options: dict[str, Any] = {}
        self._runtime = Runtime()

    @property
    def made(self) -> Orchestrator | None:
        """The orchestrator of this process, if anything has asked for it."""
        made = self._made
        return None if made is None or made.pid != self._runtime.pid() else made

    def readings(self) -> Iterable[Reading]:
        """Its numbers for a telemetry that watches; none before it is made."""
        made = self.made
        return () if made is None else made.readings()

    def get(self, options: dict[str, Any]) -> Orchestrator:
        """Make it with ``options``, or look whether it was made with them."""
        made = self._made
        pid = self._runtime.pid()
        # The machines of a parent process run there; a fork begins with none.
        if made is None or made.pid != pid:
            with self._lock:
                made = self._made
                if made is None or made.pid != pid:
                    # A fork that says nothing has the options of its parent.
                    self._options = options or self._options
                    made = self._made = Orchestrator(**self._options)
        if options:
            held = {**(Orchestrator.__init__.__kwdefaults__ or {}), **self._options}
            other = [name for name, value in options.items() if held.get(name) != value]
            if other:
                raise UsageError(
                    f"the orchestrator of this process is set up already, with {other[0]}="
                    f"{held.get(other[0])!r}: give options before anything else asks for it, or "
                    "make an outlive.Orchestrator(…) of your own"
                )
        return made


shared = Shared()
"""That of this process."""


def orchestrator(**options: Any) -> Orchestrator:
    """The orchestrator that all of this process shares: the same in every thread and on every loop.

    Made when it is first asked for, with the ``options`` of an ``Orchestrator`` that are given
    then. A forked process has its own.

    Raises:
        UsageError: It was made before, with other options, or the options do not fit together.
    """
    return shared.get(options)
