"""How a machine in memory handles its events: one at a time, effects in order, errors to somebody.

Owns the mailbox and the phases of a machine. An event that arrives while another is handled waits,
also while an action of the machine awaits something. What a step decided was decided before; here
it is only done.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import Any, Literal

from holdfast.charts.chart import Chart
from holdfast.charts.effecting import PendingTimer, perform, stop_timer
from holdfast.charts.effects import Effect, Effects, Finish, Unhandled
from holdfast.charts.environment import Environment
from holdfast.charts.events import Event, done_actor, error_actor
from holdfast.charts.inspection import EffectRun, EventReceived, MicrostepTaken, SnapshotChanged
from holdfast.charts.listening import Listeners
from holdfast.charts.services import Child
from holdfast.charts.snapshot import Snapshot
from holdfast.charts.stepping import Trace
from holdfast.errors import ChartError, EventUnhandled, UsageError

# Deferred events wait for a change of state that may never come; more than this is a flood.
DEFERRED_MAX = 1_000

NEW, IDLE, BUSY, WAITING, ENDED = range(5)

Item = Event | PendingTimer

_NO_ERRORS: Sequence[BaseException] = ()


class Processing:
    """The part of a machine that handles events. ``Actor`` adds what people call."""

    __slots__ = (
        "_deferred",
        "_listeners",
        "_mailbox",
        "_phase",
        "_registry",
        "_task",
        "chart",
        "children",
        "environment",
        "id",
        "parent",
        "snapshot",
        "timers",
    )

    snapshot: Snapshot

    def __init__(
        self, chart: Chart, name: str, environment: Environment, parent: Processing | None
    ) -> None:
        self.chart = chart
        self.id = name
        self.environment = environment
        self.parent = parent
        self.children: dict[str, Child] | None = None
        self.timers: dict[str, PendingTimer] | None = None
        self._mailbox: deque[Item] | None = None
        self._deferred: list[Event] | None = None
        self._listeners: Listeners | None = None
        self._registry: dict[str, Child] | None = None
        self._task: asyncio.Task[None] | None = None
        self._phase = NEW

    @property
    def registry(self) -> dict[str, Child]:
        """The machines of this tree by system id."""
        root = self
        while root.parent is not None:
            root = root.parent
        if root._registry is None:  # noqa: SLF001 - of the same class
            root._registry = {}  # noqa: SLF001
        return root._registry  # noqa: SLF001

    def emitted(self, event: Event) -> None:
        """Tell those who listen to emitted events."""
        if self._listeners is not None:
            self._listeners.emitted(event)

    def deliver(self, item: Item) -> None:
        """Handle an event that no sender waits for: what goes wrong is told to ``on_error``."""
        if self._phase != IDLE:
            self._queue(item)
            return
        self._phase = BUSY
        try:
            self._settle(self._handle(item))
        except Exception as error:  # noqa: BLE001 - nobody waits, so that on_error hears of it
            self.environment.on_error(self, error)

    def _queue(self, item: Item) -> None:
        if self._phase == NEW:
            raise UsageError(f"machine {self.id!r} was not started")
        if self._phase == ENDED:
            if self.environment.unhandled == "dead-letter" and isinstance(item, Event):
                self.environment.dead_letter(self, item)
            return
        if self._mailbox is None:
            self._mailbox = deque()
        self._mailbox.append(item)

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
                        self._wait(waiting, effects[index + 1 :])
                        return
            except Exception as error:  # noqa: BLE001 - the other effects must still be done
                errors.append(error)

    def _wait(self, waiting: Awaitable[Any], remaining: list[Effect]) -> None:
        """Let an action await; the effects behind it, and other events, wait for it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            close = getattr(waiting, "close", None)
            if close is not None:
                close()
            errors: list[BaseException] = []
            self._perform(remaining, errors)
            raise UsageError("an async action needs a running event loop") from None
        if self._phase == BUSY:
            self._phase = WAITING
        self._task = loop.create_task(
            self._resume(waiting, remaining), name=f"holdfast machine {self.id}"
        )

    async def _resume(self, waiting: Awaitable[Any], remaining: list[Effect]) -> None:
        errors: list[BaseException] = []
        try:
            await waiting
        except Exception as error:  # noqa: BLE001 - nobody waits, so that on_error hears of it
            errors.append(error)
        if self._phase == WAITING:
            self._phase = BUSY
        self._perform(remaining, errors)
        for error in errors:
            self.environment.on_error(self, error)
        self._settle([])

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
                        f"machine {self.id!r} has deferred {DEFERRED_MAX} events already"
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

    def _settle(self, errors: Sequence[BaseException]) -> None:
        """Handle what waits in the mailbox, then raise what went wrong with the first event."""
        while self._phase == BUSY and self._mailbox:
            for error in self._handle(self._mailbox.popleft()):
                self.environment.on_error(self, error)
        if self._phase == BUSY:
            self._phase = IDLE
            self._mailbox = None
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"machine {self.id!r}: several effects failed", errors)
