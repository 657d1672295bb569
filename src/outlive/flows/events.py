"""What a flow's history is made of: the things that happened to it, and what it decided.

Pure. One commit writes a list of these, in order: each thing that was fed, followed by what the
flow's code decided on it. Replay feeds the same things in the same order, and checks that the code
decides the same. Instants are the store's wall clock in microseconds. Values are JSON as it was
encoded when it was written; nothing here looks into it.

A release may meet histories that a newer one wrote. A field that it does not know is left out of
what it sees, so that a field may be added only where that does no harm; whatever else is new is a
new kind of event, which a release that does not know it refuses to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import msgspec

from outlive.errors import HistoryTooNew

NULL = msgspec.Raw(b"null")


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error as it is kept: its type's name and text, and what it was raised from."""

    type: str
    message: str
    details: msgspec.Raw = NULL
    cause: Failure | None = None


class _Event(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="event", kw_only=True):
    at: int


# -- fed ----------------------------------------------------------------------------------------


class StepEnded(_Event, frozen=True, tag="step-ended"):
    """A step gave a result, or failed for good (``error``), at the attempt of this number.

    ``input`` is what it was called with: replay compares it. ``ahead``: it was recorded before the
    code was told, by a transaction or while the flow stood still. What the code decides on it may
    stand behind others that were recorded ahead, in a later commit, or not in the history yet.
    """

    step: str
    input: msgspec.Raw = NULL
    result: msgspec.Raw = NULL
    error: Failure | None = None
    attempt: int = 1
    ahead: bool = False


class StepRetrying(_Event, frozen=True, tag="step-retrying"):
    """An attempt of a step failed, and the next begins at ``due``. ``ahead`` as above.

    ``details`` is what the attempt said last with ``heartbeat``, for the next.
    """

    step: str
    attempt: int
    error: Failure
    due: int
    ahead: bool = False
    details: msgspec.Raw = NULL


class TimerFired(_Event, frozen=True, tag="timer-fired"):
    """A timer came due."""

    timer: int


class SignalReceived(_Event, frozen=True, tag="signal"):
    """A signal came; it is buffered until the code waits for its name."""

    name: str
    id: str
    payload: msgspec.Raw = NULL


class UpdateReceived(_Event, frozen=True, tag="update"):
    """An update came and its validator accepted it; the sender is told what it returned."""

    name: str
    id: str
    payload: msgspec.Raw = NULL


class ChildEnded(_Event, frozen=True, tag="child-ended"):
    """A child flow gave a result or failed; ``child`` is its identity in this flow."""

    child: str
    result: msgspec.Raw = NULL
    error: Failure | None = None


class CancelRequested(_Event, frozen=True, tag="cancel-requested"):
    """Somebody wants the flow cancelled: its code sees ``CancelledError``.

    ``unbegun``: its code had not begun, and never does.
    """

    reason: str
    unbegun: bool = False


# -- decided ------------------------------------------------------------------------------------


class StepIntended(_Event, frozen=True, tag="step-intended"):
    """A step with ``once`` is about to run.

    Without its end, nobody knows whether it did.
    """

    step: str
    input: msgspec.Raw = NULL


class StepSent(_Event, frozen=True, tag="step-sent"):
    """A step was put into a queue as a job; its end returns by mail."""

    step: str
    job: str
    input: msgspec.Raw = NULL


class TimerSet(_Event, frozen=True, tag="timer-set"):
    """A timer was set. It keeps this due time, whatever the code says later."""

    timer: int
    due: int


class ChildStarted(_Event, frozen=True, tag="child-started"):
    """A child flow was started; ``child`` is its identity here, ``id`` its own.

    ``abandon``: whether it outlives this flow.
    """

    child: str
    id: str
    input: msgspec.Raw = NULL
    abandon: bool = False


class SignalSent(_Event, frozen=True, tag="signal-sent"):
    """A signal was sent to another flow; ``number`` counts them."""

    number: int
    to: str
    name: str


class Patched(_Event, frozen=True, tag="patched"):
    """The code asked for this patch when it was new, and was told yes."""

    id: str


