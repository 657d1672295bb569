"""Events with somebody who waits for the answer, and the chain of those who wait for each other.

Owns the race between an answer, a timeout and a cancellation: an event is begun by its machine or
given up by its sender, never both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from outlive.charts.effecting import PendingTimer
from outlive.charts.events import Event
from outlive.charts.snapshot import Snapshot
from outlive.runtime.running_loop import running_loop

if TYPE_CHECKING:
    from outlive.charts.orchestrator.worker import Worker

# The actions that wait, directly or through requests to other machines, for what runs now.
CHAIN: ContextVar[tuple[Held, ...]] = ContextVar("outlive_chart_chain", default=())


class Request:
    """An event whose sender waits for the new snapshot.

    ``claim`` and ``give_up`` come from two threads perhaps; taking the one item off a list is a
    single step for both, so that only one of them succeeds.
    """

    __slots__ = ("_loop", "_open", "answer", "chain", "event", "faulted", "run_late", "sent_at")

    def __init__(self, event: Event, *, run_late: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._open = [True]
        self.answer: asyncio.Future[Snapshot] = self._loop.create_future()
        self.event = event
        self.run_late = run_late
        self.chain = CHAIN.get()
        self.sent_at = self._loop.time()
        # Whether what went wrong was a decision: then only the sender hears of it.
        self.faulted = False

    def claim(self) -> bool:
        """Begin it; false if the sender gave it up."""
        return self._take()

    def give_up(self) -> bool:
        """Stop waiting; true if it will never be handled."""
        return not self.run_late and self._take()

    def _take(self) -> bool:
        try:
            return self._open.pop()
        except IndexError:
            return False

    def resolve(self, result: Snapshot | BaseException) -> None:
        """Answer the sender, in the sender's own thread. The first answer counts."""
        if running_loop() is self._loop:
            self._set(result)
        else:
            # A loop that was closed has nobody left who waits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: Snapshot | BaseException) -> None:
        if self.answer.done():
            return
        if isinstance(result, BaseException):
            self.answer.set_exception(result)
            # A sender that gave up never looks; that is no reason to complain.
            self.answer.exception()
        else:
            self.answer.set_result(result)


class Halt:
    """The end of a mailbox: the machine stops when it gets here."""

    __slots__ = ("done",)

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done


class Sampled:
    """An event that remembers when it was sent, so that latency can be told."""

    __slots__ = ("event", "sent_at")

    def __init__(self, event: Event, sent_at: float) -> None:
        self.event = event
        self.sent_at = sent_at


class Held:
    """An event whose action awaits something: what is to be said at its end, and to whom."""

    __slots__ = ("errors", "outer", "over", "request", "snapshot", "worker")

    def __init__(
        self,
        worker: Worker,
        request: Request | None,
        errors: list[BaseException],
        *,
        outer: bool,
    ) -> None:
        self.worker = worker
        self.request = request
        self.snapshot = worker.snapshot
        self.errors = errors
        # Whether the machine waits for it. A request along the chain is handled inside that wait.
        self.outer = outer
        self.over = False

    @property
    def chain(self) -> tuple[Held, ...]:
        """Who waits for what runs inside of it."""
        return (self,) if self.request is None else (*self.request.chain, self)


def waits(worker: Worker, chain: tuple[Held, ...]) -> bool:
    """Whether an action of ``worker`` waits for whoever has this chain."""
    return any(held.worker is worker and not held.over for held in chain)


Mail = Event | PendingTimer | Request | Sampled | Halt


def combined(machine: str, errors: Sequence[BaseException]) -> BaseException:
    """One error for all that went wrong with one event."""
    if len(errors) == 1:
        return errors[0]
    return BaseExceptionGroup(f"machine {machine!r}: several effects failed", errors)


def event_of(mail: Any) -> Event | None:
    """The user's event in a piece of mail; ``None`` for the machine's own affairs."""
    if isinstance(mail, Request | Sampled):
        return mail.event
    if isinstance(mail, Event) and not mail.type.startswith("xstate."):
        return mail
    return None
