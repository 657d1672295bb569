"""Flows as operators read them: how one ended, what each commit did, and what it waits for.

Owns the words of tables. JSON says the same in fields, and nothing of it is left out there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from holdfast.cli.output import Lines, cell
from holdfast.errors import HistoryTooNew
from holdfast.flows.events import ChildEnded, Event, Failure, StepEnded, StepRetrying, decode_events
from holdfast.flows.info import FlowInfo, instant_of
from holdfast.flows.replaying import told
from holdfast.model.instance import FINAL, HistoryRow, InstanceStatus
from holdfast.work.payload import decode_plain

# A commit is one row of a table: what does not fit beside its other columns is read in JSON.
_MESSAGE_CHARS_MAX = 120


def commit_row(row: HistoryRow) -> dict[str, Any]:
    """A commit as one record: its events as they are stored, and in words."""
    events: Any = decode_plain(row.events)
    try:
        words = [_told(event) for event in decode_events(row.events)]
    except HistoryTooNew:
        # A newer release wrote it; what it means is not known here.
        words = [str(event.get("event")) for event in events]
    return {
        "version": row.version,
        "token": row.token,
        "host": row.worker,
        "at": instant_of(row.at_us),
        "what": "; ".join(words) or _without_events(row),
        "events": events,
    }


def _told(event: Event) -> str:
    match event:
        case StepEnded(error=Failure() as error):
            return f"step {event.step} failed: {_short(error.type, error.message)}"
        case StepRetrying(error=error):
            said = _short(error.type, error.message)
            return f"attempt {event.attempt} of step {event.step} failed: {said}"
        case ChildEnded(error=Failure() as error):
            return f"child {event.child} failed: {_short(error.type, error.message)}"
        case _:
            return told(event)


def _without_events(row: HistoryRow) -> str:
    if row.worker is None:
        # No host commits without its name: a fork brought the row along.
        return "(the end of the flow that it was copied from, which no copy has)"
    return "(nothing that its code was told or decided)"


def _short(type_: str, message: str) -> str:
    """An error on one line, cut."""
    line = " ".join(message.split())
    if len(line) > _MESSAGE_CHARS_MAX:
        line = f"{line[:_MESSAGE_CHARS_MAX]}…"
    return f"{type_}: {line}" if line else type_


def outcome_lines(info: FlowInfo) -> Lines | None:
    """How a flow ended: its result, or its error with a line for each cause; else nothing."""
    if info.status not in FINAL:
        return None
    failure: Any = info.outcome
    if info.status is InstanceStatus.COMPLETED or not isinstance(failure, dict):
        return Lines((cell(failure),))
    first, *more = _whole(cast("dict[str, Any]", failure)).splitlines() or [""]
    return Lines((first, *more, *_causes(cast("dict[str, Any]", failure))))


def _whole(failure: Mapping[str, Any]) -> str:
    message = str(failure.get("message") or "")
    return f"{failure.get('type')}: {message}" if message else str(failure.get("type"))


def _causes(failure: Mapping[str, Any]) -> Sequence[str]:
    lines: list[str] = []
    cause: Any = failure.get("cause")
    while isinstance(cause, dict):
        kept = cast("dict[str, Any]", cause)
        said = _short(str(kept.get("type")), str(kept.get("message") or ""))
        lines.append(f"caused by {said}")
        cause = kept.get("cause")
    return lines


def traceback_of(info: FlowInfo) -> str | None:
    """Where the error of a flow was raised, if that is known."""
    failure: Any = info.outcome
    if info.status is InstanceStatus.COMPLETED or not isinstance(failure, dict):
        return None
    details: Any = cast("dict[str, Any]", failure).get("details")
    found = cast("dict[str, Any]", details).get("traceback") if isinstance(details, dict) else None
    return found if isinstance(found, str) and found else None


def is_parked(info: FlowInfo) -> bool:
    """Whether it waits as a row in the store, in the memory of no host."""
    return info.status is InstanceStatus.RUNNING and info.host is None


def host_words(info: FlowInfo, now: datetime) -> str | None:
    """Which host has a flow, or what it waits for while none does."""
    if not is_parked(info):
        return info.host
    if info.due_at is None:
        return "(none: it waits for a signal, a child or a step in a queue)"
    if info.due_at > now:
        return f"(none: it waits until {cell(info.due_at)})"
    return "(none: it waits for a host that runs it)"
