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

from outlive.drivers.postgres import job_sql
from outlive.drivers.postgres.job_tables import JobTables, place
from outlive.errors import OutcomeUnknown, StoreError, UsageError
from outlive.model.job import Completion

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

# The two kinds, as places in lists.
_CLAIM, _COMPLETION = 0, 1


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
        # Who waits for the other kind, one of each at most; and when each kind came last.
        self._offers: list[_Offer | None] = [None, None]
        self._came_at = [-math.inf, -math.inf]
        # How many have waited in vain since two met, or would have met.
        self._vain = 0

    async def claim(self, limit: int, *values: Any) -> Sequence[Any]:
        """The rows of ``CLAIM_LONE``, which may have another column at their end."""
        rows = await self._meet(_CLAIM, values) if limit <= _TOGETHER_MAX else None
        if rows is None:
            return await self._tables.fetch(self._claim_sql, *values)
        return rows if rows[0]["seq"] is not None else ()

    async def complete(self, batch: Sequence[Completion]) -> set[int]:
        """The places of those that have ended by the usual statements."""
        values = columns(batch)
        size = sum(len(one.result) for one in batch if one.result is not None)
        few = len(batch) <= _TOGETHER_MAX and size <= _SIZE_MAX
        rows = await self._meet(_COMPLETION, values) if few else None
        if rows is None:
            return set(map(place, await self._tables.fetch(self._complete_sql, *values)))
        done: list[int] | None = rows[0]["done"]
        return set(range(len(batch))) if done is None else {number - 1 for number in done}

    async def _meet(self, kind: int, values: tuple[Any, ...]) -> list[Any] | None:
        """The rows for this one and one of the other kind; ``None`` if it has to go alone."""
        offers, other = self._offers, 1 - kind
        now = self._came_at[kind] = self._tables.clock.monotonic()
        if now - self._came_at[other] < _NEAR_S:
            self._vain = 0
        met = offers[other]
        if offers[kind] is not None:
            return None
        if met is not None:
            offers[other] = None
            both = (values, met.values) if kind == _CLAIM else (met.values, values)
            return await self._send(*both, met)
        if self._vain >= _VAIN_MAX:
            return None
        offer = _Offer(values, asyncio.get_running_loop().create_future())
        offers[kind] = offer
        try:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        finally:
            alone = offers[kind] is offer
            if alone:
                offers[kind] = None
            self._vain = self._vain + 1 if alone else 0
        return None if alone else await offer.answer

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
                given_up = OutcomeUnknown("the statement was cancelled; it may have been applied")
                other.answer.set_exception(error if isinstance(error, StoreError) else given_up)
            raise
        if not other.answer.done():
            other.answer.set_result(rows)
        return rows


def columns(batch: Sequence[Completion]) -> tuple[list[str], list[int], list[str | None]]:
    """The values of completions, as the statements take them."""
    return (
        [one.id for one in batch],
        [one.token for one in batch],
        [one.result for one in batch],
    )
