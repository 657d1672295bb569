"""What a flow's history says so far, folded event by event, and where an event contradicts it.

Pure. Owns the rules over what is recorded: O2 of steps, O5 of signals, O6 of timers, O7 of the
end. It knows nothing of stores and hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from outlive.flows.events import (
    Ended,
    Event,
    Retried,
    SignalReceived,
    StepEnded,
    StepIntended,
    TimerFired,
    TimerSet,
    decode_events,
    first_events,
)

Finding = tuple[str, str]
"""The rule that was broken, and how."""


@dataclass(slots=True)
class _Timer:
    due_us: int
    version: int
    fired: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One commit as a history keeps it: ``at_us`` is the store's wall clock when it was made.

    ``cut``: it is the part of one that a retry has left.
    """

    version: int
    token: int
    at_us: int
    events: str
    cut: bool = False


@dataclass(slots=True)
class Story:
    """The current run of one flow. ``ends`` are the tokens under which steps were recorded.

    ``drifted`` says that clocks differed by more than is promised, so that a host may take a timer
    for due before it is.
    """

    name: str
    drifted: bool = False
    rows: list[Row] = field(default_factory=list[Row])
    ends: dict[str, int] = field(default_factory=dict[str, int])
    intended: set[str] = field(default_factory=set[str])
    timers: dict[int, _Timer] = field(default_factory=dict[int, _Timer])
    signals: dict[str, None] = field(default_factory=dict[str, None])
    ended: str | None = None

    def add(self, row: Row) -> Iterator[Finding]:
        """Take one more row in, and tell what it contradicts."""
        events = decode_events(row.events)
        for event in events:
            if self.ended is not None and not isinstance(event, Retried):
                yield "O7", f"{self.name} has {event} after its end as {self.ended}"
            yield from self._add(event, row)
        self.rows.append(row)

    def begin(self, rows: Sequence[Row]) -> None:
        """What was copied from another flow, which was judged there."""
        for row in rows:
            for _ in self.add(row):
                continue

    def restarted(self, row: Row) -> Iterator[Finding]:
        """The same flow began anew with this row, which may repeat signals nobody has read."""
        carried = [e for e in decode_events(row.events) if isinstance(e, SignalReceived)]
        fresh = Story(self.name)
        self.rows, self.ends, self.intended = [row], fresh.ends, fresh.intended
        self.timers, self.ended = fresh.timers, None
        twice = len(carried) - len({signal.id for signal in carried})
        if twice:
            yield "O5", f"{self.name} carries {twice} signals over twice"
        self.signals.update(dict.fromkeys(signal.id for signal in carried))

    def _add(self, event: Event, row: Row) -> Iterator[Finding]:
        match event:
            case StepEnded() | StepIntended():
                yield from self._stepped(event, row)
            case TimerSet(timer=number, due=due):
                if number in self.timers:
                    yield "O6", f"{self.name} sets the timer {number} twice"
                self.timers[number] = _Timer(due, row.version)
            case TimerFired(timer=number, at=at):
                yield from self._fired(number, at, row)
            case SignalReceived(id=signal):
                if signal in self.signals:
                    yield "O5", f"{self.name} received the signal {signal} twice"
                self.signals[signal] = None
            case Ended(status=status):
                self.ended = status
            case Retried(to=version, kept=count):
                self._rewind(version, count)
            case _:
                return

    def _stepped(self, event: StepEnded | StepIntended, row: Row) -> Iterator[Finding]:
        step = event.step
        if isinstance(event, StepIntended):
            if step in self.intended:
                yield "O3", f"{self.name} intends the step {step} twice"
            self.intended.add(step)
            return
        if step in self.ends:
            yield "O2", f"{self.name} has two records of the step {step}"
        self.ends[step] = row.token

    def _fired(self, number: int, at_us: int, row: Row) -> Iterator[Finding]:
        timer = self.timers.get(number)
        if timer is None or timer.version == row.version:
            yield "O6", f"{self.name} fired the timer {number} before it was set for good"
            return
        if timer.fired:
            yield "O6", f"{self.name} fired the timer {number} twice"
        timer.fired = True
        if at_us < timer.due_us:
            yield "O6", f"{self.name} says that the timer {number} fired before it was due"
        if row.at_us < timer.due_us and not self.drifted:
            early_us = timer.due_us - row.at_us
            yield "O6", f"{self.name} fired the timer {number} {early_us} us early"

    def _rewind(self, version: int, count: int) -> None:
        # Void rows stay in the store, and what they read stays read.
        kept = [row for row in self.rows if row.version <= version]
        if count:
            cut = next(row for row in self.rows if row.version > version)
            kept.append(replace(cut, events=first_events(cut.events, count), cut=True))
        fresh = Story(self.name)
        fresh.begin(kept)
        self.rows, self.ends, self.intended = fresh.rows, fresh.ends, fresh.intended
        self.timers, self.ended = fresh.timers, None
