"""Intake: what happened to a flow and was not fed to it yet, in order, and what feeding it leaves.

Owns which letters a commit takes out of the mailbox, and which events need not be recorded, because
they were before: those of a transaction, and those that came while the flow stood still.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from outlive.flows.arguments import text_of
from outlive.flows.decision import RetryDue
from outlive.flows.events import (
    ChildEnded,
    Event,
    Fed,
    StepEnded,
    StepRetrying,
    UpdateReceived,
)
from outlive.flows.letters import KINDS, SIGNAL, rejection
from outlive.flows.run import FlowRun
from outlive.model.instance import Letter, Reply
from outlive.names import InstanceId

# Fed before the next commit. More would make one row of the history, and one wait for the store,
# long enough to be felt by everybody else on this loop.
_FED_MAX = 500


class Taken(NamedTuple):
    """Children were not started, because others have their ids."""

    ids: Sequence[InstanceId]
    at: int


Happened = Fed | RetryDue | Taken


class Intake:
    """What is ``waiting`` to be fed to one flow."""

    __slots__ = ("_known", "_recorded", "consumed", "replies", "unknown", "waiting")

    def __init__(self) -> None:
        # What happened, the number of the letter that brought it (or 0), whether it is recorded.
        self.waiting: list[tuple[Happened, int, bool]] = []
        # So many of the first ones are recorded, and none behind them.
        self._known = 0
        # Fed, but recorded before.
        self._recorded: list[Happened] = []
        self.consumed: list[int] = []
        self.replies: list[Reply] = []
        # The kind of a letter that only a newer release can read; it stays in the mailbox.
        self.unknown: str | None = None

    @property
    def fresh(self) -> bool:
        """Whether there is something that is not recorded yet."""
        return len(self.waiting) > self._known

    def put(self, *events: Happened) -> None:
        """Something happened."""
        for event in events:
            self.waiting.append((event, 0, False))

    def put_recorded(self, event: StepEnded) -> None:
        """Something happened, was recorded already, and comes before all that waits."""
        self.waiting.insert(0, (event, 0, True))
        self._known += 1

    def put_letters(
        self, run: FlowRun, letters: Iterable[Letter], at_us: int, *, settled: bool
    ) -> bool:
        """Letters came; whether any of them was taken.

        A deadline that had passed when a letter was sent comes before it, however late both are
        seen here: who sends after it is too late, whether a host ran meanwhile or not. Only where
        all is ``settled`` that the code has decided: a deadline that may be undone is none yet.
        """
        took, sent_us, passed = False, 0, 0
        for letter in letters:
            if settled and letter.sent_at_us > sent_us:
                sent_us = letter.sent_at_us
                # Never early by the store's clock of now, which may have been set back since.
                due = run.due(at_us, by_us=min(sent_us, at_us))
                self.put(*due[passed:])
                passed = len(due)
            if letter.kind == SIGNAL and run.inbox.full and not run.inbox.awaits(letter.name):
                # It stays in the mailbox, where it counts against those who send.
                continue
            if letter.kind not in KINDS:
                self.unknown = letter.kind
                continue
            took = True
            event = run.read(letter, at_us)
            if event is None:
                # Of no meaning to it: taken out of the mailbox, where it would wait for ever.
                self.consumed.append(letter.number)
            else:
                self.waiting.append((event, letter.number, False))
        return took

    def feed(self, run: FlowRun) -> None:
        """Feed what waits, one at a time, as much as one commit should hold.

        Raises:
            NonDeterminism: See ``FlowRun.feed``.
        """
        waiting = self.waiting
        if len(waiting) == 1:
            event, number, recorded = waiting[0]
            if type(event) is StepEnded and not recorded:
                # The usual one, alone.
                waiting.clear()
                if number:
                    self.consumed.append(number)
                run.feed(event)
                return
        fed = 0
        try:
            for event, number, recorded in waiting[:_FED_MAX]:
                fed += 1
                if number:
                    self.consumed.append(number)
                if type(event) is StepEnded and not recorded:
                    # The usual one.
                    run.feed(event)
                else:
                    self._feed(run, event, recorded=recorded)
                if run.ended:
                    return
        finally:
            del waiting[:fed]
            self._known = max(0, self._known - fed)

    def _feed(self, run: FlowRun, event: Happened, *, recorded: bool) -> None:
        if isinstance(event, Taken):
            run.children_taken(event.ids, event.at)
            return
        if type(event) is UpdateReceived:
            try:
                run.answering.accept(event.name, text_of(event.payload))
            except Exception as error:  # noqa: BLE001 - the sender is told, nothing is recorded
                self.replies.append(rejection(event.id, event.name, error))
                return
        if recorded:
            self._recorded.append(event)
        run.feed(event)

    def record(self, run: FlowRun) -> tuple[Event, ...]:
        """What became of steps and is not recorded; it is to be, and waits on to be fed.

        What letters brought is forgotten: it is still in the mailbox. So are timers, which stay
        due. What the store said of children is fed behind all that is recorded now, as a replay
        does it.
        """
        fresh: list[StepEnded | StepRetrying] = []
        later: list[tuple[Happened, int, bool]] = []
        # Thousands of steps may end one after the other: each of them is looked at once.
        for event, number, _ in self.waiting[self._known :]:
            if number:
                continue
            if isinstance(event, (StepEnded, StepRetrying)):
                fresh.append(_ahead(run, event))
            elif isinstance(event, (Taken, ChildEnded)):
                later.append((event, 0, False))
        del self.waiting[self._known :]
        self.waiting += [(event, 0, True) for event in fresh]
        self._known = len(self.waiting)
        self.waiting += later
        return tuple(fresh)

    def emptied(
        self, events: tuple[Event, ...]
    ) -> tuple[tuple[Event, ...], tuple[int, ...], tuple[Reply, ...]]:
        """For a commit: what it records of ``events``, the letters it consumes, and its replies.

        What was fed already recorded is left out of the events.
        """
        if self._recorded:
            known = {id(event) for event in self._recorded}
            events = tuple(event for event in events if id(event) not in known)
            self._recorded = []
        if not self.consumed and not self.replies:
            return events, (), ()
        consumed, replies = tuple(self.consumed), tuple(self.replies)
        self.consumed, self.replies = [], []
        return events, consumed, replies


def _ahead(run: FlowRun, event: StepEnded | StepRetrying) -> StepEnded | StepRetrying:
    """The event as it is recorded before the code is told of it."""
    known = run.calling.as_recorded(event) if isinstance(event, StepEnded) else event
    return msgspec.structs.replace(known, ahead=True)
