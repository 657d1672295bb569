"""``Actor``: one machine in memory that handles its events at once.

The plain interpreter of ``Chart.step``. Events are handled one at a time, in the order of their
arrival; an event that arrives while another is handled waits, also while an action of the machine
awaits something. ``send`` handles the event before it returns unless the machine is busy, and
raises what went wrong in handling it. One thread, or one event loop, at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from outlive.charts import persistence
from outlive.charts.chart import Chart
from outlive.charts.effects import Effect
from outlive.charts.environment import Environment
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.interpreter import (
    BUSY,
    ENDED,
    IDLE,
    NEW,
    WAITING,
    Interpreter,
    Item,
    close_after,
)
from outlive.charts.services import is_cancelled
from outlive.errors import ChartError, UsageError


class Actor(Interpreter):
    """A machine in memory: ``Actor(chart).start()``, then ``send``."""

    __slots__ = ()

    def start(self) -> Actor:
        """Enter the initial states, or take up a restored one, and do what is to be done.

        Raises:
            UsageError: It was started before.
            Exception: Whatever a decision or an action on the way raised. After a decision the
                machine has failed.
        """
        if self._phase != NEW:
            raise UsageError(f"machine {self.id!r} was already started; make another Actor")
        self._phase = BUSY
        self._settle(self._begin())
        return self

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
        kept = persistence.from_json(chart, saved, timers)
        actor = cls(chart, id=id or saved.get("id"), environment=environment)
        actor.adopt(kept)
        return actor

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
        self._end()
        self._abandon()

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

    def _wait(
        self, waiting: Awaitable[Any], remaining: list[Effect], errors: list[BaseException]
    ) -> None:
        """Let an action await; the effects behind it, and other events, wait for it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            close = getattr(waiting, "close", None)
            if close is not None:
                close()
            self._perform(remaining, errors)
            raise UsageError("an async action needs a running event loop") from None
        if self._phase == BUSY:
            self._phase = WAITING
        self._task = loop.create_task(
            self._resume(waiting, remaining), name=f"outlive machine {self.id}"
        )
        close_after(self._task, waiting)

    async def _resume(self, waiting: Awaitable[Any], remaining: list[Effect]) -> None:
        errors: list[BaseException] = []
        try:
            await waiting
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # Nobody cancelled this machine: something that the action awaited was cancelled.
            errors.append(ChartError(f"an action of machine {self.id!r} was cancelled"))
        except Exception as error:  # noqa: BLE001 - nobody waits, so that on_error hears of it
            errors.append(error)
        if self._phase == WAITING:
            self._phase = BUSY
        self._perform(remaining, errors)
        for error in errors:
            self.environment.on_error(self, error)
        self._settle([])

    def _abandon(self) -> None:
        """Cancel the action that awaits something, unless it is the one that asks."""
        task = self._task
        if task is None or task.done():
            return
        try:
            own = asyncio.current_task() is task
        except RuntimeError:
            own = False
        if not own:
            task.cancel()

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
