"""``Interpreter``: how a machine in memory handles one event, and does the effects of its steps.

What every machine in memory shares, whoever decides when its events are handled: ``Actor`` does so
at once, the machines of the orchestrator when their lane has its turn. One thread at a time.

A machine costs little while nothing happens: no task, no dict; mailbox, timers, children and
listeners are made when they are first needed.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal

from outlive.charts import listening, persistence
from outlive.charts.chart import Chart
from outlive.charts.effecting import PendingTimer, perform, stop_timer
from outlive.charts.effects import Effect, Effects, Finish, Unhandled
from outlive.charts.environment import Environment
from outlive.charts.events import INIT, Event, done_actor, error_actor
from outlive.charts.inspection import (
    EffectRun,
    EventReceived,
    GuardHeld,
    MicrostepTaken,
    SnapshotChanged,
)
from outlive.charts.listening import Listeners, Unsubscribe
from outlive.charts.services import Child
from outlive.charts.snapshot import Snapshot
from outlive.charts.stepping import Trace
from outlive.errors import ChartError, EventUnhandled, UsageError
from outlive.model.options import Duration, seconds

# Deferred events wait for a change of state that may never come; more than this is a flood.
DEFERRED_MAX = 1_000

# Not started; at rest; handling an event; an action awaits something; over.
NEW, IDLE, BUSY, WAITING, ENDED = range(5)

_DEFAULT = Environment()
_NO_ERRORS: Sequence[BaseException] = ()

Item = Event | PendingTimer


def close_after(task: asyncio.Task[None], waiting: Awaitable[Any]) -> None:
    """Close ``waiting`` with its task: one that is cancelled before it began never awaited it."""
    if isinstance(waiting, Coroutine):
        task.add_done_callback(lambda _: waiting.close())


class Interpreter(ABC):
    """A machine in memory, without its ways in: how it handles one event, and does its effects.

    ``snapshot`` is the machine as of the last step; it is there from ``start`` on.
    """

    __slots__ = (
        "_deferred",
        "_listeners",
        "_mailbox",
        "_phase",
        "_registry",
        "_saved",
        "_task",
        "chart",
        "children",
        "environment",
        "id",
        "input",
        "parent",
        "snapshot",
        "timers",
    )

    snapshot: Snapshot

    def __init__(
        self,
        chart: Chart,
        *,
        id: str | None = None,  # noqa: A002
        input: Any = None,  # noqa: A002
        environment: Environment | None = None,
        parent: Interpreter | None = None,
    ) -> None:
        self.chart = chart
        self.id = id if id is not None else chart.id
        self.input = input
        self.environment = environment or _DEFAULT
        self.parent = parent
        self.children: dict[str, Child] | None = None
        self.timers: dict[str, PendingTimer] | None = None
        self._mailbox: deque[Item] | None = None
        self._deferred: list[Event] | None = None
        self._listeners: Listeners | None = None
        self._registry: dict[str, Child] | None = None
        self._saved: persistence.Saved | None = None
        self._task: asyncio.Task[None] | None = None
        self._phase = NEW

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} {getattr(self, 'snapshot', None)!r}>"

    # -- life -----------------------------------------------------------------------------------

    def _begin(self) -> list[BaseException]:
        """Enter the initial states, or take up the restored one; give what went wrong."""
        saved, self._saved = self._saved, None
        if saved is not None:
            if saved.snapshot.status == "active":
                persistence.resume(self, saved)
            else:
                self._shut()
            if self._listeners is not None:
                self._listeners.changed(self.snapshot)
            return []
        event = Event(INIT, {"input": self.input})
        trace = self._traced(event)
        try:
            snapshot, effects = self.chart.begin(self.input, trace=trace)
        except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self.snapshot = self.chart.unstarted(self.input)
            return self._fault(error, "fail")
        return self._take(snapshot, effects, event, trace)

    def _end(self) -> None:
        """Stop timers, services and children; no exit action runs, what waits is dropped."""
        self.snapshot, effects = self.chart.stop(self.snapshot)
        self._shut()
        for effect in effects:
            try:
                perform(self, effect)
            except Exception as error:  # noqa: BLE001 - the other children must still be stopped
                self.environment.on_error(self, error)
        if self._listeners is not None:
            self._listeners.changed(self.snapshot)

    @abstractmethod
    def deliver(self, item: Item) -> None:
        """Handle an event that no sender waits for: what goes wrong is told to ``on_error``."""

    @abstractmethod
    def _wait(
        self, waiting: Awaitable[Any], remaining: list[Effect], errors: list[BaseException]
    ) -> None:
        """Let an action await; the effects behind it, and other events, wait for it."""

    def peer(self, name: str) -> Interpreter | None:
        """The machine that ``name`` means to this one; a machine on its own has no peers."""
        del name

    @property
    def registry(self) -> dict[str, Child]:
        """The machines of this tree by system id."""
        root = self
        while root.parent is not None:
            root = root.parent
        if root._registry is None:  # noqa: SLF001 - of the same class
            root._registry = {}  # noqa: SLF001
        return root._registry  # noqa: SLF001

    @property
    def ended(self) -> bool:
        """Whether it is over: finished, failed or stopped."""
        return self._phase == ENDED

    @property
    def busy(self) -> bool:
        """Whether an event is being handled, perhaps by an action that awaits something."""
        return self._phase in (BUSY, WAITING)

    # -- looking --------------------------------------------------------------------------------

    def subscribe(self, function: Callable[[Snapshot], Any]) -> Unsubscribe:
        """Call ``function`` with the snapshot after each event; the result ends that."""
        return self._listening().subscribe(function)

    def on(self, event_type: str, function: Callable[[Event], Any]) -> Unsubscribe:
        """Call ``function`` with each emitted event of this type, or of any with ``*``."""
        return self._listening().on(event_type, function)

    async def wait_for(
        self, predicate: Callable[[Snapshot], bool], timeout: Duration | None = None
    ) -> Snapshot:
        """Wait for a snapshot that satisfies ``predicate``; one that does already is enough.

        Raises:
            WaitTimeout: None came within ``timeout``, by the machine's clock.
            ChartError: The machine ended first.
        """
        timeout_s = None if timeout is None else seconds(timeout, "timeout")
        return await listening.wait_for(self, predicate, timeout_s)

    async def settled(self) -> Snapshot:
        """Wait until no action of the machine awaits anything; give the snapshot."""
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})
        return self.snapshot

    def emitted(self, event: Event) -> None:
        """Tell those who listen to emitted events."""
        if self._listeners is not None:
            self._listeners.emitted(event)

    def _listening(self) -> Listeners:
        if self._listeners is None:
            self._listeners = Listeners()
        return self._listeners

    # -- keeping --------------------------------------------------------------------------------

    def persist(self) -> dict[str, Any]:
        """The machine as JSON: snapshot, timers, children. ``Actor.restore`` takes it back.

        Raises:
            UsageError: It was not started, is busy, or its data cannot be said in JSON.
        """
        if self._phase == NEW or self.busy:
            raise UsageError(
                f"machine {self.id!r} is busy or was not started; persist it between events"
            )
        kept = persistence.to_json(self, list(self._deferred or ()))
        try:
            json.dumps(kept, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"machine {self.id!r} contains a value that is not JSON: {error}"
            ) from error
        return kept

    def adopt(self, saved: persistence.Saved) -> None:
        """Continue from ``saved`` when started."""
        self._saved = saved
        self.snapshot = saved.snapshot
        self._deferred = list(saved.deferred) or None

    # -- events ---------------------------------------------------------------------------------

    def _traced(self, event: Event) -> Trace | None:
        inspect = self.environment.inspect
        if inspect is None:
            return None
        inspect(EventReceived(self, event))
        return []

    def _handle(self, item: Item) -> Sequence[BaseException]:
        """Handle one event; give what went wrong."""
        event = item if isinstance(item, Event) else item.claim(self)
        if event is None:
            return _NO_ERRORS
        trace = self._traced(event)
        try:
            snapshot, effects = self.chart.step(self.snapshot, event, trace)
        except Exception as error:  # noqa: BLE001 - the sender gets it, whatever it is
            return self._fault(error, self.environment.faults)
        if not effects and trace is None and self._listeners is None and self._deferred is None:
            self.snapshot = snapshot
            return _NO_ERRORS
        return self._take(snapshot, effects, event, trace)

    def _fault(self, error: Exception, policy: Literal["fail", "keep"]) -> list[BaseException]:
        if policy == "keep":
            return [error]
        snapshot, effects = self.chart.fail(self.snapshot, error)
        return self._take(snapshot, effects, Event(error_actor(self.id), {"error": error}), None)

    def _take(
        self, snapshot: Snapshot, effects: Effects, event: Event, trace: Trace | None
    ) -> list[BaseException]:
        """Put ``snapshot`` in place and do ``effects``; give what went wrong."""
        before = getattr(self, "snapshot", None)
        self.snapshot = snapshot
        inspect = self.environment.inspect
        if inspect is not None:
            for taken in trace or ():
                for transition in taken.transitions:
                    if transition.guard is not None:
                        names = tuple(transition.guard.names())
                        inspect(GuardHeld(self, names, transition))
                inspect(MicrostepTaken(self, taken))
            inspect(SnapshotChanged(self, event, snapshot))
        if self._deferred and (
            before is None or before.configuration is not snapshot.configuration
        ):
            self._mailbox = self._mailbox or deque()
            self._mailbox.extendleft(reversed(self._deferred))
            self._deferred = None
        if snapshot.status != "active":
            self._shut()
        errors: list[BaseException] = []
        self._perform(list(effects), errors)
        if self._listeners is not None:
            self._listeners.changed(snapshot)
        return errors

    def _perform(self, effects: list[Effect], errors: list[BaseException]) -> None:
        inspect = self.environment.inspect
        for index, effect in enumerate(effects):
            if inspect is not None:
                inspect(EffectRun(self, effect))
            try:
                if isinstance(effect, Unhandled):
                    self._unhandled(effect.event)
                elif isinstance(effect, Finish):
                    self._finish(effect)
                else:
                    waiting = perform(self, effect)
                    if waiting is not None:
                        self._wait(waiting, effects[index + 1 :], errors)
                        return
            except Exception as error:  # noqa: BLE001 - the other effects must still be done
                errors.append(error)

    def _unhandled(self, event: Event) -> None:
        match self.environment.unhandled:
            case "ignore":
                pass
            case "error":
                raise EventUnhandled(event.type, self.snapshot.value)
            case "dead-letter":
                self.environment.dead_letter(self, event)
            case "defer":
                self._deferred = self._deferred or []
                if len(self._deferred) >= DEFERRED_MAX:
                    raise ChartError(
                        f"machine {self.id!r} has already deferred {DEFERRED_MAX} events, the "
                        "maximum"
                    )
                self._deferred.append(event)

    def _finish(self, effect: Finish) -> None:
        if self.parent is None:
            if effect.error is not None:
                raise effect.error
            return
        if effect.error is not None:
            news = Event(error_actor(self.id), {"error": effect.error})
        else:
            news = Event(done_actor(self.id), {"output": effect.output})
        self.parent.deliver(news)

    def _shut(self) -> None:
        """No event is handled from now on."""
        self._phase = ENDED
        self._mailbox = None
        self._deferred = None
        for name in list(self.timers or ()):
            stop_timer(self, name)
