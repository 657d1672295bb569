"""How a run of a flow ends: with a result, an error, a cancellation, or the next run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

from holdfast.errors import Evicted, UsageError
from holdfast.flows.events import Failure
from holdfast.flows.failures import (
    CANCELLED,
    encode_failure,
    failure_of,
    message_of,
    origins_of,
)
from holdfast.flows.flow import Flow
from holdfast.model.instance import InstanceStatus
from holdfast.work.payload import encode


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
        return Ending(InstanceStatus.FAILED, failure=failure_of(error), by=by)
    try:
        result = encode(main.result(), f"the result of flow {flow.name}", canonical=True)
    except UsageError as wrong:
        return Ending(InstanceStatus.FAILED, failure=failure_of(wrong))
    return Ending(InstanceStatus.COMPLETED, result)


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
