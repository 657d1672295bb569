"""How a run of a flow ends: with a result, an error, a cancellation, or the next run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

from outlive.errors import Evicted, InvalidPayload, NonDeterminism, UsageError
from outlive.flows.events import Failure
from outlive.flows.failures import (
    CANCELLED,
    encode_failure,
    failed_with,
    failure_of,
    message_of,
    origins_of,
    traceback_of,
)
from outlive.flows.flow import Flow
from outlive.model.instance import InstanceStatus
from outlive.serialization import encode, masked

# Of a failure's message in the sentence of another error, which an attribute of the flow holds.
_FAILED_CHARS_MAX = 200


class Restart(BaseException):
    """Flow code called ``continue_as_new``. Control flow, never to be caught."""

    def __init__(self, input: str) -> None:  # noqa: A002 - it is one
        super().__init__()
        self.input = input


class Ending(msgspec.Struct, frozen=True):
    """What a run ends with: a status with a result or a failure, or the input of the next run.

    ``by`` are the steps and children that it failed by.
    """

    status: InstanceStatus | None = None
    result: str = "null"
    failure: Failure | None = None
    restart: str | None = None
    by: tuple[str, ...] = ()

    @property
    def outcome(self) -> str | None:
        """What the row of the flow says."""
        if self.status is None:
            return None
        return self.result if self.failure is None else encode_failure(self.failure)

    def unexpected(self, id: str, expected: str) -> NonDeterminism:  # noqa: A002 - it is one
        """The error of a replay that came to this end where the history goes on."""
        failure = self.failure
        if failure is None or self.status is not InstanceStatus.FAILED:
            return NonDeterminism(id, expected, "the end of the flow")
        said = " ".join(masked(failure.message, _FAILED_CHARS_MAX).split())
        error = NonDeterminism(
            id, expected, f"the failure of the flow with {failure.type}: {said}", failed=True
        )
        error.add_note(f"The flow failed with {failure.type}:{traceback_of(failure)}")
        return error


def ending_of(
    flow: Flow[..., Any], main: asyncio.Task[Any], latest: Callable[[], str | None]
) -> Ending:
    """What a main coroutine that has ended means for its flow.

    ``latest`` tells which failure of a step or a child was the last thing that happened, if any.
    """
    if main.cancelled():
        return Ending(InstanceStatus.CANCELLED, failure=Failure(CANCELLED, _reason(main)))
    error = main.exception()
    restart = _restart_in(error)
    if restart is not None:
        return Ending(restart=restart.input)
    if error is not None:
        by = origins_of(error, latest())
        return Ending(InstanceStatus.FAILED, failure=failed_with(failure_of(error)), by=by)
    value = main.result()
    try:
        result = encode(value, f"the result of flow {flow.name}", canonical=True)
        _check_fits(flow, value, result)
    except UsageError as wrong:
        return Ending(InstanceStatus.FAILED, failure=failure_of(wrong))
    return Ending(InstanceStatus.COMPLETED, result)


def _check_fits(flow: Flow[..., Any], value: object, result: str) -> None:
    """Look whether whoever asks for the result of a flow will get it.

    Raises:
        InvalidPayload: It is not of the annotated type.
    """
    codec = flow.arguments.returns
    kind = codec.kind
    # Most flows return nothing, a text or a number: there is nothing to read.
    if kind is Any or (codec.flat and type(value) is kind):
        return
    try:
        codec.decode(result)
    except InvalidPayload as invalid:
        promised = kind.__qualname__ if isinstance(kind, type) else kind
        raise InvalidPayload(
            f"flow {flow.name} returned a {type(value).__qualname__}, which does not fit "
            f"{promised}: {invalid}"
        ) from None


def is_failure(error: BaseException) -> bool:
    """Whether what ends a block of flow code is a failure: not if it is dropped, or begins anew."""
    return not isinstance(error, (Evicted, GeneratorExit)) and _restart_in(error) is None


def _restart_in(error: BaseException | None) -> Restart | None:
    if isinstance(error, BaseExceptionGroup):
        # A task group wraps what is raised in its block.
        inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return _restart_in(inner[0]) if len(inner) == 1 else None
    return error if isinstance(error, Restart) else None


def _reason(main: asyncio.Task[Any]) -> str:
    try:
        main.result()
    except asyncio.CancelledError as error:
        return message_of(error)
    return ""
