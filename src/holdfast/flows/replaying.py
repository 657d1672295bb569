"""A history as it is replayed: what still counts of it, how it is told, and what may differ.

Pure. Operators may have made a part of it void, or copied it from another flow; code may have
changed since. What code may change freely is decided here; all else is ``NonDeterminism``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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

    ``kept`` are the letters of the void part. Steps in queues and children that were begun before
    it, and whose failure is void, are begun again.
    """

    event: Rewound
    kept: list[Event] = field(default_factory=list[Event])
    failed_steps: list[str] = field(default_factory=list[str])
    failed_children: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Script:
    """What is to be replayed.

    ``seed`` is the id and the base of the flow that the beginning was copied from, if it was.
    ``forks`` counts the copies: before the last of them inputs are not compared.
    """

    items: list[Event | Rewind]
    patches: frozenset[str]
    seed: tuple[str, int] | None
    forks: int


def script_of(rows: Sequence[HistoryRow]) -> Script:
    """What is to be replayed of a history.

    Raises:
        msgspec.ValidationError: A newer release wrote it.
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
    everything = [item for _, items in kept for item in items]
    patches = frozenset(item.id for item in everything if isinstance(item, Patched))
    return Script(everything, patches, seed, forks)


def _rewound(event: Rewound, kept: list[tuple[int, list[Event | Rewind]]]) -> Rewind:
    """Take what is void out of ``kept``."""
    void: list[Event] = []
    while kept and kept[-1][0] > event.to:
        void[:0] = _flat(kept.pop()[1])
    before = [item for _, items in kept for item in items]
    steps = {item.step for item in before if isinstance(item, (StepSent, StepIntended))}
    children = {item.child for item in before if isinstance(item, ChildStarted)}
    rewind = Rewind(event)
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
    """
    copied = [row for row in rows if row.version <= at]
    if at != base and (not copied or copied[-1].version != at):
        raise UsageError(f"flow {id!r} has no version {at} in its history")
    texts: list[str] = []
    for row in copied:
        events = [
            # Versions begin anew in the copy.
            msgspec.structs.replace(event, to=event.to - base)
            if isinstance(event, Rewound)
            else event
            for event in decode_events(row.events)
        ]
        texts.append(encode_events(events))
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
    match event:
        case StepEnded(step=step, error=error):
            how = "" if error is None else f" with {error.type}"
            return f"the end of step {step}{how}"
        case StepRetrying(step=step, attempt=attempt):
            return f"the failure of attempt {attempt} of step {step}"
        case StepSent(step=step, input=given):
            return f"step {step} in a queue, with {_shown(given)}"
        case StepIntended(step=step, input=given):
            return f"step {step} with once, with {_shown(given)}"
        case TimerSet(timer=number):
            return f"timer {number} being set"
        case TimerFired(timer=number):
            return f"timer {number} coming due"
        case ChildStarted(child=child, input=given):
            return f"child {child}, with {_shown(given)}"
        case ChildEnded(child=child):
            return f"the end of child {child}"
        case SignalSent(number=number, to=to, name=name):
            return f"signal {name!r} (number {number}) to flow {to!r}"
        case SignalReceived(name=name):
            return f"signal {name!r} coming in"
        case UpdateReceived(name=name):
            return f"update {name!r} coming in"
        case CancelRequested():
            return "a wish to cancel"
        case Patched(id=patch):
            return f"patch {patch!r}"
        case Ended(status=status):
            return f"the flow's end ({status})"
        case Rewound(to=to):
            return f"a retry from version {to}"
        case Forked(id=id):
            return f"a copy of flow {id!r}"


def told_call(identity: str, given: msgspec.Raw) -> str:
    """A call in words."""
    return f"{identity} called with {_shown(given)}"


def _shown(raw: msgspec.Raw) -> str:
    return masked(text_of(raw), _SHOWN_CHARS_MAX)
