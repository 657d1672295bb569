"""``Actor``: one machine in memory, its mailbox, and the effects of its steps.

The plain interpreter of ``Chart.step``. Events are handled one at a time, in the order of their
arrival; an event that arrives while another is handled waits, also while an action of the machine
awaits something. ``send`` handles the event before it returns unless the machine is busy, and
raises what went wrong in handling it. One thread, or one event loop, at a time.

A machine costs little while nothing happens: no task, no dict; mailbox, timers, children and
listeners are made when they are first needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.charts import listening, persistence
from holdfast.charts.chart import Chart
from holdfast.charts.effecting import perform
from holdfast.charts.environment import Environment
from holdfast.charts.events import INIT, Event, EventLike, as_event
from holdfast.charts.listening import Listeners, Unsubscribe
from holdfast.charts.processing import BUSY, ENDED, IDLE, NEW, WAITING, Processing
from holdfast.charts.snapshot import Snapshot
from holdfast.errors import UsageError
from holdfast.model.options import Duration, seconds

_DEFAULT = Environment()


class Actor(Processing):
    """A machine in memory: ``Actor(chart).start()``, then ``send``.

    ``snapshot`` is the machine as of the last step; it is there from ``start`` on.
    """

    __slots__ = ("_saved", "input")

    def __init__(
        self,
        chart: Chart,
        *,
        id: str | None = None,  # noqa: A002
        input: Any = None,  # noqa: A002
        environment: Environment | None = None,
        parent: Processing | None = None,
    ) -> None:
        super().__init__(chart, chart.id if id is None else id, environment or _DEFAULT, parent)
        self.input = input
        self._saved: persistence.Saved | None = None

    def __repr__(self) -> str:
        return f"<Actor {self.id!r} {getattr(self, 'snapshot', None)!r}>"

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> Actor:
        """Enter the initial states, or take up a restored one, and do what is to be done.

        Raises:
            UsageError: It was started before.
            Exception: Whatever a decision or an action on the way raised. After a decision the
                machine has failed.
        """
        if self._phase != NEW:
            raise UsageError(f"machine {self.id!r} was started before; make another Actor")
        self._phase = BUSY
        if self._saved is not None:
            persistence.resume(self, self._saved)
            self._saved = None
            if self._listeners is not None:
                self._listeners.changed(self.snapshot)
            self._settle([])
            return self
        event = Event(INIT, {"input": self.input})
        trace = self._traced(event)
        try:
            snapshot, effects = self.chart.begin(self.input, trace=trace)
        except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self.snapshot = self.chart.unstarted(self.input)
            self._settle(self._fault(error, "fail"))
            return self
        self._settle(self._take(snapshot, effects, event, trace))
        return self

    def begin(self) -> None:
        """``start``, for a machine that a parent starts: nobody waits for its errors."""
        try:
            self.start()
        except Exception as error:  # noqa: BLE001 - nobody waits, so that on_error hears of it
            self.environment.on_error(self, error)

    def stop(self) -> None:
        """End the machine: its timers, services and children are stopped, no exit action runs.

        Events that wait are dropped. Safe to repeat.
        """
        if self._phase in (NEW, ENDED):
            self._phase = ENDED
            return
        self.snapshot, effects = self.chart.stop(self.snapshot)
        self._shut()
        for effect in effects:
            perform(self, effect)
        if self._listeners is not None:
            self._listeners.changed(self.snapshot)

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
            raise UsageError(f"machine {self.id!r} is not at rest; persist it between events")
        return persistence.to_json(self, list(self._deferred or ()))

    @classmethod
    def restore(
        cls,
        chart: Chart,
        saved: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002
        environment: Environment | None = None,
        timers: persistence.TimerPolicy = "absolute",
    ) -> Actor:
        """A machine that continues from ``saved``; ``start`` sets it going.

        No entry action runs again. Services that had not ended are started again, with the input
        they had. Timers fire at the time they were due (``absolute``; at once if that is past),
        after the time that was left (``remaining``), or after their whole delay (``restart``).

        Raises:
            UsageError: ``saved`` does not fit the chart.
        """
        actor = cls(chart, id=id or saved.get("id"), environment=environment)
        actor.adopt(persistence.from_json(chart, saved, timers))
        return actor

    def adopt(self, saved: persistence.Saved) -> None:
        """Continue from ``saved`` when started."""
        self._saved = saved
        self.snapshot = saved.snapshot
        self._deferred = list(saved.deferred) or None

    # -- events ---------------------------------------------------------------------------------

    def send(self, event: EventLike, /, **data: Any) -> None:
        """Handle an event: ``send("PAY", amount=5)``.

        Handled before this returns, unless the machine is busy: then it waits its turn. A machine
        that has ended drops it.

        Raises:
            UsageError: The machine was not started, or this is no event.
            EventUnhandled: Nothing takes it, and the policy is ``error``.
            Exception: Whatever a decision or a plain action raised while it was handled. After a
                decision the machine is as the policy for faults says; after an action it has
                moved on, and its other effects were done.
        """
        given = None
        if isinstance(event, str):
            given = Event(event, data) if data else self.chart.events.get(event)
        given = given or as_event(event)
        if self._phase != IDLE:
            self._queue(given)
            return
        self._phase = BUSY
        errors = self._handle(given)
        if errors or self._mailbox is not None or self._phase != BUSY:
            self._settle(errors)
        else:
            self._phase = IDLE
