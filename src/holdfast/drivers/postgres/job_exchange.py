"""Completions and a claim that come together go to the server in one statement.

Owns their meeting. A worker whose handlers end writes what became of their jobs and asks for more
in the same turn of its loop: two commits, each with its flush, where one does. Who comes first
waits a turn or two for the other, where they have been coming together; who comes second sends for
both. Each may be repeated by itself, so that a statement that fails or is given up is nothing new
to either.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.drivers.postgres import job_sql
from holdfast.drivers.postgres.job_tables import JobTables, place
from holdfast.errors import OutcomeUnknown, StoreError, UsageError
from holdfast.model.job import Completion

# A claim waits for the completions that it goes with: no more of them than a worker claims at once.
# More, which piled up while the server was slow, go beside it.
_TOGETHER_MAX = 100

# Nor for results that take longer to send than a claim takes, of so many characters in all.
_SIZE_MAX = 100_000

# Where the two do not come together, nobody waits any more after so many times in vain, until one
# comes so soon behind the other that they would have met.
_VAIN_MAX = 4
_NEAR_S = 0.001

# A completion that is alone may come a turn later, because others of its kind are waited for.
_TURNS = 2


@dataclass(slots=True, eq=False)
class _Offer:
    """One half, which waits for the other: its values, and the rows that answer both."""

    values: tuple[Any, ...]
    # ``None`` says that each must go alone.
    answer: asyncio.Future[list[Any] | None]


class JobExchange:
    """Sends the usual claims and completions of one namespace."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._claim_sql = tables.text(job_sql.CLAIM_LONE)
        self._complete_sql = tables.text(job_sql.COMPLETE_KEPT)
        self._both_sql = tables.text(job_sql.EXCHANGE)
        # Who waits for the other kind, one of each at most.
        self._claim: _Offer | None = None
        self._completion: _Offer | None = None
        self._claimed_at = self._completed_at = -math.inf
        # How many have waited in vain since two met, or would have met.
        self._vain = 0

    async def claim(self, limit: int, *values: Any) -> Sequence[Any]:
        """The rows of ``CLAIM_LONE``, which may have another column at their end."""
        completion, rows = self._completion, None
        self._claimed_at = self._now_near(self._completed_at)
        if limit > _TOGETHER_MAX or self._claim is not None:
            pass
        elif completion is not None:
            self._completion = None
            rows = await self._send(values, completion.values, completion)
        elif self._vain < _VAIN_MAX:
            offer = self._claim = _offer(values)
            try:
                await _turns()
            finally:
                met = self._claim is not offer
                self._claim = self._claim if met else None
                self._vain = 0 if met else self._vain + 1
            rows = await offer.answer if met else None
        if rows is None:
            return await self._tables.fetch(self._claim_sql, *values)
        return rows if rows[0]["seq"] is not None else ()

    async def complete(self, batch: Sequence[Completion]) -> set[int]:
        """The places of those that have ended by the usual statements."""
        values = columns(batch)
        claim, rows = self._claim, None
        self._completed_at = self._now_near(self._claimed_at)
        size = sum(len(one.result) for one in batch if one.result is not None)
        if len(batch) > _TOGETHER_MAX or size > _SIZE_MAX or self._completion is not None:
            pass
        elif claim is not None:
            self._claim = None
            rows = await self._send(claim.values, values, claim)
        elif self._vain < _VAIN_MAX:
            offer = self._completion = _offer(values)
            try:
                await _turns()
            finally:
                met = self._completion is not offer
                self._completion = self._completion if met else None
                self._vain = 0 if met else self._vain + 1
            rows = await offer.answer if met else None
        if rows is None:
            return set(map(place, await self._tables.fetch(self._complete_sql, *values)))
        done: list[int] | None = rows[0]["done"]
        return set(range(len(batch))) if done is None else {number - 1 for number in done}

    def _now_near(self, other_at: float) -> float:
        """The time; if the other kind came just now, it is worth waiting again."""
        now = self._tables.clock.monotonic()
        if now - other_at < _NEAR_S:
            self._vain = 0
        return now

    async def _send(
        self, claim: tuple[Any, ...], completion: tuple[Any, ...], other: _Offer
    ) -> list[Any] | None:
        """The rows for both, or ``None`` where each must go alone: one has an impossible value."""
        rows: list[Any] | None = None
        try:
            rows = await self._tables.fetch(self._both_sql, *claim, *completion)
        except UsageError:
            pass
        except BaseException as error:
            if not other.answer.done():
                given_up = OutcomeUnknown("the statement was given up; it may be applied")
                other.answer.set_exception(error if isinstance(error, StoreError) else given_up)
            raise
        if not other.answer.done():
            other.answer.set_result(rows)
        return rows


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _offer(values: tuple[Any, ...]) -> _Offer:
    return _Offer(values, asyncio.get_running_loop().create_future())


def columns(batch: Sequence[Completion]) -> tuple[list[str], list[int], list[str | None]]:
    """The values of completions, as the statements take them."""
    return (
        [one.id for one in batch],
        [one.token for one in batch],
        [one.result for one in batch],
    )
