"""The floor on SQLite: the ``sqlite3`` module on the calling thread, in the library's own table.

One hand-written statement for a claim and one for a completion, ``BEGIN IMMEDIATE`` and ``COMMIT``
around each. It looks at no session, no limits, no expiry and no due times.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from benchmarks.work.batches import REFILL
from benchmarks.work.jobs import Jobs, open_jobs

_QUEUE = "floor"

# Jobs are enqueued so many at a time, outside of what is measured.
_FILL = 5000

_CLAIM = """
UPDATE outlive_job
SET state = 'claimed', token = token + 1, session = ?, host = ?, worker = 'bench', request = ?,
    claimed_at_us = ?, claim_ended = NULL
WHERE number IN (
    SELECT number FROM outlive_job
    WHERE namespace = 'default' AND queue = ? AND state = 'ready' AND blocked = 0
    ORDER BY priority DESC, seq LIMIT ?
)
RETURNING id, queue, token, payload, attempts, losses, max_attempts, retry, priority, headers,
    enqueued_at_us, unique_key, ordering_key
"""
_COMPLETE = """
UPDATE outlive_job
SET state = 'done', claim_ended = 'done', ended_at_us = ?, prune_at_us = ? + retention_us
WHERE namespace = 'default' AND id = ? AND token = ? AND state = 'claimed'
"""


class SqliteFloor:
    """Raw claims, and a raw loop of claims and completions."""

    def __init__(self, jobs: Jobs, connection: sqlite3.Connection) -> None:
        self._jobs = jobs
        self._cursor = connection.cursor()
        self._ready = 0

    async def batches(self, limit: int, seconds: float) -> float:
        """Claim ``limit`` jobs in one transaction, again and again."""
        done, spent = 0, 0.0
        while spent < seconds:
            await self._jobs.fill(_QUEUE, limit * REFILL)
            started = time.perf_counter()
            for _ in range(REFILL):
                self._claim(limit)
            spent += time.perf_counter() - started
            done += limit * REFILL
        return done / spent

    async def one_by_one(self, seconds: float) -> float:
        """Claim a job, do nothing, complete it: two transactions for each."""
        done, spent = 0, 0.0
        while spent < seconds:
            if self._ready == 0:
                await self._jobs.fill(_QUEUE, _FILL)
                self._ready = _FILL
            started = time.perf_counter()
            while self._ready and time.perf_counter() < started + seconds - spent:
                ((name, _, token, *_),) = self._claim(1)
                self._cursor.execute("BEGIN IMMEDIATE")
                now_us = _now_us()
                ended = self._cursor.execute(_COMPLETE, (now_us, now_us, name, token)).rowcount
                self._cursor.execute("COMMIT")
                if ended != 1:
                    raise RuntimeError("the floor completed nothing: it measures nothing")
                done += 1
                self._ready -= 1
            spent += time.perf_counter() - started
        return done / spent

    def _claim(self, limit: int) -> list[tuple[str, str, int, str]]:
        session = self._jobs.session
        values = (session, session, self._jobs.request(), _now_us(), _QUEUE, limit)
        self._cursor.execute("BEGIN IMMEDIATE")
        claimed = self._cursor.execute(_CLAIM, values).fetchall()
        self._cursor.execute("COMMIT")
        if len(claimed) != limit:
            raise RuntimeError(f"the floor claimed {len(claimed)} of {limit}: it measures nothing")
        return claimed


def _now_us() -> int:
    return time.time_ns() // 1000


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[SqliteFloor]:
    """The file of ``url``, which the library makes and fills."""
    path = Path(url.removeprefix("sqlite:///"))
    async with open_jobs(url) as jobs:
        with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous=FULL")
            yield SqliteFloor(jobs, connection)
