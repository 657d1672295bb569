"""How claims end: completed, failed or given back; and whether they still stand.

Owns what a missing row of an answer means. Single calls of one kind that come together share a
statement. Jobs with an ordering key take a transaction, because the next of their key gets its
turn in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from outlive.drivers.postgres import job_move_sql, job_order_sql, job_sql
from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.job_exchange import JobExchange, columns
from outlive.drivers.postgres.job_tables import KEY_LOCKS_MAX, JobTables, place
from outlive.drivers.postgres.transactions import Run
from outlive.errors import StoreUnavailable
from outlive.model.job import Completion, Extension, Failure, Return, Settled

# Somebody enqueues into the same ordering key just now: it is tried again after so long, so often,
# together with the others. Who still meets it locked then waits for it alone.
_BUSY_PAUSES_S = (0.002, 0.004, 0.008)

# A claim that is ours in one look and not to be had in the next statement changed hands between
# them; three times in a row is no accident.
_ROUNDS_MAX = 3

# Claims that wait for an ordering key which somebody's open transaction has keep a connection each:
# few enough to leave the others theirs.
_WAITING_MAX = 2

_Ending = TypeVar("_Ending", Completion, Failure, Return)
_Ending_contra = TypeVar("_Ending_contra", Completion, Failure, Return, contravariant=True)


class _End(Protocol[_Ending_contra]):
    """Ends claims in a statement of ``run``, and gives the places of the members that it ended."""

    async def __call__(
        self, run: Run, batch: Sequence[_Ending_contra], *, ordered: bool
    ) -> set[int]: ...


@dataclass(frozen=True, slots=True)
class _Kind(Generic[_Ending]):
    """One way to end claims, and its name in ``settled``."""

    outcome: str
    end: _End[_Ending]


class JobSettler:
    """Ends claims in the tables of one namespace."""

    def __init__(self, tables: JobTables, exchange: JobExchange) -> None:
        self._tables = tables
        self._exchange = exchange
        self._complete_sql = tables.text(job_sql.COMPLETE)
        self._complete_ordered_sql = tables.text(job_sql.COMPLETE_ORDERED)
        self._fail_sql = tables.text(job_move_sql.FAIL)
        self._release_sql = tables.text(job_move_sql.RELEASE)
        self._extend_sql = tables.text(job_order_sql.EXTEND)
        self._look_sql = tables.text(job_order_sql.LOOK)
        self._try_keys_sql = tables.text(job_order_sql.TRY_KEYS)
        self._keys_sql = tables.text(job_order_sql.KEYS_OF)
        # Whether what was completed last was usual, so that the short statement is likely to do.
        # A hint: whatever that leaves is asked of the general one.
        self._usual = True
        self._done = _Kind("done", self._end_done)
        self._failed = _Kind("failed", self._end_failed)
        self._released = _Kind("released", self._end_released)
        # Each of these meets its own token when it is carried out late, or changes nothing.
        abandons = tables.abandons
        self._completing = Coalescer[Completion, Settled | None](
            lambda batch: self._settle_free(self._done, batch), abandons=abandons, lone=True
        )
        self._failing = Coalescer[Failure, Settled | None](
            lambda batch: self._settle_free(self._failed, batch), abandons=abandons, lone=True
        )
        self._releasing = Coalescer[Return, Settled | None](
            lambda batch: self._settle_free(self._released, batch), abandons=abandons, lone=True
        )
        self._waiting = asyncio.Semaphore(_WAITING_MAX)
        self._extending = Coalescer[Extension, Settled](self._extend, abandons=abandons, lone=True)

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """End claimed jobs as done; see the port."""
        if len(completions) == 1:
            return [await self._settle_one(self._done, self._completing, completions[0])]
        return await self._settle(self._done, completions)

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """End claims whose handler failed; see the port."""
        if len(failures) == 1:
            return [await self._settle_one(self._failed, self._failing, failures[0])]
        return await self._settle(self._failed, failures)

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """Give claims back unrun; see the port."""
        if len(returns) == 1:
            return [await self._settle_one(self._released, self._releasing, returns[0])]
        return await self._settle(self._released, returns)

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """Learn which claims still stand; see the port."""
        if len(extensions) == 1:
            return [await self._extending.submit(extensions[0].id, extensions[0])]
        return await self._extend(extensions)

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._completing.close()
        await self._failing.close()
        await self._releasing.close()
        await self._extending.close()

    # -- the statements -------------------------------------------------------------------------

    async def _end_done(self, run: Run, batch: Sequence[Completion], *, ordered: bool) -> set[int]:
        if ordered:
            rows = await run(self._complete_ordered_sql, *columns(batch), self._tables.channel)
            return set(map(place, rows))
        ended: set[int] = set()
        if self._usual:
            ended = await self._exchange.complete(batch)
        left = [index for index in range(len(batch)) if index not in ended]
        if left:
            members = [batch[index] for index in left]
            rows = await run(self._complete_sql, *columns(members), self._tables.channel)
            self._usual = bool(rows) and all(row["usual"] for row in rows)
            ended.update(left[place(row)] for row in rows)
        return ended

    async def _end_failed(self, run: Run, batch: Sequence[Failure], *, ordered: bool) -> set[int]:
        rows = await run(
            self._fail_sql,
            ordered,
            self._tables.channel,
            [one.id for one in batch],
            [one.token for one in batch],
            [one.error for one in batch],
            [one.retry_us for one in batch],
        )
        return set(map(place, rows))

    async def _end_released(self, run: Run, batch: Sequence[Return], *, ordered: bool) -> set[int]:
        rows = await run(
            self._release_sql,
            ordered,
            self._tables.channel,
            [one.id for one in batch],
            [one.token for one in batch],
            [one.delay_us for one in batch],
            [one.unbegun for one in batch],
        )
        return set(map(place, rows))

    async def _extend(self, batch: Sequence[Extension]) -> Sequence[Settled]:
        if not batch:
            return []
        rows = await self._tables.fetch(
            self._extend_sql,
            [one.id for one in batch],
            [one.token for one in batch],
            [one.progress for one in batch],
        )
        stands = {row["n"]: row["cancel"] for row in rows}
        told = {None: Settled.LOST, False: Settled.OK, True: Settled.CANCEL}
        return [told[stands.get(n)] for n in range(1, len(batch) + 1)]

    # -- outcomes -------------------------------------------------------------------------------

    async def _settle_one(
        self, kind: _Kind[_Ending], line: Coalescer[_Ending, Settled | None], member: _Ending
    ) -> Settled:
        """End one claim with others, or alone if it has to wait: its line must not."""
        settled = await line.submit(member.id, member)
        if settled is not None:
            return settled
        async with self._waiting:
            (settled,) = await self._settle(kind, [member])
        return settled

    async def _settle(self, kind: _Kind[_Ending], batch: Sequence[_Ending]) -> Sequence[Settled]:
        """End each claim of ``batch``, and say what became of it."""
        answers = await self._settle_each(kind, batch, wait=True)
        if len(answers) < len(batch):
            raise StoreUnavailable(
                "the claims of these jobs changed during every attempt; try again"
            )
        return [answers[index] for index in range(len(batch))]

    async def _settle_free(
        self, kind: _Kind[_Ending], batch: Sequence[_Ending]
    ) -> Sequence[Settled | None]:
        """The same without waiting for anybody: ``None`` for those whose ordering key is locked."""
        answers = await self._settle_each(kind, batch, wait=False)
        return [answers.get(index) for index in range(len(batch))]

    async def _settle_each(
        self, kind: _Kind[_Ending], batch: Sequence[_Ending], *, wait: bool
    ) -> dict[int, Settled]:
        answers: dict[int, Settled] = {}
        # In the order of their ids, so that two batches which share some cannot block each other.
        left: list[int] = sorted(range(len(batch)), key=lambda index: batch[index].id)
        for _ in range(_ROUNDS_MAX):
            if not left:
                break
            ended = await kind.end(
                self._tables.fetch, [batch[index] for index in left], ordered=False
            )
            answers.update(_ok(left, ended))
            left = [index for index in left if index not in answers]
            if left:
                ordered = await self._look(kind, batch, left, answers)
                await self._settle_ordered(kind, batch, ordered, answers, wait=wait)
                left = [index for index in left if index not in answers]
                if not wait:
                    break
        return answers

    async def _look(
        self,
        kind: _Kind[_Ending],
        batch: Sequence[_Ending],
        left: Sequence[int],
        answers: dict[int, Settled],
    ) -> list[int]:
        """Judge what was not ended; gives those that stand and have an ordering key."""
        rows = await self._tables.fetch(
            self._look_sql, [batch[index].id for index in left], write=False
        )
        found = {left[place(row)]: row for row in rows}
        ordered: list[int] = []
        for index in left:
            row = found.get(index)
            if row is None or row["token"] != batch[index].token or row["token"] == 0:
                answers[index] = Settled.LOST
            elif row["settled"] is not None:
                same = row["settled"] == kind.outcome
                answers[index] = Settled.OK if same else Settled.LOST
            elif row["ordered"]:
                ordered.append(index)
        return ordered

    async def _settle_ordered(
        self,
        kind: _Kind[_Ending],
        batch: Sequence[_Ending],
        left: list[int],
        answers: dict[int, Settled],
        *,
        wait: bool,
    ) -> None:
        for pause_s in (0.0, *_BUSY_PAUSES_S):
            if not left:
                return
            await self._tables.clock.sleep(pause_s * self._tables.random.uniform(0.5, 1.5))
            for start in range(0, len(left), KEY_LOCKS_MAX):
                part = left[start : start + KEY_LOCKS_MAX]
                members = [batch[index] for index in part]
                answers.update(_ok(part, await self._end_ordered(kind, members, wait=False)))
            left = [index for index in left if index not in answers]
        for index in left if wait else ():
            ended = await self._end_ordered(kind, [batch[index]], wait=True)
            answers.update(_ok([index], ended))

    async def _end_ordered(
        self, kind: _Kind[_Ending], members: Sequence[_Ending], *, wait: bool
    ) -> set[int]:
        """End claims under the locks of their keys; without ``wait`` only those that are free."""

        async def body(run: Run) -> set[int]:
            ids = [member.id for member in members]
            rows: Sequence[Any]
            if wait:
                rows = await run(self._keys_sql, ids)
            else:
                rows = [row for row in await run(self._try_keys_sql, ids) if row["ours"]]
            keys = list({(row["queue"], row["ordering_key"]): None for row in rows})
            if wait:
                await self._tables.lock_keys(run, keys)
            ours = {row["id"] for row in rows}
            mine = [index for index, member in enumerate(members) if member.id in ours]
            if not mine:
                return set()
            ended = await kind.end(run, [members[index] for index in mine], ordered=True)
            await self._tables.pass_turn(run, keys)
            return {mine[index] for index in ended}

        return await self._tables.transact(body)


def _ok(indexes: Sequence[int], ended: set[int]) -> dict[int, Settled]:
    return {indexes[index]: Settled.OK for index in ended}
