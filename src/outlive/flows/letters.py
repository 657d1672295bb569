"""What flows tell each other, and what is told to them: messages, letters and replies as values.

Owns what the payload of each kind of message looks like. The same words are used by those who send
from outside, so that a flow hears one thing whoever said it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from outlive.errors import UpdateRejected
from outlive.flows.arguments import encoded
from outlive.flows.events import NULL, Failure
from outlive.flows.failures import REJECTED, UNFINISHED, failure_of
from outlive.model.instance import Message, Reply
from outlive.names import InstanceId
from outlive.serialization import printable

SIGNAL, UPDATE, CANCEL, CHILD, STEP = "signal", "update", "cancel", "child", "step"
KINDS = frozenset({SIGNAL, UPDATE, CANCEL, CHILD, STEP})

_JOB = "job/"

# Why an update was rejected is a sentence, or the text of an error.
_REASON_CHARS_MAX = 2 * 1024


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """How something ended: a result, or an error."""

    result: msgspec.Raw = NULL
    error: Failure | None = None


class Asked(msgspec.Struct, frozen=True):
    """Why somebody wants a flow cancelled."""

    reason: str = ""


class Settled(msgspec.Struct, frozen=True):
    """How a job ended, as the store says it."""

    state: str
    outcome: Any = None


_encoder = msgspec.json.Encoder()
_told = msgspec.json.Decoder(Told)
_asked = msgspec.json.Decoder(Asked)
_settled = msgspec.json.Decoder(Settled)


def read_told(payload: str) -> Told:
    """How a child, or an update, ended."""
    return _told.decode(payload)


def read_reason(payload: str) -> str:
    """Why a flow is to be cancelled."""
    return _asked.decode(payload).reason


def read_settled(payload: str) -> Settled:
    """How a job ended."""
    return _settled.decode(payload)


def job_of(letter_id: str) -> str:
    """The id of the job that a letter of kind ``step`` tells of."""
    return letter_id.removeprefix(_JOB)


def signal(to: InstanceId, name: str, payload: object, *, id: str) -> Message:  # noqa: A002
    """A signal; ``id`` is unique to it, so that it is read once.

    Raises:
        UsageError: The payload cannot be stored as JSON.
    """
    return Message(to, id, SIGNAL, name, _text(payload, f"the payload of signal {name!r}"))


def update(to: InstanceId, name: str, args: tuple[Any, ...], *, id: str) -> Message:  # noqa: A002
    """An update, which the flow replies to under the same ``id``.

    Raises:
        UsageError: The arguments cannot be stored as JSON.
    """
    return Message(to, id, UPDATE, name, _text(list(args), f"the arguments of update {name!r}"))


def cancel(to: InstanceId, reason: str, *, id: str) -> Message:  # noqa: A002 - it is one
    """The wish that a flow cancels itself."""
    return Message(to, id, CANCEL, "", _encoder.encode(Asked(reason)).decode())


def child_ended(
    to: InstanceId,
    child: InstanceId,
    *,
    result: str = "null",
    error: Failure | None = None,
) -> Message:
    """What a parent is told of the end of ``child``, by whoever ends it. Told once."""
    told = Told(msgspec.Raw(result), error)
    return Message(to, f"child/{child}", CHILD, child, _encoder.encode(told).decode())


def reply(message: str, *, result: msgspec.Raw = NULL, error: BaseException | None = None) -> Reply:
    """The answer to an update."""
    if error is None:
        told = Told(result)
    elif isinstance(error, UpdateRejected):
        # The reason alone: who asked makes the sentence of it.
        reason = failure_of(Exception(error.reason))
        told = Told(error=msgspec.structs.replace(reason, type=REJECTED))
    else:
        told = Told(error=failure_of(error))
    return Reply(message, _encoder.encode(told).decode())


def unfinished(message: str, why: str) -> Reply:
    """The answer to an update that was begun and will not be finished."""
    return Reply(message, _encoder.encode(Told(error=Failure(UNFINISHED, why))).decode())


def rejection(message: str, name: str, error: BaseException) -> Reply:
    """The answer to an update that was not accepted."""
    if not isinstance(error, UpdateRejected):
        error = UpdateRejected(name, printable(error, _REASON_CHARS_MAX))
    return reply(message, error=error)


def _text(value: object, what: str) -> str:
    return str(encoded(value, what), "utf-8")  # pyright: ignore[reportArgumentType] - a buffer