class Ended(_Event, frozen=True, tag="ended"):
    """The flow ended with this status; its outcome stands in its row.

    ``by`` are the steps and children (``step/pay#0``, ``child/ship#0``) whose failures it did not
    get over; none of them if it was an error of its own code. ``undid`` is the last of them that a
    saga called to undo something, or empty if it did so by other means. ``begun`` are local steps
    that were begun and have no end in the history, with digests of their inputs. A flow that
    completed says none of it.
    """

    status: str
    by: tuple[str, ...] = ()
    undid: str | None = None
    begun: dict[str, str] | None = None


# -- done by operators --------------------------------------------------------------------------


class Retried(_Event, frozen=True, tag="retried"):
    """What was recorded after the version ``to`` and ``kept`` more events is void.

    What has happened all the same stays: letters that were read, steps and children that succeeded.
    ``rerun_unknown``: steps with ``once`` of which nobody knows whether they ran are run again.
    """

    to: int
    kept: int = 0
    rerun_unknown: bool = False


class Forked(_Event, frozen=True, tag="forked"):
    """What stands before was copied from another flow: inputs of its steps are not compared.

    ``base`` is the one of the run that it was copied from; ``edited`` says whether the copy has
    another input.
    """

    id: str
    version: int
    base: int = 0
    edited: bool = False


Fed = (
    StepEnded
    | StepRetrying
    | TimerFired
    | SignalReceived
    | UpdateReceived
    | ChildEnded
    | CancelRequested
)
Decided = StepIntended | StepSent | TimerSet | ChildStarted | SignalSent | Patched | Ended
Event = Fed | Decided | Retried | Forked

DECIDED = (StepIntended, StepSent, TimerSet, ChildStarted, SignalSent, Patched, Ended)
"""The kinds of events that flow code decides."""


def origin_of(event: Event) -> str | None:
    """The step or the child that an event is of: ``step/pay#0``, ``child/ship#0``."""
    match event:
        case StepEnded() | StepRetrying() | StepIntended() | StepSent():
            return f"step/{event.step}"
        case ChildStarted() | ChildEnded():
            return f"child/{event.child}"
        case _:
            return None


def failure_in(event: Event) -> str | None:
    """The step or the child that failed for good, if that is what the event tells."""
    if isinstance(event, (StepEnded, ChildEnded)) and event.error is not None:
        return origin_of(event)
    return None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[Event])
_raw_decoder = msgspec.json.Decoder(list[msgspec.Raw])


class _Kind(msgspec.Struct, frozen=True):
    """What every event of every release says of itself."""

    event: str


_kinds = msgspec.json.Decoder(list[_Kind])
_KNOWN = frozenset(kind.__struct_config__.tag for kind in get_args(Event))


def encode_events(events: Sequence[Any]) -> str:
    """The text of one history row."""
    return _encoder.encode(events).decode()


def decode_events(text: str) -> list[Event]:
    """The events of one history row.

    Raises:
        HistoryTooNew: A newer release wrote it.
        msgspec.DecodeError: It is no JSON, and none of ours.
    """
    try:
        return _decoder.decode(text)
    except msgspec.ValidationError as error:
        raise HistoryTooNew(_unknown(text) or f"an event ({error})") from error


def first_events(text: str, count: int) -> str:
    """The first events of one history row, as they were written."""
    # There may be more in them than this release knows.
    return encode_events(_raw_decoder.decode(text)[:count])


def without_attempts(text: str, step: str) -> str:
    """One history row without the attempts of a step that failed; the others as they were."""
    events = zip(decode_events(text), _raw_decoder.decode(text), strict=True)
    return encode_events(
        [
            raw
            for event, raw in events
            if not (isinstance(event, StepRetrying) and event.step == step)
        ]
    )


def _unknown(text: str) -> str:
    """The kinds of events in a history row that this release does not know, in words."""
    try:
        kinds = sorted({each.event for each in _kinds.decode(text)} - _KNOWN)
    except msgspec.ValidationError:
        return ""
    return f"events of kind {', '.join(map(repr, kinds))}" if kinds else ""
