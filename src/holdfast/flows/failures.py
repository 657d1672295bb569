"""Errors as a history keeps them, and the errors that flow code and callers see of them.

What is kept is a name, a text and details, masked and cut like any failure. A class is rebuilt only
if the step that is registered here names it; nothing is imported because a store named it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from holdfast.errors import (
    FlowCancelled,
    FlowFailed,
    FlowTerminated,
    StepFailed,
    StepOutcomeUnknown,
    UsageError,
)
from holdfast.flows.arguments import encoded, text_of
from holdfast.flows.events import Failure
from holdfast.model.retry import name_of
from holdfast.runtime.logs import masked
from holdfast.work.failures import describe
from holdfast.work.payload import decode_plain

# What an error was raised from explains it; a longer chain is a loop or a framework.
_CAUSES_MAX = 5

# Notes are for people, like the message, and are kept as long as one.
_NOTES_CHARS_MAX = 2 * 1024

OUTCOME_UNKNOWN = "OutcomeUnknown"
"""The type of the failure of a step that was begun with ``once`` and never ended."""

CANCELLED = name_of(FlowCancelled)
TERMINATED = name_of(FlowTerminated)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Failure)


def failure_of(
    error: BaseException, *, errors: Sequence[type[Exception]] = (), causes: int = _CAUSES_MAX
) -> Failure:
    """What is kept of ``error``; of one of ``errors`` also the arguments that rebuild it."""
    document = cast("dict[str, Any]", decode_plain(describe(error)))
    cause = error.__cause__
    return Failure(
        type=document["type"],
        message=f"{document['message']}{_notes(error)}",
        details=_details(error, document.get("traceback", ""), errors),
        cause=None if cause is None or causes == 0 else failure_of(cause, causes=causes - 1),
    )


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
    for kind in errors:
        if name_of(kind) == failure.type:
            rebuilt = _rebuilt(kind, details)
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


def flow_error(id: str, failure: Failure) -> Exception:  # noqa: A002 - it is one
    """What a caller, or the parent, sees of a flow that did not complete."""
    if failure.type == CANCELLED:
        return FlowCancelled(id, failure.message)
    if failure.type == TERMINATED:
        return FlowTerminated(id, failure.message)
    return FlowFailed(
        id,
        failure.type,
        failure.message,
        details=decode_plain(text_of(failure.details)),
        cause=None if failure.cause is None else flow_error(id, failure.cause),
    )


def _details(error: BaseException, where: str, errors: Sequence[type[Exception]]) -> msgspec.Raw:
    details: dict[str, Any] = {"traceback": where}
    if isinstance(error, tuple(errors)):
        try:
            return encoded({**details, "args": error.args}, "the details of an error")
        except UsageError:
            # It is told as ``StepFailed``: what would rebuild it cannot be stored.
            details["args"] = None
    return encoded(details, "the details of an error")


def _notes(error: BaseException) -> str:
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    return masked(notes, _NOTES_CHARS_MAX).encode("utf-8", "backslashreplace").decode()


def _rebuilt(kind: type[Exception], details: Any) -> Exception | None:
    args: Any = cast("dict[str, Any]", details).get("args") if isinstance(details, dict) else None
    if not isinstance(args, list):
        return None
    try:
        return kind(*cast("list[Any]", args))
    except Exception:  # noqa: BLE001 - a class that takes other arguments is told as StepFailed
        return None
