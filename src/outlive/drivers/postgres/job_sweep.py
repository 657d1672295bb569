"""Sweeping: jobs of sessions that are gone are taken back, and those that expired are ended.

Owns the transactions of these. Jobs with an ordering key are moved under its lock; keys that
somebody else has locked just now are passed over, and taken the next time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres import job_move_sql, job_order_sql
from outlive.drivers.postgres.job_tables import KEY_LOCKS_MAX, JobTables
from outlive.drivers.postgres.transactions import Run

# One step must end within the command timeout whatever its caller asks for.
LIMIT_MAX = 10_000


class JobSweeper:
    """Moves the jobs of one namespace that nobody named."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._try_keys_sql = tables.text(job_order_sql.TRY_KEYS)
        self._reclaim_sql = tables.text(job_move_sql.RECLAIM)
        self._orphans_sql = tables.text(job_move_sql.ORPHANS)
        self._expire_sql = tables.text(job_move_sql.EXPIRE)
        self._expired_sql = tables.text(job_move_sql.EXPIRED)

    async def reclaim(self, limit: int) -> list[Any]:
        """Take up to ``limit`` claims from sessions that are gone; gives their rows."""
        return await self._sweep(self._reclaim_sql, self._orphans_sql, limit)

    async def expire(self, limit: int) -> int:
        """End up to ``limit`` unclaimed jobs whose expiry passed; says how many those were."""
        return len(await self._sweep(self._expire_sql, self._expired_sql, limit))

    async def _sweep(self, move: str, ordered: str, limit: int) -> list[Any]:
        """Move jobs without an ordering key, then those with one whose key is free.

        The latter in parts, each a transaction of its own. Keys that somebody else has locked are
        passed over, and keep nobody from those behind them.
        """
        limit = max(0, min(limit, LIMIT_MAX))
        # Nearly always there is nothing, and one small read says so.
        if not await self._tables.fetch(ordered, min(limit, 1), [], True, write=False):
            return []
        rows: list[Any] = [*await self._tables.fetch(move, False, self._tables.channel, limit, [])]
        passed: list[str] = []
        while len(rows) + len(passed) < limit:
            most = min(limit - len(rows) - len(passed), KEY_LOCKS_MAX)
            found = await self._tables.fetch(ordered, most, passed, False, write=False)
            ids = sorted(row["id"] for row in found)
            if not ids:
                break
            moved = await self._move_ordered(move, ids)
            rows += moved
            done = {row["id"] for row in moved}
            passed += [id_ for id_ in ids if id_ not in done]
        return rows

    async def _move_ordered(self, move: str, ids: Sequence[str]) -> Sequence[Any]:
        """Move those of some jobs whose ordering key is free, and pass their turns on."""

        async def body(run: Run) -> Sequence[Any]:
            ours = [row for row in await run(self._try_keys_sql, ids) if row["ours"]]
            mine = [row["id"] for row in ours]
            moved = await run(move, True, self._tables.channel, len(ids), mine)
            keys = {(row["queue"], row["ordering_key"]): None for row in ours}
            await self._tables.pass_turn(run, list(keys))
            return moved

        return await self._tables.transact(body)
