"""Settling: writes of one kind by handlers that end together go to the store together.

Owns the batches and their repetition. A write is repeated while the store does not answer and the
session it belongs to is still ours; after that it counts as lost, which is what others see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from outlive.errors import StoreError
from outlive.model.job import Settled
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession

# One batch is one statement; what came meanwhile is the next.
BATCH_MAX = 1000

_FIRST_S, _MOST_S = 0.05, 1.0

# A batch that takes longer waits for somebody, perhaps for a transaction of the user's own that is
# open for minutes: the next goes out beside it.
_SLOW_S = 0.25

# So many at once; a store that makes all of them wait is itself slow.
SLOW_MAX = 8

_Waiting = tuple[Any, LiveSession, asyncio.Future[Settled]]


class Lane:
    """One kind of write: ``complete``, ``fail``, ``release`` or ``extend``."""

    def __init__(
        self,
        runtime: Runtime,
        method: Callable[[Sequence[Any]], Awaitable[Sequence[Settled]]],
        log: logging.Logger,
        *,
        slow_max: int = SLOW_MAX,
    ) -> None:
        self._runtime = runtime
        self._method = method
        self._log = log
        self._slow_max = slow_max
        self._waiting: list[_Waiting] = []
        self._flushing: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def put(self, member: object, session: LiveSession) -> asyncio.Future[Settled]:
        """Write ``member`` with all that come in this turn of the loop, or after the last batch."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append((member, session, future))
        if self._flushing is None:
            self._flushing = self._runtime.spawn(self._flush(), name="outlive-settle")
        return future

    async def flushed(self) -> None:
        """Wait until everything that was put has its answer."""
        while self._flushing is not None or self._sending:
            await asyncio.wait([*self._sending, *([self._flushing] if self._flushing else ())])

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:BATCH_MAX]
                del self._waiting[: len(batch)]
                sending = self._runtime.spawn(self._send(batch), name="outlive-settle-batch")
                self._sending.add(sending)
                sending.add_done_callback(self._sending.discard)
                await asyncio.wait([sending], timeout=_SLOW_S)
                if len(self._sending) >= self._slow_max:
                    await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._flushing = None

    async def _send(self, batch: list[_Waiting]) -> None:
        backoff: Backoff | None = None
        try:
            while batch:
                try:
                    answers = await self._method([member for member, _, _ in batch])
                except StoreError as error:
                    if backoff is None:
                        backoff = Backoff(_FIRST_S, _MOST_S, self._runtime.random)
                        self._log.warning(
                            "could not record the result of a job, will retry: %s", error
                        )
                    await self._runtime.clock.sleep(backoff.next_s())
                    batch = _still_ours(batch)
                else:
                    for (_, _, future), answer in zip(batch, answers, strict=True):
                        _tell(future, answer)
                    return
        except Exception:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            # A mistake of a driver: the jobs stay claimed until this session ends.
            self._log.exception(
                "could not record job results; the jobs stay claimed until this host's session ends"
            )
        finally:
            for _, _, future in batch:
                _tell(future, Settled.LOST)


def _still_ours(batch: list[_Waiting]) -> list[_Waiting]:
    """Those whose session may still be relied on; the others are told that they lost it."""
    kept: list[_Waiting] = []
    for waiting in batch:
        if waiting[1].held:
            kept.append(waiting)
        else:
            _tell(waiting[2], Settled.LOST)
    return kept


def _tell(future: asyncio.Future[Settled], answer: Settled) -> None:
    if not future.done():
        future.set_result(answer)
