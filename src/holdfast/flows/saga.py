"""``saga()``: what was done is undone, in reverse, when the rest fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, ParamSpec, Self

from holdfast.flows.ending import is_failure
from holdfast.flows.running import the_flow

P = ParamSpec("P")

_log = logging.getLogger("holdfast.flows")


class Saga:
    """A block of a flow whose effects are undone if it does not get to its end."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Awaitable[Any]]] = []

    def add(self, undo: Callable[P, Awaitable[Any]], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Register what undoes the effect of what was just done, usually a step."""
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
        asking = the_flow("saga()").asking
        asking.undoing += 1
        undoing = asyncio.ensure_future(self._undo_all(error))
        while not undoing.done():
            try:
                await asyncio.shield(undoing)
            except asyncio.CancelledError:
                # Asked to cancel while it undoes: that is what it is doing, and to the end.
                continue
        asking.undoing -= 1
        undoing.result()

    async def _undo_all(self, error: BaseException) -> None:
        for undo in reversed(self._undo):
            try:
                await undo()
            except Exception as failed:  # noqa: BLE001 - the others are undone all the same
                error.add_note(f"undoing failed: {failed}")
                run = the_flow("saga()")
                if not run.replaying:
                    _log.error(
                        "a saga of flow %r could not undo a step: %r",
                        *(run.id, failed),
                        exc_info=failed,
                        extra={"flow": run.id},
                    )
            except asyncio.CancelledError:
                error.add_note("undoing was cancelled")


def saga() -> Saga:
    """A block whose effects are undone if it fails: ``async with holdfast.saga() as saga``.

    After each step say ``saga.add(undo_step, …)``. When the block raises, or the flow is cancelled
    in it, the undo steps run in reverse, each to its end; then the error goes on. An undo step
    that fails for good is logged and noted in the error, and the others run all the same.
    """
    the_flow("saga()")
    return Saga()
