"""Flows as operators read them: how one ended, what each commit did, and what it waits for.

Owns the words of tables. JSON says the same in fields, and nothing of it is left out there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

from outlive.cli.output import Lines, cell
from outlive.clock import instant
from outlive.errors import HistoryTooNew
from outlive.flows.events import (
    ChildEnded,
    Ended,
    Event,
    Failure,
    StepEnded,
    StepRetrying,
    decode_events,
)
from outlive.flows.info import FlowInfo
from outlive.flows.replaying import told
from outlive.model.instance import CANCEL_KIND, FINAL, HistoryRow, InstanceStatus, Letter
from outlive.serialization import decode_plain

# A commit is one row of a table: what does not fit beside its other columns is read in JSON.
_MESSAGE_CHARS_MAX = 120


def commit_row(row: HistoryRow, info: FlowInfo) -> dict[str, Any]:
    """A commit of a flow as one record: its events as they are stored, and in words."""
    events: Any = decode_plain(row.events)
    # The error stands beside the history; of an end that was made void nobody keeps it.
    why = _why(info) if row.version == info.version else ""
    try:
        words = [_told(event, why) for event in decode_events(row.events)]
    except HistoryTooNew:
        # A newer release wrote it; what it means is not known here.
        words = [str(event.get("event")) for event in events]
    return {
        "version": row.version,
        "token": row.token,
        "host": row.worker,
        "at": instant(row.at_us),
        "what": "; ".join(words) or _without_events(row),
        "events": events,
    }


def _told(event: Event, why: str) -> str:
    match event:
        case Ended(by=by) if why or by:
            causes = ", ".join(each.replace("/", " ", 1) for each in by)
            return f"{told(event)}: {why or causes}"
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
        # No host commits without its name: a fork brought the row along. Nothing that is stored
        # tells whether it left the events of the row out, or which those were.
        return (
            "(no event: none was recorded, as for a status text, or the fork did not copy it, as "
            "for an end or for attempts of a repeated step)"
        )
    # All that a host commits without an event.
    return "(no event: a status text, attributes, a reply or the next due time was set)"


def end_words(info: FlowInfo, rows: Sequence[HistoryRow]) -> str | None:
    """How a flow ended, if its history does not say that: nobody asks the code of who terminates.

    The rows are those of its current run.
    """
    if info.status is not InstanceStatus.TERMINATED:
        return None
    return f"the flow was terminated after version {rows[-1].version if rows else 0}: {_why(info)}"


def _why(info: FlowInfo) -> str:
    """The error that a flow ended with, on one line; empty if it did not."""
    failure: Any = info.outcome
    if info.status not in FINAL or info.status is InstanceStatus.COMPLETED:
        return ""
    if not isinstance(failure, dict):
        return ""
    return _said(cast("dict[str, Any]", failure))


def _said(failure: Mapping[str, Any]) -> str:
    """What is kept of an error, on one line, cut."""
    return _short(str(failure.get("type")), str(failure.get("message") or ""))


def _short(type_: str, message: str) -> str:
    """An error on one line, cut."""
    line = " ".join(message.split())
    if len(line) > _MESSAGE_CHARS_MAX:
        line = f"{line[:_MESSAGE_CHARS_MAX]}…"
    return f"{type_}: {line}" if line else type_


def outcome_lines(info: FlowInfo) -> Lines | None:
    """How a flow ended: its result, or its error with lines for what is in it; else nothing."""
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
    """A line for each of the first errors in it, if it is a group, and for each of its causes."""
    lines = [*_members(failure)]
    cause: Any = failure.get("cause")
    while isinstance(cause, dict):
        kept = cast("dict[str, Any]", cause)
        lines += [f"caused by {_said(kept)}", *_members(kept)]
        cause = kept.get("cause")
    return lines


def _members(failure: Mapping[str, Any]) -> Iterator[str]:
    """The first errors in a group, and how many more there are."""
    members = _part(_part(failure, "details"), "members")
    first: Any = members.get("first")
    if not isinstance(first, list):
        return
    for member in cast("list[dict[str, Any]]", first):
        said = _said(member)
        of = str(member.get("of") or "").replace("/", " ", 1)
        # A failed step names itself, unless its error came through as it was.
        yield f"with {said} ({of})" if of and of not in said else f"with {said}"
    more = members.get("total", 0) - len(cast("list[Any]", first))
    if more > 0:
        yield f"and {more:,} more"


def _part(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What stands under a name of what is kept of an error; nothing if it is no object."""
    found: Any = document.get(name)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def traceback_of(info: FlowInfo) -> str | None:
    """Where the error of a flow was raised, if that is known."""
    failure: Any = info.outcome
    if info.status is InstanceStatus.COMPLETED or not isinstance(failure, dict):
        return None
    found = _part(cast("dict[str, Any]", failure), "details").get("traceback")
    return found if isinstance(found, str) and found else None


def is_parked(info: FlowInfo) -> bool:
    """Whether it waits as a row in the store, in the memory of no host."""
    return info.status is InstanceStatus.RUNNING and info.host is None


def ready_since(info: FlowInfo, letters: Sequence[Letter], now: datetime) -> datetime | None:
    """From when on any host that runs its app may take it, if nobody has it and one may.

    ``letters`` are those at the beginning of its mailbox, as far as they are known.
    """
    if info.host is not None or info.status not in (InstanceStatus.PENDING, InstanceStatus.RUNNING):
        return None
    # One that has not begun is not begun by letters before its time, unless one cancels it.
    begun = info.status is InstanceStatus.RUNNING
    since = [
        instant(letter.sent_at_us) for letter in letters if begun or letter.kind == CANCEL_KIND
    ]
    if info.due_at is not None and info.due_at <= now:
        since.append(info.due_at)
    return min(since, default=None)


def host_column(info: FlowInfo, now: datetime) -> str | None:
    """Which host has a flow, in a list; of letters a list knows nothing."""
    if ready_since(info, (), now) is not None:
        return "(ready)"
    return "(waits)" if is_parked(info) else info.host


def due_column(info: FlowInfo) -> datetime | None:
    """When a flow goes on though nothing happens to it, where that tells something.

    A host takes what is due, and the date stays beside it until a commit says another. So of what a
    host has, only a date that lies behind its last change is one that the flow waits for.
    """
    due = info.due_at
    return due if due is None or info.host is None or due > info.updated_at else None


def unread_words(letters: Sequence[Letter], asked: int) -> str:
    """How many letters nobody has read yet, where at most ``asked`` were asked for."""
    more = " or more" if len(letters) >= asked else ""
    return f"{len(letters)}{more}"


def host_words(info: FlowInfo, letters: Sequence[Letter], now: datetime) -> str | None:
    """Which host has a flow, or what it waits for while none does."""
    since = ready_since(info, letters, now)
    if since is not None:
        return (
            f"(none: ready since {cell(since)}, but no host has claimed it; check that a host runs "
            f"an app with flow {info.name!r})"
        )
    if not is_parked(info):
        return info.host
    if info.due_at is None:
        return "(none: waiting for a signal, a child or a queued step; --app shows which)"
    return f"(none: waiting until {cell(info.due_at)})"
