"""A history as it is replayed: what still counts of it, how it is told, and what may differ.

Pure. Operators may have made a part of it void, or copied it from another flow; code may have
changed since. What code may change freely is decided here; all else is ``NonDeterminism``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import msgspec

from outlive.errors import UsageError
from outlive.flows.arguments import Arguments, text_of
from outlive.flows.events import (
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Ended,
    Event,
    Forked,
    Patched,
    Retried,
    SignalReceived,
    SignalSent,
    StepEnded,
    StepIntended,
    StepRetrying,
    StepSent,
    TimerFired,
    TimerSet,
    UpdateReceived,
)
from outlive.flows.rewinding import Item, flat, standing
from outlive.model.instance import HistoryRow
from outlive.serialization import masked

# Inputs are shown in an error that people read; the rest of a long one says no more.
_SHOWN_CHARS_MAX = 200


@dataclass(slots=True)
class Script:
    """What is to be replayed, commit by commit.

    ``carried`` are signals that the run before left unread: they are there when the code begins.
    ``seed`` is the id and the base of the flow that the beginning was copied from, if it was.
    ``forks`` counts the copies: before the last of them inputs are not compared. ``edited``: one of
    them may have been given another input.
    """

    rows: list[list[Item]]
    carried: list[SignalReceived]
    patches: frozenset[str]
    seed: tuple[str, int] | None
    forks: int
    edited: bool

    @property
    def unbegun(self) -> bool:
        """Whether the flow was cancelled before its code had begun."""
        first = self.rows[0][0] if self.rows and self.rows[0] else None
        return isinstance(first, CancelRequested) and first.unbegun


def script_of(rows: Sequence[HistoryRow], base: int = 0) -> Script:
    """What is to be replayed of a history that begins after the version ``base``.

    Raises:
        HistoryTooNew: A newer release wrote it.
    """
    forks: list[Forked] = []
    kept = standing(rows, forks)
    everything = [item for _, items in kept for item in items]
    seed = (forks[0].id, forks[0].base) if forks else None
    carried: list[SignalReceived] = []
    if (base or (seed is not None and seed[1])) and kept and kept[0][0] == rows[0].version:
        # The commit that ended the run before is the first of this one.
        carried = _taken_signals(kept[0][1])
    patches = frozenset(item.id for item in flat(everything) if isinstance(item, Patched))
    edited = any(fork.edited for fork in forks)
    return Script([items for _, items in kept], carried, patches, seed, len(forks), edited)


def is_ahead(item: object) -> bool:
    """Whether this was recorded before the code was told of it."""
    return isinstance(item, (StepEnded, StepRetrying)) and item.ahead


def taken_ahead(rows: list[list[Item]]) -> list[Event]:
    """Take what was recorded ahead out of the end of ``rows``: no code has seen it yet."""
    ahead: list[Event] = []
    for row in reversed(rows):
        while row and is_ahead(row[-1]):
            ahead.append(cast("Event", row.pop()))
        if row:
            break
    return ahead[::-1]


def _taken_signals(items: list[Item]) -> list[SignalReceived]:
    """Take the signals out of the beginning of ``items``."""
    signals: list[SignalReceived] = []
    for item in items:
        if not isinstance(item, SignalReceived):
            break
        signals.append(item)
    del items[: len(signals)]
    return signals


class Copied(NamedTuple):
    """The part of a history that was copied from the flow ``origin``, at ``base``, into ``id``."""

    origin: str
    base: int
    id: str
    edited: bool

    def is_same(self, recorded: msgspec.Raw, found: msgspec.Raw) -> bool:
        """Whether two inputs differ in nothing but the ids of the two flows."""
        given = bytes(recorded).replace(self.origin.encode(), self.id.encode())
        return given == bytes(found)


def same_input(recorded: msgspec.Raw, found: msgspec.Raw, arguments: Arguments) -> bool:
    """Whether two inputs mean the same to the code as it is now."""
    if bytes(recorded) == bytes(found):
        return True
    try:
        # A field or a parameter that came later, with a default, is no difference. Values are
        # compared as well as texts: what was decoded without a field may be encoded without it.
        before, now = arguments.decode(recorded), arguments.decode(found)
        return before == now or bytes(arguments.canonical(recorded)) == bytes(found)
    except UsageError:
        return False


def told(event: Event) -> str:
    """An event in words, with its identity."""
    return _WORDS[type(event)](event)


_WORDS: dict[type[Any], Callable[[Any], str]] = {
    StepEnded: lambda event: f"the end of step {event.step}",
    StepRetrying: lambda event: f"the failure of attempt {event.attempt} of step {event.step}",
    StepSent: lambda event: f"step {event.step} in a queue, with {_shown(event.input)}",
    StepIntended: lambda event: f"step {event.step} with once, with {_shown(event.input)}",
    TimerSet: lambda event: f"timer {event.timer} set",
    TimerFired: lambda event: f"timer {event.timer} fired",
    ChildStarted: lambda event: f"child {event.child}, with {_shown(event.input)}",
    ChildEnded: lambda event: f"the end of child {event.child}",
    SignalSent: lambda event: f"signal {event.name!r} (number {event.number}) to {event.to!r}",
    SignalReceived: lambda event: f"signal {event.name!r} received",
    UpdateReceived: lambda event: f"update {event.name!r} received",
    CancelRequested: lambda _: "a cancellation request",
    Patched: lambda event: f"patch {event.id!r}",
    Ended: lambda event: f"the end of the flow ({event.status})",
    Retried: lambda event: f"a retry from version {event.to}",
    Forked: lambda event: f"a fork of flow {event.id!r}",
}


def told_call(identity: str, given: msgspec.Raw) -> str:
    """A call in words."""
    return f"{identity} called with {_shown(given)}"


def _shown(raw: msgspec.Raw) -> str:
    return masked(text_of(raw), _SHOWN_CHARS_MAX)
