"""A history as it is replayed: what still counts of it, how it is told, and what may differ.

Pure. Operators may have made a part of it void, or copied it from another flow; code may have
changed since. What code may change freely is decided here; all else is ``NonDeterminism``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from holdfast.errors import UsageError
from holdfast.flows.arguments import Arguments, text_of
from holdfast.flows.events import (
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Ended,
    Event,
    Forked,
    Patched,
    Rewound,
    SignalReceived,
    SignalSent,
    StepEnded,
    StepIntended,
    StepRetrying,
    StepSent,
    TimerFired,
    TimerSet,
    UpdateReceived,
    decode_events,
    encode_events,
)
from holdfast.model.instance import HistoryRow
from holdfast.runtime.logs import masked

DECIDED = (StepIntended, StepSent, TimerSet, ChildStarted, SignalSent, Patched, Ended)

# Inputs are shown in an error that people read; the rest of a long one says no more.
_SHOWN_CHARS_MAX = 200


@dataclass(slots=True)
class Rewind:
    """An operator's retry: what came after is void, except for what others had sent.

    ``kept`` are the letters of the void part. Of the steps and children that were begun before it,
    those whose failure is void are begun again, and so is what the end of the flow stopped.
    """

    event: Rewound
    kept: list[Event] = field(default_factory=list[Event])
    failed_steps: list[str] = field(default_factory=list[str])
    failed_children: list[str] = field(default_factory=list[str])
    begun_steps: frozenset[str] = frozenset()
    begun_children: frozenset[str] = frozenset()


@dataclass(slots=True)
class Script:
    """What is to be replayed, commit by commit.

    ``carried`` are signals that the run before left unread: they are there when the code begins.
    ``seed`` is the id and the base of the flow that the beginning was copied from, if it was.
    ``forks`` counts the copies: before the last of them inputs are not compared.
    """

    rows: list[list[Event | Rewind]]
    carried: list[SignalReceived]
    patches: frozenset[str]
    seed: tuple[str, int] | None
    forks: int


def script_of(rows: Sequence[HistoryRow], base: int = 0) -> Script:
    """What is to be replayed of a history that begins after the version ``base``.

    Raises:
        HistoryTooNew: A newer release wrote it.
    """
    kept: list[tuple[int, list[Event | Rewind]]] = []
    seed: tuple[str, int] | None = None
    forks = 0
    for row in rows:
        items: list[Event | Rewind] = []
        for event in decode_events(row.events):
            if isinstance(event, Rewound):
                items.append(_rewound(event, kept))
                continue
            if isinstance(event, Forked):
                seed = seed or (event.id, event.base)
                forks += 1
            items.append(event)
        kept.append((row.version, items))
    carried: list[SignalReceived] = []
    if (base or (seed is not None and seed[1])) and kept and kept[0][0] == rows[0].version:
        # The commit that ended the run before is the first of this one.
        carried = _taken_signals(kept[0][1])
    everything = [item for _, items in kept for item in items]
    patches = frozenset(item.id for item in everything if isinstance(item, Patched))
    return Script([items for _, items in kept], carried, patches, seed, forks)


def is_ahead(item: object) -> bool:
    """Whether this was recorded before the code was told of it."""
    return isinstance(item, (StepEnded, StepRetrying)) and item.ahead


def taken_ahead(rows: list[list[Event | Rewind]]) -> list[Event]:
    """Take what was recorded ahead out of the end of ``rows``: no code has seen it yet."""
    ahead: list[Event] = []
    for row in reversed(rows):
        while row and is_ahead(row[-1]):
            ahead.append(cast("Event", row.pop()))
        if row:
            break
    return ahead[::-1]


def _taken_signals(items: list[Event | Rewind]) -> list[SignalReceived]:
    """Take the signals out of the beginning of ``items``."""
    signals: list[SignalReceived] = []
    for item in items:
        if not isinstance(item, SignalReceived):
            break
        signals.append(item)
    del items[: len(signals)]
    return signals


def _rewound(event: Rewound, kept: list[tuple[int, list[Event | Rewind]]]) -> Rewind:
    """Take what is void out of ``kept``."""
    void: list[Event] = []
    while kept and kept[-1][0] > event.to:
        void[:0] = _flat(kept.pop()[1])
    before = [item for _, items in kept for item in items]
    steps = frozenset(item.step for item in before if isinstance(item, (StepSent, StepIntended)))
    children = frozenset(item.child for item in before if isinstance(item, ChildStarted))
    rewind = Rewind(event, begun_steps=steps, begun_children=children)
    for item in void:
        match item:
            case SignalReceived() | UpdateReceived():
                rewind.kept.append(item)
            case StepEnded(step=step, error=error) if step in steps:
                if error is None:
                    rewind.kept.append(item)
                else:
                    rewind.failed_steps.append(step)
            case ChildEnded(child=child, error=error) if child in children:
                if error is None:
                    rewind.kept.append(item)
                else:
                    rewind.failed_children.append(child)
            case _:
                pass
    return rewind


def _flat(items: Iterable[Event | Rewind]) -> list[Event]:
    flat: list[Event] = []
    for item in items:
        flat.extend(item.kept if isinstance(item, Rewind) else [item])
    return flat


def fork_history(
    rows: Sequence[HistoryRow],
    *,
    id: str,  # noqa: A002 - it is one
    base: int,
    at: int,
    at_us: int,
) -> tuple[str, ...]:
    """The history that a copy of flow ``id`` begins with: its rows up to the version ``at``.

    Raises:
        UsageError: There is no such version.
        HistoryTooNew: A newer release wrote it.
    """
    copied = [row for row in rows if row.version <= at]
    if at != base and (not copied or copied[-1].version != at):
        raise UsageError(f"flow {id!r} has no version {at} in its history")
    texts: list[str] = []
    for row in copied:
        events = decode_events(row.events)
        if not any(isinstance(event, Rewound) for event in events):
            # As it was written: there may be more in it than this release knows.
            texts.append(row.events)
            continue
        moved = [
            # Versions begin anew in the copy.
            msgspec.structs.replace(event, to=event.to - base)
            if isinstance(event, Rewound)
            else event
            for event in events
        ]
        texts.append(encode_events(moved))
    texts.append(encode_events([Forked(at=at_us, id=id, version=at, base=base)]))
    return tuple(texts)


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
    TimerSet: lambda event: f"timer {event.timer} being set",
    TimerFired: lambda event: f"timer {event.timer} coming due",
    ChildStarted: lambda event: f"child {event.child}, with {_shown(event.input)}",
    ChildEnded: lambda event: f"the end of child {event.child}",
    SignalSent: lambda event: f"signal {event.name!r} (number {event.number}) to {event.to!r}",
    SignalReceived: lambda event: f"signal {event.name!r} coming in",
    UpdateReceived: lambda event: f"update {event.name!r} coming in",
    CancelRequested: lambda _: "a wish to cancel",
    Patched: lambda event: f"patch {event.id!r}",
    Ended: lambda event: f"the flow's end ({event.status})",
    Rewound: lambda event: f"a retry from version {event.to}",
    Forked: lambda event: f"a copy of flow {event.id!r}",
}


def told_call(identity: str, given: msgspec.Raw) -> str:
    """A call in words."""
    return f"{identity} called with {_shown(given)}"


def _shown(raw: msgspec.Raw) -> str:
    return masked(text_of(raw), _SHOWN_CHARS_MAX)
