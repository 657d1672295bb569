"""Where a retried flow goes on: before what ended it, and only where that is safe.

Pure. What ended it is the failure of a step or a child that its code did not get over, the wish to
cancel it, or its own code; everything that happened before that stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outlive.errors import RetryRefused
from outlive.flows.events import (
    DECIDED,
    CancelRequested,
    ChildEnded,
    ChildStarted,
    Ended,
    Retried,
    StepEnded,
    decode_events,
    failure_in,
    origin_of,
)
from outlive.flows.failures import OUTCOME_UNKNOWN
from outlive.flows.letters import CHILD
from outlive.flows.rewinding import Item, Rewind, standing
from outlive.model.instance import HistoryRow, InstanceRecord, InstanceStatus, Letter

# Steps that undid something, as a sentence names them; who needs all looks into the history.
_UNDOING_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Place:
    """One event that counts, and where it stands."""

    version: int
    index: int
    item: Item


def places(rows: Sequence[HistoryRow]) -> list[Place]:
    """What counts of a history, in order."""
    return [
        Place(version, index, item)
        for version, items in standing(rows)
        for index, item in enumerate(items)
    ]


def began_at_us(record: InstanceRecord) -> int:
    """When a flow of which nothing is recorded began: it may be that it was to begin later."""
    return min(record.began_at_us, round(record.updated_at.timestamp() * 1e6))


def retry_of(record: InstanceRecord, rows: Sequence[HistoryRow], *, rerun_unknown: bool) -> Retried:
    """The event that lets a flow that has ended go on.

    Raises:
        RetryRefused: Something was undone since what ended it, or nobody knows whether the step
            that it would begin with has run.
    """
    at = rows[-1].at_us if rows else began_at_us(record)
    whole = Retried(at=at, to=record.version, rerun_unknown=rerun_unknown)
    if record.status is InstanceStatus.TERMINATED:
        return whole
    end = _end_in(record, rows)
    if end is None:
        return whole
    told, causes = end.told, end.causes
    _check_undone(record, end)
    if not rerun_unknown:
        # A retry that has kept many failures is looked at once.
        for place in dict.fromkeys(causes):
            _check_known(record, told[place].item)
    if causes:
        cut = told[min(causes)]
        to, kept = cut.version - 1, cut.index
    else:
        to, kept = _after_what_happened(told, record.base)
    return Retried(at=at, to=to, kept=kept, rerun_unknown=rerun_unknown)


# -- what ended it --------------------------------------------------------------------------------


class _End(NamedTuple):
    """The end of a flow, what was told of it before, and which of that ended it."""

    ended: Ended
    told: list[Place]
    causes: list[int]


def _end_in(record: InstanceRecord, rows: Sequence[HistoryRow]) -> _End | None:
    told = places(rows)
    end = max((n for n, place in enumerate(told) if isinstance(place.item, Ended)), default=None)
    if end is None:
        return None
    ended = told[end].item
    assert isinstance(ended, Ended)
    del told[end:]
    return _End(ended, told, _causes(record, ended, told))


def _causes(record: InstanceRecord, ended: Ended, told: Sequence[Place]) -> list[int]:
    """Which of the things that happened ended the flow; none if its own code did."""
    if record.status is InstanceStatus.CANCELLED:
        asked = [n for n, place in enumerate(told) if isinstance(place.item, CancelRequested)]
        return asked[:1]
    failed = _failed(told)
    return [failed[origin] for origin in ended.by if origin in failed]


def _failed(told: Sequence[Place]) -> dict[str, int]:
    """Where each step and child that failed did so for the last time."""
    failed: dict[str, int] = {}
    for number, place in enumerate(told):
        item = place.item
        # A retry may keep the failure of a step with ``once`` that is unknown to have run.
        for event in item.kept if isinstance(item, Rewind) else [item]:
            origin = failure_in(event)
            if origin is not None:
                failed[origin] = number
    return failed


def _after_what_happened(told: Sequence[Place], base: int) -> tuple[int, int]:
    """The place after the last thing that happened to a flow whose own code failed.

    What the code decided on that before it failed is void: mended code may decide it in another
    order. It is not done twice, as it is decided under the same ids.
    """
    for place in reversed(told):
        if not isinstance(place.item, DECIDED):
            return place.version - 1, place.index + 1
    return base, 0


# -- what is not safe -----------------------------------------------------------------------------


def check_unheard(
    child: InstanceRecord,
    parent: InstanceRecord,
    rows: Sequence[HistoryRow],
    letters: Sequence[Letter],
) -> None:
    """Refuse to go on with a child whose end its parent has heard of, is about to, or caused.

    ``rows`` and ``letters`` are the parent's. What it does about that end stays done, and it hears
    of no second one. What it stopped it begins again, under another id, when it is retried.

    Raises:
        RetryRefused: It has, or nobody knows whether it has.
    """
    ids: dict[str, str] = {}
    started: ChildStarted | None = None
    heard = any(letter.kind == CHILD and letter.name == child.id for letter in letters)
    present = [row for row in rows if row.version > parent.base]
    for event in [event for row in present for event in decode_events(row.events)]:
        if isinstance(event, ChildStarted):
            ids[event.child] = event.id
            started = event if event.id == child.id else started
        elif isinstance(event, ChildEnded) and ids.get(event.child) == child.id:
            heard = True
    if heard:
        raise RetryRefused(
            child.id,
            "heard",
            f"its parent {parent.id!r} has already received its failure: retry the parent, or "
            "fork this flow to run it without the parent",
        )
    if started is None and _ended_before_run(child, parent):
        raise RetryRefused(
            child.id,
            "heard",
            f"its parent {parent.id!r} continued as a new run after this flow ended, and may "
            "have received its failure before: fork this flow to run it without the parent",
        )
    # A parent that completed is never retried.
    retryable = parent.status is not InstanceStatus.COMPLETED
    if started is not None and not started.abandon and retryable:
        raise RetryRefused(
            child.id,
            "stopped",
            f"it was stopped by its parent {parent.id!r}, or together with it, and a retry of "
            "the parent starts it again under another id: retry the parent, or fork this flow to "
            "run it without the parent",
        )


def _ended_before_run(child: InstanceRecord, parent: InstanceRecord) -> bool:
    """Whether a child ended before its parent went on as new, by the store's clock.

    The history of the run before, which may have heard of it, is gone then. The present run hears
    of no child of an earlier one.
    """
    if parent.base == 0 or child.ended_at is None:
        return False
    return round(child.ended_at.timestamp() * 1e6) <= parent.began_at_us


def _check_undone(record: InstanceRecord, end: _End) -> None:
    """Refuse to go on with steps that were undone since."""
    if _has_undone(end):
        raise RetryRefused(
            record.id,
            "undone",
            f"undo steps ran after its failure{_undoing(end)}, and a retry would treat the "
            "undone steps as done: start the flow anew, or fork it from before the first undone "
            "step",
        )


def undone_in(record: InstanceRecord, rows: Sequence[HistoryRow]) -> str | None:
    """How to tell that a saga of a flow has undone steps since what ended it; ``None`` if not.

    Which of them were undone is known to its code alone.
    """
    if record.status not in (InstanceStatus.FAILED, InstanceStatus.CANCELLED):
        return None
    end = _end_in(record, rows)
    if end is None or not _has_undone(end):
        return None
    return f"ran undo steps{_undoing(end)}"


def _undoing(end: _End) -> str:
    """The steps that ran after what ended it, as far as that is known; others may be among them."""
    cause = min(end.causes, default=None)
    steps = [end.ended.undid.partition("/")[2]] if end.ended.undid else []
    if cause is not None:
        later = [place.item for place in end.told[cause + 1 :]]
        steps = [item.step for item in later if isinstance(item, StepEnded)] or steps
    more = ", …" if len(steps) > _UNDOING_SHOWN else ""
    return f" ({', '.join(steps[:_UNDOING_SHOWN])}{more})" if steps else ""


def _has_undone(end: _End) -> bool:
    """Whether a saga has undone something that a retry would take for done.

    An undo that came before the cause belongs to a failure that the code got over. Where its own
    code failed nothing tells which of the two it was, and it counts.
    """
    ended, told, cause = end.ended, end.told, min(end.causes, default=None)
    if ended.undid is None or cause is None:
        return ended.undid is not None
    last = [n for n, p in enumerate(told) if _is_of(p.item, ended.undid)]
    return not last or last[-1] > cause


def _is_of(item: Item, origin: str) -> bool:
    return not isinstance(item, Rewind) and origin_of(item) == origin


def _check_known(record: InstanceRecord, item: Item) -> None:
    """Refuse to run a step again that is to run once, and may have."""
    events = item.kept if isinstance(item, Rewind) else [item]
    for event in [each for each in events if isinstance(each, StepEnded)]:
        if event.error is not None and event.error.type == OUTCOME_UNKNOWN:
            raise RetryRefused(
                record.id,
                "unknown",
                f"it is unknown whether step {event.step} (once=True) has run: find out, and "
                "retry with rerun_unknown=True (in a shell: --rerun-unknown) if the step may run "
                "again",
            )
