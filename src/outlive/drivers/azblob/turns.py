"""Steps on one key, one after another, each to its end.

Owns the order of a host's own requests. A lease takes several requests; were one of them given up
half way because its caller was cancelled, it could reach the service after a later step and lease a
key for nobody. A keeper is different: it gives a step up at once, because every step of a renewal
is worth nothing after the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from outlive.errors import StoreUnavailable

_Result = TypeVar("_Result")


class Turns:
    """Runs steps of one key in order. ``abandons`` lets each run in its caller's own task."""

    def __init__(self, *, abandons: bool) -> None:
        self._abandons = abandons
        self._last: dict[str, asyncio.Task[Any]] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def run(self, key: str, step: Callable[[], Awaitable[_Result]]) -> _Result:
        """Run ``step`` after all earlier ones of ``key``; it goes on if the caller is cancelled.

        Raises:
            StoreUnavailable: The driver was closed meanwhile.
        """
        if self._abandons:
            return await step()
        task = asyncio.create_task(_after(self._last.get(key), step))
        self._last[key] = task
        self._running.add(task)
        task.add_done_callback(lambda done: self._forget(key, done))
        try:
            # Not by `shield`: from Python 3.14 on that tells of errors which come when nobody
            # waits any more.
            await asyncio.wait((task,))
            return task.result()
        except asyncio.CancelledError:
            if self._closed and task.cancelled():
                raise StoreUnavailable("the driver is closed") from None
            raise

    async def close(self) -> None:
        """Give up every step that is under way. Repeatable."""
        self._closed = True
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _forget(self, key: str, done: asyncio.Task[Any]) -> None:
        self._running.discard(done)
        if self._last.get(key) is done:
            del self._last[key]
        if not done.cancelled():
            # Looked at here, because the caller of a cancelled step no longer does.
            done.exception()


async def _after(
    earlier: asyncio.Task[Any] | None, step: Callable[[], Awaitable[_Result]]
) -> _Result:
    if earlier is not None:
        await asyncio.wait([earlier])
    return await step()
