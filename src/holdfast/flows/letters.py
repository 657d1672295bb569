"""Letters: what the messages in a flow's mailbox mean to it, and what senders put into them.

Pure. Owns the kinds of messages that flows receive. One that cannot be read is dropped and told:
a stranger's mistake must not stop a flow.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.flows.events import (
    CancelRequested,
    ChildEnded,
    Failure,
    SignalReceived,
    StepEnded,
    UpdateReceived,
)
from holdfast.model.instance import Letter

SIGNAL = "signal"
UPDATE = "update"
CANCEL = "cancel"
CHILD = "child"
STEP = "step"


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """How something ended: with a result, or with an error."""

    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None


class _JobEnd(msgspec.Struct, frozen=True):
    """What a store says of a job that ended."""

    state: str
    outcome: msgspec.Raw = msgspec.Raw(b"null")


class _JobError(msgspec.Struct, frozen=True):
    """What is kept of the failure of a job."""

    type: str = ""
    message: str = ""
    details: msgspec.Raw = msgspec.Raw(b"null")


_outcomes = msgspec.json.Decoder(Outcome)
_job_ends = msgspec.json.Decoder(_JobEnd)
_job_errors = msgspec.json.Decoder(_JobError)
_texts = msgspec.json.Decoder(str)


def fed_by(
    letter: Letter, at_us: int
) -> SignalReceived | UpdateReceived | CancelRequested | ChildEnded | StepEnded:
    """What a letter feeds to the flow.

    Raises:
        UsageError: Nobody knows what it means.
    """
    try:
        return _fed_by(letter, at_us)
    except msgspec.MsgspecError as error:
        raise UsageError(f"a letter of kind {letter.kind!r} cannot be read: {error}") from error


def _fed_by(letter: Letter, at: int) -> Any:
    match letter.kind:
        case "signal":
            raw = msgspec.Raw(letter.payload.encode())
            return SignalReceived(at=at, name=letter.name, id=letter.id, payload=raw)
        case "update":
            raw = msgspec.Raw(letter.payload.encode())
            return UpdateReceived(at=at, name=letter.name, id=letter.id, payload=raw)
        case "cancel":
            return CancelRequested(at=at, reason=_texts.decode(letter.payload))
        case "child":
            ended = _outcomes.decode(letter.payload)
            return ChildEnded(at=at, child=letter.name, result=ended.result, error=ended.error)
        case "step":
            return _step_end(letter, at)
        case kind:
            raise UsageError(f"no flow knows letters of kind {kind!r}")


def _step_end(letter: Letter, at: int) -> StepEnded:
    ended = _job_ends.decode(letter.payload)
    if ended.state == "done":
        return StepEnded(at=at, step=letter.name, result=ended.outcome)
    try:
        error = _job_errors.decode(ended.outcome)
    except msgspec.MsgspecError:
        error = _JobError(message=bytes(ended.outcome).decode(errors="replace"))
    kind = error.type or ("JobCancelled" if ended.state == "cancelled" else "JobFailed")
    said = error.message or f"the job is {ended.state}"
    return StepEnded(
        at=at, step=letter.name, error=Failure(type=kind, message=said, details=error.details)
    )
