"""Errors as a history keeps them, and the errors that flow code and callers see of them.

What is kept is a name, a text and details, masked and cut like any failure. A class is rebuilt only
if the step that is registered here names it; nothing is imported because a store named it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import msgspec
from msgspec import structs

from outlive.errors import (
    FlowCancelled,
    FlowFailed,
    FlowTerminated,
    StepFailed,
    StepOutcomeUnknown,
    UpdateFailed,
    UpdateRejected,
    UsageError,
)
from outlive.flows.arguments import encoded, text_of
from outlive.flows.events import Failure
from outlive.serialization import decode_plain, describe, masked, name_of, printable

# What an error was raised from explains it; a longer chain is a loop or a framework.
_CAUSES_MAX = 5

# Notes are for people, like the message, and are kept as long as one.
_NOTES_CHARS_MAX = 2 * 1024

# The errors in a group are often one error many times over, and whoever reads of it needs a few of
# them. With all of its causes, an error stays shorter than a payload may be, so that it is kept.
_MEMBERS_MAX = 5
_MEMBER_CHARS_MAX = 512

OUTCOME_UNKNOWN = "OutcomeUnknown"
"""The type of the failure of a step that was begun with ``once`` and never ended."""

CANCELLED = name_of(FlowCancelled)
TERMINATED = name_of(FlowTerminated)
_FAILED = name_of(FlowFailed)
REJECTED = name_of(UpdateRejected)
UNFINISHED = name_of(UpdateFailed)
"""The type of the failure of an update that its flow did not come to the end of."""

E = TypeVar("E", bound=BaseException)

# The attribute of an error that names the step or the child that it came from.
_ORIGIN = "_outlive_origin"

# What a flow that was stopped is told by, by the type of its failure.
_STOPPED = {CANCELLED: FlowCancelled, TERMINATED: FlowTerminated}

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Failure)


def failure_of(
    error: BaseException, *, errors: Sequence[type[Exception]] = (), causes: int = _CAUSES_MAX
) -> Failure:
    """What is kept of ``error``; of one of ``errors`` also the arguments that rebuild it.

    Never raises, whatever the class of ``error`` does when it is looked at.
    """
    try:
        return _failure_of(error, errors, causes)
    except Exception as failed:  # noqa: BLE001 - that it failed is what must be told
        return Failure(name_of(type(error)), f"(unprintable: {type(failed).__name__})")


def _failure_of(error: BaseException, errors: Sequence[type[Exception]], causes: int) -> Failure:
    document = cast("dict[str, Any]", decode_plain(describe(error)))
    cause = error.__cause__
    return Failure(
        type=document["type"],
        message=f"{document['message']}{_notes(error)}",
        details=_details(error, document.get("traceback", ""), errors),
        cause=None if cause is None or causes == 0 else failure_of(cause, causes=causes - 1),
    )


def message_of(error: BaseException) -> str:
    """What ``error`` says, with its notes."""
    return f"{printable(error, _NOTES_CHARS_MAX)}{_notes(error)}"


def failure_of_job(document: object) -> Failure:
    """What is kept of the error of a job, which says itself what happened."""
    told = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    return Failure(
        type=str(told.get("type") or "JobFailed"),
        message=str(told.get("message") or ""),
        details=encoded(told, "the details of an error"),
    )


def unknown_outcome(step: str) -> Failure:
    """What is kept of a step that was begun with ``once`` and never ended."""
    return Failure(type=OUTCOME_UNKNOWN, message=str(StepOutcomeUnknown(step)))


def traceback_of(failure: Failure) -> str:
    """Where it was raised, on lines of their own; nothing where that is not known."""
    details: Any = decode_plain(text_of(failure.details))
    where = cast("dict[str, Any]", details).get("traceback") if isinstance(details, dict) else None
    return f"\n{where.rstrip()}" if isinstance(where, str) and where else ""


def encode_failure(failure: Failure) -> str:
    """The JSON of a failure: the outcome of a flow that failed."""
    return _encoder.encode(failure).decode()


def decode_failure(text: str | None) -> Failure:
    """The failure of an outcome."""
    return Failure("unknown", "") if text is None else _decoder.decode(text)


def step_error(
    step: str,
    failure: Failure,
    *,
    attempt: int = 1,
    errors: Sequence[type[Exception]] = (),
) -> Exception:
    """What flow code sees of a step that failed."""
    if failure.type == OUTCOME_UNKNOWN:
        return StepOutcomeUnknown(step)
    details = decode_plain(text_of(failure.details))
    rebuilt = _rebuilt(_named(failure.type, errors), details)
    if rebuilt is not None:
        return rebuilt
    return StepFailed(
        step,
        failure.type,
        failure.message,
        attempt=attempt,
        details=details,
        cause=None if failure.cause is None else step_error(step, failure.cause),
    )


def failed_with(failure: Failure) -> Failure:
    """What is kept of a flow that failed with ``failure``.

    A parent is told of a failure, and of no status: one that says that a flow was stopped says it
    of the flow that it is kept of. What became of a child of that one is therefore its cause.
    """
    if failure.type not in _STOPPED:
        return failure
    stopped = _stopped(failure)
    cause: Failure | None = None
    if stopped is not None:
        named = {"flow": stopped[0], "reason": stopped[1]}
        cause = structs.replace(failure, details=encoded(named, "the details of an error"))
    return Failure(_FAILED, failure.message, failure.details, cause)


def flow_error(id: str, failure: Failure) -> Exception:  # noqa: A002 - it is one
    """What a caller, or the parent, sees of a flow that did not complete.

    What is recorded goes through here at every replay: a failure is told by the same class, and in
    the same words, as it was when it was recorded.
    """
    kind = _STOPPED.get(failure.type)
    if kind is not None:
        return kind(*(_stopped(failure) or (id, failure.message)))
    return FlowFailed(
        id,
        failure.type,
        failure.message,
        details=decode_plain(text_of(failure.details)),
        cause=None if failure.cause is None else flow_error(id, failure.cause),
    )


def marked(error: E, origin: str) -> E:
    """``error``, which knows from now on that it is the failure of this step or child."""
    # Not by ``setattr``: there are classes that forbid it.
    error.__dict__[_ORIGIN] = origin
    return error


def origins_of(error: BaseException, latest: str | None) -> tuple[str, ...]:
    """The steps and children whose failures ``error`` carries: is, was raised from, or groups.

    An error that was merely raised while another was handled is taken for its consequence only if
    that other was the ``latest`` thing that happened: code that did something since got over it.
    """
    found: dict[str, None] = {}
    seen: set[int] = set()
    left: list[tuple[BaseException, bool]] = [(error, True)]
    while left:
        each, stated = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        origin: str | None = getattr(each, _ORIGIN, None)
        if origin is not None:
            if stated or origin == latest:
                found[origin] = None
            continue
        if isinstance(each, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", each)
            left.extend((inner, stated) for inner in reversed(group.exceptions))
        if each.__cause__ is not None:
            left.append((each.__cause__, stated))
        elif each.__context__ is not None and not each.__suppress_context__:
            left.append((each.__context__, False))
    return tuple(found)


def update_error(id: str, name: str, failure: Failure) -> Exception:  # noqa: A002 - it is one
    """What a caller sees of an update that its flow did not complete."""
    if failure.type == REJECTED:
        return UpdateRejected(name, failure.message)
    return UpdateFailed(
        id,
        name,
        failure.type,
        failure.message,
        details=decode_plain(text_of(failure.details)),
        cause=None if failure.cause is None else update_error(id, name, failure.cause),
    )


def _stopped(failure: Failure) -> tuple[str, str] | None:
    """Which flow was stopped, and why, if the failure is of another flow than it is kept of."""
    details: Any = decode_plain(text_of(failure.details))
    if not isinstance(details, dict):
        return None
    told = cast("dict[str, Any]", details)
    flow, reason = told.get("flow"), told.get("reason")
    return (flow, reason) if isinstance(flow, str) and isinstance(reason, str) else None


def _details(error: BaseException, where: str, errors: Sequence[type[Exception]]) -> msgspec.Raw:
    details: dict[str, Any] = {"traceback": where}
    if isinstance(error, BaseExceptionGroup):
        details["members"] = _members(cast("BaseExceptionGroup[BaseException]", error))
    if isinstance(error, (FlowCancelled, FlowTerminated)):
        # The sentence that it says cannot be taken apart again. A class of somebody else's may
        # have neither of them.
        told = vars(error)
        if isinstance(told.get("id"), str):
            details.update(flow=_text(told["id"]), reason=_text(told.get("reason", "")))
    if isinstance(error, tuple(errors)):
        try:
            return encoded({**details, "args": error.args}, "the details of an error")
        except UsageError:
            # It is told as ``StepFailed``: what would rebuild it cannot be stored.
            details["args"] = None
    return encoded(details, "the details of an error")


def _members(group: BaseExceptionGroup[BaseException]) -> dict[str, Any]:
    """The ``first`` errors in a group, through the groups in it, and how many there are in all.

    Of each its type and message, and the step or child whose failure it carries, if it does.
    """
    first: list[dict[str, str]] = []
    total = 0
    seen: set[int] = set()
    left: list[BaseException] = [group]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, BaseExceptionGroup):
            left.extend(reversed(cast("BaseExceptionGroup[BaseException]", each).exceptions))
            continue
        total += 1
        if len(first) < _MEMBERS_MAX:
            said = _storable(printable(each, _MEMBER_CHARS_MAX))
            member = {"type": name_of(type(each)), "message": said}
            for origin in origins_of(each, None)[:1]:
                member["of"] = origin
            first.append(member)
    return {"total": total, "first": first}


def _notes(error: BaseException) -> str:
    # Anybody may put anything there, as Python's own printing of tracebacks expects as well.
    kept: Any = getattr(error, "__notes__", None)
    if not isinstance(kept, (list, tuple)):
        return ""
    return _text("".join(f"\n{_note(each)}" for each in cast("list[Any]", kept)))


def _text(value: object) -> str:
    return _storable(masked(str(value), _NOTES_CHARS_MAX))


def _storable(text: str) -> str:
    # Lone surrogates, of a file name for instance, cannot be stored as UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()


def _note(note: object) -> str:
    try:
        return str(note)
    except Exception as failed:  # noqa: BLE001 - the error itself is told all the same
        return f"(unprintable: {type(failed).__name__})"


def _named(name: str, errors: Sequence[type[Exception]]) -> type[Exception] | None:
    """The class of this name among those that a step names.

    A module has another name where it is the program itself (``__main__``), and a class may have
    moved since: the one class that has its name within the module is meant as well.
    """
    for kind in errors:
        if name_of(kind) == name:
            return kind
    alike = [kind for kind in errors if name.endswith(f".{kind.__qualname__}")]
    return alike[0] if len(alike) == 1 else None


def _rebuilt(kind: type[Exception] | None, details: Any) -> Exception | None:
    if kind is None:
        return None
    args: Any = cast("dict[str, Any]", details).get("args") if isinstance(details, dict) else None
    if not isinstance(args, list):
        return None
    try:
        return kind(*cast("list[Any]", args))
    except Exception:  # noqa: BLE001 - a class that takes other arguments is told as StepFailed
        return None
