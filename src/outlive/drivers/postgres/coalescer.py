"""Turns concurrent operations of one kind into batches.

Owns the waiting line and who gets which outcome; knows nothing of SQL. At most one batch is under
way, so that whatever arrives meanwhile shares the next one: the busier, the larger the batches.

Where ``lone`` is set, and once a batch was of one and nobody came meanwhile, the next operation
goes out at once in its caller's own task, because handing it to another and back costs two turns of
the loop. Cancelling that caller gives the operation up while the server may still carry it out:
harmless for operations that may be carried out late, and for others nothing more is sent until
``settled`` says that it is over. Where several came together the last time, one turn is spent on
collecting.

Two operations on the same row never share a batch. A caller that is cancelled does not disturb the
others of its batch, except where ``abandons`` is set: there the batch itself is given up at once.
Nor does one whose values cannot be stored: each of its batch is then carried out by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from outlive.errors import OutcomeUnknown, StoreUnavailable, UsageError

Operation = TypeVar("Operation")
Outcome = TypeVar("Outcome")

# One batch is one commit and one reply. Beyond a few hundred rows the statement takes longer than
# the flush it shares, so that waiting callers gain nothing.
BATCH_MAX = 200

# Callers that wait here hold memory and a promise; a line this long means the store is far behind.
PENDING_MAX = 10_000


@dataclass(slots=True, eq=False)
class _Entry(Generic[Operation, Outcome]):
    row: Hashable
    operation: Operation
    future: asyncio.Future[Outcome]
    flying: bool = False


class Coalescer(Generic[Operation, Outcome]):
    """One kind of operation. ``run`` carries out a batch and returns one outcome for each."""

    def __init__(
        self,
        run: Callable[[Sequence[Operation]], Awaitable[Sequence[Outcome | Exception]]],
        *,
        abandons: bool = False,
        lone: bool | Callable[[], bool] = False,
        settled: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self._run = run
        self._settled = settled
        self._may_go_alone = lone if callable(lone) else lambda: lone
        self._abandons = abandons
        self._pending: deque[_Entry[Operation, Outcome]] = deque()
        self._worker: asyncio.Task[None] | None = None
        # Whether an operation is under way in its caller's own task.
        self._lone = False
        # Whether operations have come one by one lately.
        self._quiet = False
        self._closed = False

    async def submit(self, row: Hashable, operation: Operation) -> Outcome:
        """Carry out ``operation``, which touches ``row`` alone, in some batch.

        Raises:
            StoreUnavailable: The line is too long, or closed before the operation was sent.
        """
        if self._closed:
            raise StoreUnavailable("the driver is closed")
        if len(self._pending) >= PENDING_MAX:
            raise StoreUnavailable(f"{PENDING_MAX} operations are already waiting for PostgreSQL")
        if self._quiet and not self._lone and self._worker is None and self._may_go_alone():
            return await self._alone(operation)
        loop = asyncio.get_running_loop()
        # Not written as _Entry[Operation, Outcome](…): a subscript costs more than the object.
        entry: _Entry[Operation, Outcome] = _Entry(row, operation, loop.create_future())
        self._pending.append(entry)
        self._start_worker()
        try:
            return await entry.future
        except asyncio.CancelledError:
            if self._abandons and entry.flying:
                self._abandon()
            raise

    async def _alone(self, operation: Operation) -> Outcome:
        self._lone = True
        try:
            (outcome,) = await self._run((operation,))
        except asyncio.CancelledError:
            if self._settled is None:
                self._alone_no_more()
            else:
                settling = asyncio.get_running_loop().create_task(self._settled())
                settling.add_done_callback(self._alone_no_more)
            raise
        except BaseException:
            self._alone_no_more()
            raise
        self._alone_no_more()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _alone_no_more(self, settling: asyncio.Task[None] | None = None) -> None:
        del settling
        self._lone = False
        if self._pending:
            self._quiet = False
            self._start_worker()

    def _start_worker(self) -> None:
        if self._worker is None and not self._lone and not self._closed:
            self._worker = asyncio.get_running_loop().create_task(self._work())

    def _abandon(self) -> None:
        if self._worker is not None:
            self._worker.cancel()

    async def _work(self) -> None:
        try:
            while self._pending:
                batch = self._next_batch()
                if batch:
                    await self._carry_out(batch)
        finally:
            self._worker = None

    def _next_batch(self) -> list[_Entry[Operation, Outcome]]:
        """The longest run of the line without a row twice; later ones keep their order."""
        rows: set[Hashable] = set()
        batch: list[_Entry[Operation, Outcome]] = []
        later: list[_Entry[Operation, Outcome]] = []
        while self._pending and len(batch) < BATCH_MAX:
            entry = self._pending.popleft()
            if entry.future.done():
                continue
            if entry.row in rows:
                later.append(entry)
                continue
            rows.add(entry.row)
            batch.append(entry)
        self._pending.extendleft(reversed(later))
        return batch

    async def _carry_out(self, batch: list[_Entry[Operation, Outcome]]) -> None:
        for entry in batch:
            entry.flying = True
        try:
            outcomes = await self._run([entry.operation for entry in batch])
            self._quiet = len(batch) == 1 and not self._pending
        except asyncio.CancelledError:
            lost = OutcomeUnknown("the batch was cancelled; it may have been applied")
            _settle(batch, [lost] * len(batch))
            worker = asyncio.current_task()
            if not self._abandons or self._closed or worker is None:
                raise
            worker.uncancel()
        except UsageError as error:
            if len(batch) == 1:
                _settle(batch, [error])
                return
            # Something of one of them cannot be stored, which must be nothing to the others.
            for entry in batch:
                await self._carry_out([entry])
        except Exception as error:  # noqa: BLE001 - each caller gets it
            _settle(batch, [error] * len(batch))
        else:
            _settle(batch, outcomes)

    async def close(self) -> None:
        """Fail what waits and give up what is under way. Repeatable."""
        self._closed = True
        while self._pending:
            entry = self._pending.popleft()
            if not entry.future.done():
                entry.future.set_exception(StoreUnavailable("the driver is closed"))
        worker = self._worker
        if worker is not None:
            worker.cancel()
            await asyncio.wait({worker})


def _settle(
    batch: Sequence[_Entry[Operation, Outcome]], outcomes: Sequence[Outcome | Exception]
) -> None:
    for entry, outcome in zip(batch, outcomes, strict=True):
        entry.flying = False
        if entry.future.done():
            continue
        if isinstance(outcome, Exception):
            entry.future.set_exception(outcome)
        else:
            entry.future.set_result(outcome)
