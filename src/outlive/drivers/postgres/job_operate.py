"""What operators and the heartbeat do to jobs: cancel, retry, delete, reclaim, tend.

Owns the transactions of these; ``job_sweep`` has those that take whatever is to be had. Jobs with
an ordering key are changed under its lock.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.postgres import job_move_sql, job_order_sql
from outlive.drivers.postgres.job_sweep import LIMIT_MAX, JobSweeper
from outlive.drivers.postgres.job_tables import JobTables, place
from outlive.drivers.postgres.transactions import Run
from outlive.errors import StoreUnavailable
from outlive.model.job import Changed, JobState, Reclaimed, Tended
from outlive.names import JobId

# A job that is claimed between two statements is met in the next round.
_ROUNDS_MAX = 5


class JobOperator:
    """Changes jobs in the tables of one namespace."""

    def __init__(self, tables: JobTables, sweeper: JobSweeper) -> None:
        self._tables = tables
        self._sweeper = sweeper
        self._cancel_sql = tables.text(job_move_sql.CANCEL)
        self._ask_sql = tables.text(job_order_sql.ASK)
        self._look_sql = tables.text(job_order_sql.LOOK)
        self._keys_sql = tables.text(job_order_sql.KEYS_OF)
        self._retry_sql = tables.text(job_order_sql.RETRY)
        self._delete_sql = tables.text(job_order_sql.DELETE)
        self._prune_sql = tables.text(job_order_sql.PRUNE)

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """End live jobs as cancelled; see the port."""
        if not ids:
            return []
        return await self._tables.transact(lambda run: self._cancel(run, ids, reason))

    async def _cancel(self, run: Run, ids: Sequence[JobId], reason: str) -> list[Changed]:
        keys = await self._lock(run, ids)
        changed: dict[JobId, Changed] = {}
        left: list[JobId] = sorted(set(ids))
        for _ in range(_ROUNDS_MAX):
            for ordered in (False, True) if keys else (False,):
                rows = await run(self._cancel_sql, ordered, self._tables.channel, left, reason)
                changed.update((JobId(row["id"]), Changed.CHANGED) for row in rows)
            rows = await run(self._ask_sql, left, reason, self._tables.channel)
            changed.update((left[place(row)], Changed.REQUESTED) for row in rows)
            left = [job for job in left if job not in changed]
            found = {left[place(row)]: row for row in await run(self._look_sql, left)}
            for job in left:
                row = found.get(job)
                if row is None:
                    changed[job] = Changed.NOT_FOUND
                elif row["state"] == JobState.CANCELLED:
                    changed[job] = Changed.CHANGED
                elif row["state"] in (JobState.DONE, JobState.DEAD):
                    changed[job] = Changed.REFUSED
            left = [job for job in left if job not in changed]
            if not left:
                await self._tables.pass_turn(run, keys)
                return [changed[job] for job in ids]
        raise StoreUnavailable("these jobs changed during every attempt; try again")

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Make jobs ready now; see the port."""

        async def body(run: Run) -> list[Changed]:
            keys = await self._lock(run, ids)
            unique = list(dict.fromkeys(ids))
            rows = await run(self._retry_sql, unique, self._tables.channel)
            changed = {unique[place(row)]: Changed.CHANGED for row in rows}
            await self._tables.pass_turn(run, keys)
            for row in await run(self._look_sql, unique):
                ready = row["state"] == JobState.READY
                changed.setdefault(
                    unique[place(row)], Changed.CHANGED if ready else Changed.REFUSED
                )
            return [changed.get(job, Changed.NOT_FOUND) for job in ids]

        return await self._tables.transact(body) if ids else []

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Forget jobs that have ended; see the port."""
        if not ids:
            return []
        unique = sorted(set(ids))
        rows = await self._tables.fetch(self._delete_sql, unique)
        changed = {unique[place(row)]: Changed.CHANGED for row in rows}
        if len(changed) < len(unique):
            for row in await self._tables.fetch(self._look_sql, unique, write=False):
                changed.setdefault(unique[place(row)], Changed.REFUSED)
        return [changed.get(job, Changed.NOT_FOUND) for job in ids]

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """Take the claims of sessions that are gone; see the port."""
        rows = await self._sweeper.reclaim(limit)
        return [Reclaimed(JobId(row["id"]), row["queue"], JobState(row["next"])) for row in rows]

    async def tend(self, *, limit: int) -> Tended:
        """End what expired, remove what was kept long enough; see the port."""
        expired = await self._sweeper.expire(limit)
        (row,) = await self._tables.fetch(self._prune_sql, max(0, min(limit, LIMIT_MAX)))
        return Tended(expired, row["pruned"])

    async def _lock(self, run: Run, ids: Sequence[JobId]) -> list[tuple[str, str]]:
        """Wait for the ordering keys of these jobs."""
        rows = await run(self._keys_sql, list(ids))
        keys = list({(row["queue"], row["ordering_key"]): None for row in rows})
        await self._tables.lock_keys(run, keys)
        return keys
