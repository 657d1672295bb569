"""``saga()``: what was done is undone, in reverse, when the rest fails."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, Self

from outlive.errors import UsageError
from outlive.flows.ending import is_failure
from outlive.flows.failures import message_of
from outlive.flows.running import the_flow
from outlive.runtime.entering import AwaitedBlock

P = ParamSpec("P")


class Saga(AwaitedBlock):
    """A block of a flow whose effects are undone if it does not get to its end."""

    block = "outlive.saga()"
    # Flow code awaits, all of it.
    unawaited = ""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def add(self, undo: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Register what undoes the effect of what was just done, usually a step.

        A plain function is called, and what it returns is awaited if it can be.

        Raises:
            UsageError: It cannot be called: give the step and its arguments, not a call of it.
        """
        if not callable(undo):
            raise UsageError(
                f"saga.add needs a function and its arguments, not {undo!r}: write "
                "saga.add(refund, order), not saga.add(refund(order))"
            )
        self._undo.append(lambda: undo(*args, **kwargs))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # A flow that is dropped, or goes on as new, has not failed: its history goes on.
        if error is None or not is_failure(error):
            return
        run = the_flow("saga()")
        run.asking.undoing += 1
        undoing = asyncio.ensure_future(self._undo_all(error))
        # The flow may end around it: what it has begun to undo is undone.
        run.loop.protect(undoing)
        cancelled: asyncio.CancelledError | None = None
        while not undoing.done():
            try:
                await asyncio.shield(undoing)
            except asyncio.CancelledError as asked:
                # Asked to cancel while it undoes: first it undoes, to the end.
                cancelled = asked
        run.asking.undoing -= 1
        undoing.result()
        if cancelled is not None and not isinstance(error, asyncio.CancelledError):
            # Whoever asked waits for it: code that gets over the error would never hear of it.
            raise asyncio.CancelledError(*cancelled.args) from error

    async def _undo_all(self, error: BaseException) -> None:
        asking = the_flow("saga()").asking
        for undo in reversed(self._undo):
            asking.undid = ""
            try:
                undone = undo()
                if inspect.isawaitable(undone):
                    await undone
            except Exception as failed:  # noqa: BLE001 - the others are undone all the same
                _note(error, f"an undo of the saga failed: {message_of(failed)}")
                _tell(failed)
            except asyncio.CancelledError as cancelled:
                # By its own code, or because it waits for a task that ended with the flow.
                _note(error, "an undo of the saga was cancelled")
                _tell(cancelled)


def _tell(failed: BaseException) -> None:
    run = the_flow("saga()")
    if not run.replaying:
        run.log.log(
            logging.ERROR,
            "could not undo a step in a saga of flow %r: %r",
            *(run.id, failed),
            exc_info=failed,
            extra={"flow": run.id},
        )


def _note(error: BaseException, text: str) -> None:
    # What somebody put in place of its notes may be no list; the others are undone all the same.
    with contextlib.suppress(Exception):
        error.add_note(text)


def saga() -> Saga:
    """A block whose effects are undone if it fails: ``async with outlive.saga() as saga``.

    After each step say ``saga.add(undo_step, …)``. When the block raises, or the flow is cancelled
    in it, the undo steps run in reverse, each to its end, whatever ends around them; then the error
    goes on. An undo step that fails for good is logged and noted in the error, and the others run
    all the same. Who is cancelled, or runs out of time, while the saga undoes a failure hears of it
    when that is done, with the failure as its cause.
    """
    the_flow("saga()")
    return Saga()
