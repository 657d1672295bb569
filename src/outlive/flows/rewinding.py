"""What still counts of a history that operators changed: a part made void, or copied elsewhere.

Pure. Nothing is edited: a retry is one more event, which says what does not count any more. What
has happened outside of the flow stays whatever is void: letters, and what succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import msgspec

from outlive.errors import UsageError
from outlive.flows.effect_keys import digest_of
from outlive.flows.events import (
    NULL,
    ChildEnded,
    ChildStarted,
    Ended,
    Event,
    Forked,
    Patched,
    Retried,
    SignalReceived,
    StepEnded,
    StepIntended,
    StepSent,
    UpdateReceived,
    decode_events,
    encode_events,
    failure_in,
    first_events,
    origin_of,
)
from outlive.flows.failures import OUTCOME_UNKNOWN, unknown_outcome
from outlive.model.instance import HistoryRow, InstanceStatus


@dataclass(slots=True)
class VoidChild:
    """A child whose beginning is void. It was begun all the same, and ``ended`` perhaps."""

    started: ChildStarted
    ended: ChildEnded | None = None
    failed: bool = False


@dataclass(slots=True)
class Rewind:
    """An operator's retry: what came after is void, except for what has happened all the same.

    ``kept`` is that: letters, ends, and which way the code went where it was patched. Of the steps
    and children that were begun before it, those whose failure is void are begun again, and so is
    what the end of the flow stopped. ``begun`` are the local steps that were, with digests of their
    inputs. ``called`` is all that was called, wherever it ran (``step/pay#0``), with digests of its
    inputs. ``number`` counts the retries, void ones as well: what each of them begins has ids of
    its own.
    """

    event: Retried
    number: int
    kept: list[Event] = field(default_factory=list[Event])
    failed_steps: set[str] = field(default_factory=set[str])
    failed_children: set[str] = field(default_factory=set[str])
    children: list[VoidChild] = field(default_factory=list[VoidChild])
    begun: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    called: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    begun_steps: frozenset[str] = frozenset()
    begun_children: frozenset[str] = frozenset()


Item = Event | Rewind
"""An event that counts, or what a retry has left of those that do not."""

Standing = list[tuple[int, list[Item]]]
"""What counts of each commit, by its version."""


def standing(rows: Sequence[HistoryRow], forks: list[Forked] | None = None) -> Standing:
    """What counts of a history. All marks of copies, void or not, go into ``forks``.

    Raises:
        HistoryTooNew: A newer release wrote it.
    """
    kept: Standing = []
    retries = 0
    for row in rows:
        items: list[Item] = []
        for event in decode_events(row.events):
            if isinstance(event, Retried):
                retries += 1
                items.append(_retried(event, kept, retries))
            else:
                if forks is not None and isinstance(event, Forked):
                    forks.append(event)
                items.append(event)
        kept.append((row.version, items))
    return kept


def flat(items: Iterable[Item]) -> list[Event]:
    """The events that count, with those that a retry has kept."""
    events: list[Event] = []
    for item in items:
        events.extend(item.kept if isinstance(item, Rewind) else [item])
    return events


def calls_in(items: Iterable[Item]) -> dict[str, set[str]]:
    """The steps and children that a history knows, void ones as well, by digests of their inputs.

    ``step/pay#0``: one that is called with another input is another call.
    """
    called: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, Rewind):
            _join(called, item.called)
        else:
            _join(called, _call_of(item))
    return called


def _call_of(event: Event) -> dict[str, set[str]]:
    """The call that an event is of, if it says what that was given."""
    origin = origin_of(event)
    given = getattr(event, "input", NULL)
    # Ends of jobs and intents do not say it.
    return {} if origin is None or bytes(given) == bytes(NULL) else {origin: {digest_of(given)}}


def _join(called: dict[str, set[str]], more: dict[str, set[str]]) -> None:
    for origin, digests in more.items():
        called.setdefault(origin, set()).update(digests)


def _new_rewind(event: Retried, kept: Standing, number: int) -> Rewind:
    before = [item for _, items in kept for item in items]
    steps = frozenset(item.step for item in before if isinstance(item, (StepSent, StepIntended)))
    children = frozenset(item.child for item in before if isinstance(item, ChildStarted))
    return Rewind(event, number, begun_steps=steps, begun_children=children)


# -- retries --------------------------------------------------------------------------------------


def _retried(event: Retried, kept: Standing, number: int) -> Rewind:
    """Take what is void out of ``kept``."""
    rows: list[list[Item]] = []
    while kept and kept[-1][0] > event.to:
        version, items = kept.pop()
        stays = event.kept if version == event.to + 1 else 0
        rows.append(items[stays:])
        if stays:
            kept.append((version, items[:stays]))
            break
    void = list(chain.from_iterable(reversed(rows)))
    rewind = _new_rewind(event, kept, number)
    salvage = _Salvage(rewind, _causes_in(void))
    for item in void:
        salvage.take(item)
    salvage.settle()
    return rewind


def _causes_in(void: Sequence[Item]) -> frozenset[str] | None:
    """The failures that ended the flow. ``None``: each of them counts as one."""
    for item in reversed(void):
        if isinstance(item, Ended):
            return frozenset(item.by) if item.status == InstanceStatus.FAILED else None
    return None


class _Salvage:
    """Goes through what is void, and fills in what a retry keeps of it.

    A failure that the code got over is kept as what succeeded is: what was done about it stays too.
    """

    def __init__(self, rewind: Rewind, causes: frozenset[str] | None) -> None:
        self._rewind = rewind
        self._causes = causes
        self._rerun_unknown = rewind.event.rerun_unknown
        self._inputs: dict[str, msgspec.Raw] = {}
        # Steps with ``once`` that were begun, and did not end for all that is known.
        self._open: dict[str, StepIntended] = {}
        self._ends: dict[tuple[str, bytes], int] = {}
        # By identity as it was last, and by id: a child that a retry went on with is one.
        self._children: dict[str, VoidChild] = {}
        self._by_id: dict[str, VoidChild] = {}

    def take(self, item: Item) -> None:
        """One thing that is void."""
        if isinstance(item, Rewind):
            self._void_retry(item)
        else:
            _join(self._rewind.called, _call_of(item))
            self._take_event(item)

    def _take_event(self, item: Event) -> None:
        rewind = self._rewind
        match item:
            case SignalReceived() | UpdateReceived() | Forked() | Patched():
                rewind.kept.append(item)
            case StepSent():
                self._inputs[item.step] = item.input
            case StepIntended():
                self._inputs[item.step] = item.input
                self._open[item.step] = item
                self._begun(item.step, digest_of(item.input))
            case Ended(begun=dict() as begun):
                for step, digest in begun.items():
                    self._begun(step, digest)
                    _join(rewind.called, {f"step/{step}": {digest}})
            case StepEnded():
                self._step_ended(item)
            case ChildStarted():
                self._child_started(item)
            case ChildEnded():
                self._child_ended(item, self._children.get(item.child))
            case _:
                pass

    def _void_retry(self, item: Rewind) -> None:
        """A retry that is void itself: what it kept is still so."""
        rewind = self._rewind
        _join(rewind.called, item.called)
        rewind.failed_steps |= item.failed_steps
        rewind.failed_children |= item.failed_children
        for child in item.children:
            known = self._has(child)
            if child.started.child in item.begun_children:
                # What had begun before that retry went on with it.
                self._children[child.started.child] = known
        for step, digests in item.begun.items():
            rewind.begun.setdefault(step, set()).update(digests)
        for name in item.failed_children:
            # Begun before that retry, which began it again.
            if name in self._children:
                self._children[name].failed = True
        of = {
            id(child.ended): self._by_id[child.started.id]
            for child in item.children
            if child.ended is not None
        }
        for event in item.kept:
            if isinstance(event, ChildEnded):
                self._child_ended(event, of.get(id(event), self._children.get(event.child)))
            else:
                self.take(event)

    def _child_started(self, event: ChildStarted) -> None:
        if event.id not in self._by_id:
            self._has(VoidChild(event))
        self._children[event.child] = self._by_id[event.id]
        # If it had failed, it was begun again since.
        self._rewind.failed_children.discard(event.child)

    def _has(self, child: VoidChild) -> VoidChild:
        known = self._by_id.setdefault(child.started.id, child)
        if known is child:
            self._rewind.children.append(child)
        else:
            # More than one retry has left it.
            known.failed, known.ended = child.failed, child.ended or known.ended
        return known

    def _child_ended(self, event: ChildEnded, child: VoidChild | None) -> None:
        cause = self._is_cause(event)
        if child is not None:
            child.failed, child.ended = cause, None if cause else event
        if cause:
            self._rewind.failed_children.add(event.child)
        else:
            self._rewind.kept.append(event)

    def _is_cause(self, event: StepEnded | ChildEnded) -> bool:
        failed = failure_in(event)
        return failed is not None and (self._causes is None or failed in self._causes)

    def _begun(self, step: str, digest: str) -> None:
        self._rewind.begun.setdefault(step, set()).add(digest)

    def _step_ended(self, event: StepEnded) -> None:
        step, error = event.step, event.error
        if bytes(event.input) != bytes(NULL):
            self._begun(step, digest_of(event.input))
        if error is not None and error.type == OUTCOME_UNKNOWN:
            if self._rerun_unknown:
                self._rewind.failed_steps.add(step)
                self._open.pop(step, None)
            elif step not in self._open and step not in self._rewind.begun_steps:
                self._keep(event)
            return
        self._open.pop(step, None)
        if self._is_cause(event):
            self._rewind.failed_steps.add(step)
            return
        if bytes(event.input) == bytes(NULL) and step in self._inputs:
            # Jobs and intents say what they were called with, and their ends do not.
            event = msgspec.structs.replace(event, input=self._inputs[step])
        self._keep(event)

    def _keep(self, event: StepEnded) -> None:
        # What ended again, after another retry, counts as it ended last.
        key = (event.step, bytes(event.input))
        kept, place = self._rewind.kept, self._ends.get(key)
        if place is None:
            self._ends[key] = len(kept)
            kept.append(event)
        else:
            kept[place] = event

    def _succeeded(self, intent: StepIntended) -> bool:
        place = self._ends.get((intent.step, bytes(intent.input)))
        end = None if place is None else self._rewind.kept[place]
        return isinstance(end, StepEnded) and end.error is None

    def settle(self) -> None:
        """A step with ``once`` may have run, also where its beginning is void."""
        if not self._rerun_unknown:
            for step, intent in self._open.items():
                if self._succeeded(intent):
                    continue
                error = unknown_outcome(step)
                self._keep(StepEnded(at=intent.at, step=step, input=intent.input, error=error))


# -- copies ---------------------------------------------------------------------------------------


def fork_history(rows: Sequence[HistoryRow], mark: Forked, *, more: int = 0) -> tuple[str, ...]:
    """The history that a copy begins with: up to what ``mark`` says, and then some.

    ``more`` is how many events of the commit after it are copied. The end of the flow is none of
    the copy's: its code comes to an end by itself.

    Raises:
        UsageError: There is no such version.
        HistoryTooNew: A newer release wrote it.
    """
    id_, base, at = mark.id, mark.base, mark.version
    copied = [row for row in rows if row.version <= at]
    if at != base and (not copied or copied[-1].version != at):
        known = _versions(rows, base)
        raise UsageError(f"flow {id_!r} has no version {at} in its history; {known}")
    texts = [_copied(row, rows) for row in copied]
    last = decode_events(copied[-1].events) if copied else []
    if last and isinstance(last[-1], Ended):
        texts[-1] = first_events(texts[-1], len(last) - 1)
    if more:
        after = next(row for row in rows if row.version > at)
        texts.append(first_events(_copied(after, rows), more))
    texts.append(encode_events([_of_the_original(mark, rows)]))
    return tuple(texts)


def _of_the_original(mark: Forked, rows: Sequence[HistoryRow]) -> Forked:
    """The mark as it is written: who copies a part of a copied part copies the first flow.

    What code drew there, and the ids in it, are those of that flow. Numbers of versions begin anew
    in a copy, so that they are counted from where the run of the original began.
    """
    beyond = (row for row in rows if row.version > mark.version)
    for event in (event for row in beyond for event in decode_events(row.events)):
        if isinstance(event, Forked):
            return msgspec.structs.replace(
                mark,
                id=event.id,
                base=event.base,
                version=event.base + mark.version - mark.base,
                edited=mark.edited or event.edited,
            )
    return mark


def _versions(rows: Sequence[HistoryRow], base: int) -> str:
    if not rows:
        return f"known versions: {base} (the beginning)"
    return (
        f"known versions: {base} (the beginning of this run), and {rows[0].version} to "
        f"{rows[-1].version}"
    )


def _copied(row: HistoryRow, rows: Sequence[HistoryRow]) -> str:
    events = decode_events(row.events)
    if not any(isinstance(event, Retried) for event in events):
        # As it was written: there may be more in it than this release knows.
        return row.events
    # Versions begin anew in the copy.
    return encode_events(
        [
            msgspec.structs.replace(event, to=sum(other.version <= event.to for other in rows))
            if isinstance(event, Retried)
            else event
            for event in events
        ]
    )
