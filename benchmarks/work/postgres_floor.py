"""The floor on PostgreSQL: asyncpg on one connection, one prepared statement, the library's table.

The statement locks, skips what others have locked, and marks the jobs as claimed, committed by
itself. It looks at no session, no limits, no expiry and no due times.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from benchmarks.work.batches import REFILL
from benchmarks.work.jobs import Jobs, open_jobs
from outlive.drivers.postgres.lease_sql import PLANNER

_QUEUE = "floor"

# By its place: a join by primary key, planned while the table is nearly empty, reads all of it.
_CLAIM = """
WITH next AS MATERIALIZED (
    SELECT ctid AS row FROM outlive.job
    WHERE namespace = 'default' AND queue = $3 AND state = 'ready' AND NOT blocked
    ORDER BY priority DESC, seq LIMIT $4 FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE outlive.job AS j
SET state = 'claimed', token = DEFAULT, session = $1, host = $1, worker = 'bench',
    request = $2, claimed_at = clock_timestamp(), settled = NULL
FROM next WHERE j.ctid = next.row
RETURNING j.id, j.queue, j.token, j.payload, j.attempts, j.losses, j.max_attempts, j.retry,
    j.priority, j.headers, j.enqueued_at, j.unique_key, j.ordering_key
"""


class PostgresFloor:
    """Raw claims."""

    def __init__(self, jobs: Jobs, claim: Any) -> None:
        self._jobs = jobs
        self._claim = claim

    async def batches(self, limit: int, seconds: float) -> float:
        """Claim ``limit`` jobs by one statement, again and again."""
        done, spent = 0, 0.0
        while spent < seconds:
            await self._jobs.fill(_QUEUE, limit * REFILL)
            started = time.perf_counter()
            for _ in range(REFILL):
                claimed = await self._claim.fetch(
                    self._jobs.session, self._jobs.request(), _QUEUE, limit
                )
                if len(claimed) != limit:
                    raise RuntimeError(f"the floor claimed {len(claimed)} of {limit}")
            spent += time.perf_counter() - started
            done += limit * REFILL
        return done / spent


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[PostgresFloor]:
    """The database of ``url``, in which the library makes its tables."""
    async with open_jobs(url) as jobs:
        # Planned as Outlive plans: a plan made while the table is empty would scan it.
        connection: Any = await asyncpg.connect(url, server_settings=PLANNER)
        try:
            yield PostgresFloor(jobs, await connection.prepare(_CLAIM))
        finally:
            await connection.close()
