"""The floor on PostgreSQL: asyncpg, one connection for each flow in flight, tables of its own.

A flow is one inserted row; a step is one prepared statement that updates the row under its token
and inserts a record, committed by itself. More flows in flight than ``CONNECTIONS_MAX`` take turns
on so many connections.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from benchmarks.work.jobs import PAYLOAD

# A server takes a hundred by default, and is slower with more on any machine of today.
CONNECTIONS_MAX = 64

_SCHEMA = """
CREATE TABLE flow (
    namespace text, id text, name text, input text, status text, outcome text, owner text,
    token bigint, version bigint, created_at timestamptz, updated_at timestamptz,
    PRIMARY KEY (namespace, id)
);
CREATE TABLE flow_history (
    namespace text, id text, version bigint, commit_id text, token bigint, worker text,
    at timestamptz, events text, PRIMARY KEY (namespace, id, version)
);
"""
_START = """
INSERT INTO flow
SELECT 'default', $1, 'steps', $2, 'running', NULL, 'h', 1, 0, now.at, now.at
FROM clock_timestamp() AS now (at)
"""
_ADVANCE = """
WITH advanced AS (
    UPDATE flow SET version = $2, status = $3, outcome = $4, updated_at = clock_timestamp()
    WHERE namespace = 'default' AND id = $1 AND token = 1 AND version = $2 - 1
    RETURNING id, version
)
INSERT INTO flow_history
SELECT 'default', id, version, $5, 1, 'bench', clock_timestamp(), $6 FROM advanced
"""


class _Raw:
    """One connection with its statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def prepare(self) -> None:
        self._start = await self._connection.prepare(_START)
        self._advance = await self._connection.prepare(_ADVANCE)

    async def flow(self, name: str, steps: int) -> None:
        await self._start.fetch(name, PAYLOAD)
        for version in range(1, steps + 1):
            last = version == steps
            status, outcome = ("completed", PAYLOAD) if last else ("running", None)
            await self._advance.fetch(name, version, status, outcome, f"c{version}", PAYLOAD)


class PostgresFloor:
    """Raw writes of flows."""

    def __init__(self, raws: list[_Raw]) -> None:
        self._raws = raws
        self._numbers = itertools.count()

    async def rate(self, steps: int, in_flight: int, seconds: float) -> float:
        """Flows a second; see the protocol."""
        started = time.perf_counter()
        until = started + seconds

        async def keep_going(raw: _Raw) -> int:
            done = 0
            while time.perf_counter() < until:
                await raw.flow(f"flow-{next(self._numbers)}", steps)
                done += 1
            return done

        raws = self._raws[: min(in_flight, len(self._raws))]
        done = await asyncio.gather(*(keep_going(raw) for raw in raws))
        return sum(done) / (time.perf_counter() - started)

    async def latencies(self, steps: int, times: int) -> list[float]:
        """Milliseconds of flows one after the other."""
        found: list[float] = []
        for _ in range(times):
            started = time.perf_counter()
            await self._raws[0].flow(f"flow-{next(self._numbers)}", steps)
            found.append((time.perf_counter() - started) * 1000)
        return found


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[PostgresFloor]:
    """The database of ``url``, in a schema of its own."""
    connections: list[Any] = []
    try:
        settings = {"search_path": "floor"}
        first: Any = await asyncpg.connect(url, server_settings=settings)
        connections.append(first)
        await first.execute(f"CREATE SCHEMA floor; {_SCHEMA}")
        while len(connections) < CONNECTIONS_MAX:
            connections.append(await asyncpg.connect(url, server_settings=settings))
        raws = [_Raw(connection) for connection in connections]
        for raw in raws:
            await raw.prepare()
        yield PostgresFloor(raws)
    finally:
        for connection in connections:
            await connection.close()
