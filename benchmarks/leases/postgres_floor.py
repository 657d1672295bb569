"""The floor on PostgreSQL: asyncpg and the best hand-written statement for one row.

Writes the rows that Outlive writes, into the same tables under another namespace, one statement
and one commit for each operation. Its statements are prepared once and planned once.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

import outlive
from benchmarks.leases.backend import TTL_S, Floor, LeaseCount
from outlive.drivers.postgres.lease_sql import PLANNER

_NAMESPACE = "floor"
_TTL_US = int(TTL_S * 1e6)
_METADATA = '{"host":"bench","instance":"0123456789abcdef","hostname":"bench","pid":12345}'
_CROWD = 100
_POOL = 10

# History is cut at every sixteenth grant, as Outlive does; the other fifteen pay nothing.
_PRUNE_EVERY = 16
_HISTORY_MAX = 100

# Planned as Outlive plans, by primary key: a plan made while the tables are empty would scan them,
# and the floor would look slower than it is.
_SETTINGS = PLANNER

# Takes a key that is free or expired. The usual case ends no grant, so that there is no history
# to write; a takeover would need a statement of its own and is not what is measured.
_ACQUIRE = """
UPDATE outlive.lease SET
    token = token + 1, version = version + 1, previous_owner = owner, owner = $3, host = $4,
    expires_at = clock_timestamp() + $5 * interval '1 microsecond', free_at = NULL, ttl_us = $5,
    acquired_at = clock_timestamp(), renewed_at = clock_timestamp(), metadata = $6
WHERE namespace = $1 AND key = $2 AND slot = 0 AND limit_ = 1
    AND (owner IS NULL OR expires_at <= clock_timestamp())
RETURNING token, version, state
"""

# Frees the row and writes the grant that ends into the history, in one statement.
_RELEASE = """
WITH freed AS (
    UPDATE outlive.lease SET owner = NULL, host = NULL, expires_at = NULL,
        free_at = clock_timestamp(), version = version + 1
    WHERE namespace = $1 AND key = $2 AND slot = 0 AND owner = $3 AND token = $4
    RETURNING acquired_at
)
INSERT INTO outlive.lease_history (
    namespace, key, token, slot, owner, acquired_at, ended_at, ended
)
SELECT $1, $2, $4, 0, $3, f.acquired_at, clock_timestamp(), 'released' FROM freed f
RETURNING token
"""

_PRUNE = """
DELETE FROM outlive.lease_history WHERE namespace = $1 AND key = $2 AND token < $3
"""

_RENEW = """
UPDATE outlive.lease SET
    expires_at = clock_timestamp() + $5 * interval '1 microsecond', ttl_us = $5,
    renewed_at = clock_timestamp(), version = version + 1
WHERE namespace = $1 AND key = $2 AND slot = 0 AND owner = $3 AND token = $4
    AND expires_at > clock_timestamp()
RETURNING version
"""


class _Raw:
    """One connection and its prepared statements."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._count = itertools.count(1)

    async def prepare(self) -> None:
        """Parse and plan all statements once."""
        prepare = self._connection.prepare
        self._acquire = await prepare(_ACQUIRE)
        self._release = await prepare(_RELEASE)
        self._prune = await prepare(_PRUNE)
        self._renew = await prepare(_RENEW)

    async def pairs(self, key: str, until: float) -> int:
        """Acquire and release ``key`` by turns until then; how many operations that were."""
        done = 0
        while time.perf_counter() < until:
            await self.one_pair(key)
            done += 2
        return done

    async def one_pair(self, key: str) -> None:
        """Acquire and release ``key`` once."""
        owner = f"bench/0123456789abcdef-{next(self._count)}"
        token = await self._take(key, owner)
        await self._release.fetchval(_NAMESPACE, key, owner, token)

    async def _take(self, key: str, owner: str) -> int:
        row = await self._acquire.fetchrow(
            *(_NAMESPACE, key, owner, "0123456789abcdef", _TTL_US, _METADATA)
        )
        if row is None:
            raise RuntimeError(f"the floor was refused {key!r}: it measures nothing")
        if row["token"] % _PRUNE_EVERY == 0:
            await self._prune.fetch(_NAMESPACE, key, row["token"] - _HISTORY_MAX)
        return row["token"]

    async def take_all(self, keys: list[str]) -> list[tuple[str, str, int]]:
        """Own ``keys``; key, owner and token of each."""
        return [(key, f"bench/{key}", await self._take(key, f"bench/{key}")) for key in keys]

    async def renewals(self, owned: list[tuple[str, str, int]], until: float) -> int:
        """Renew one after the other until then; how many that were."""
        leases = itertools.cycle(owned)
        done = 0
        while time.perf_counter() < until:
            key, owner, token = next(leases)
            if await self._renew.fetchval(_NAMESPACE, key, owner, token, _TTL_US) is None:
                raise RuntimeError(f"the floor lost its lease {key!r}: it measures nothing")
            done += 1
        return done

    async def renew_all(self, values: list[tuple[object, ...]]) -> None:
        """Renew with each of ``values``, all in one transaction."""
        await self._renew.executemany(values)


class _Floor:
    """The raw rates, and those of peers, on one database."""

    def __init__(self, url: str, raw: _Raw, connection: Any, pool: list[_Raw]) -> None:
        self._url = url
        self._raw = raw
        self._connection = connection
        self._pool = pool
        self._known: set[str] = set()
        self._owned: list[tuple[str, str, int]] = []

    async def pairs(self, key: str, seconds: float) -> float:
        """One transaction after the other on one connection."""
        await self._know([key])
        started = time.perf_counter()
        done = await self._raw.pairs(key, started + seconds)
        return done / (time.perf_counter() - started)

    async def crowd(self, seconds: float) -> float:
        """A hundred coroutines with a key each share ten connections."""
        keys = [f"crowd-{number}" for number in range(_CROWD)]
        await self._know(keys)
        free: asyncio.Queue[_Raw] = asyncio.Queue()
        for raw in self._pool:
            free.put_nowait(raw)
        started = time.perf_counter()

        async def one(key: str) -> int:
            done = 0
            while time.perf_counter() < started + seconds:
                raw = await free.get()
                await raw.one_pair(key)
                free.put_nowait(raw)
                done += 2
            return done

        done = await asyncio.gather(*(one(key) for key in keys))
        return sum(done) / (time.perf_counter() - started)

    async def advisory(self, seconds: float) -> float:
        """Lock and unlock by the server's advisory locks, which leave nothing behind."""
        lock = await self._connection.prepare("SELECT pg_try_advisory_lock($1)")
        unlock = await self._connection.prepare("SELECT pg_advisory_unlock($1)")
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            await lock.fetchval(1)
            await unlock.fetchval(1)
            done += 2
            now = time.perf_counter()
        return done / (now - started)

    async def renewals(self, seconds: float) -> float:
        """One renewal after the other, each its own transaction."""
        owned = await self._own()
        started = time.perf_counter()
        done = await self._raw.renewals(owned, started + seconds)
        return done / (time.perf_counter() - started)

    async def renewals_together(self, seconds: float) -> float:
        """All renewals in one transaction, sent without waiting in between, again and again."""
        owned = [(_NAMESPACE, *lease, _TTL_US) for lease in await self._own()]
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            await self._raw.renew_all(owned)
            done += len(owned)
            now = time.perf_counter()
        return done / (now - started)

    async def _own(self) -> list[tuple[str, str, int]]:
        if not self._owned:
            keys = [f"renewed-{number}" for number in range(LeaseCount)]
            await self._know(keys)
            self._owned = await self._raw.take_all(keys)
        return self._owned

    async def _know(self, keys: list[str]) -> None:
        """Let the library itself write the first row of each key, so that all rows are its own."""
        new = [key for key in keys if key not in self._known]
        if not new:
            return
        self._known.update(new)
        async with outlive.connect(self._url, name="bench", namespace=_NAMESPACE) as host:
            leases = await asyncio.gather(*(host.leases.acquire(key) for key in new))
            await asyncio.gather(*(lease.release() for lease in leases))


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[Floor]:
    """Connect to the database of ``url``, in which the library's tables stand already."""
    connections: list[Any] = []
    try:
        while len(connections) < 1 + _POOL:
            connections.append(await asyncpg.connect(url, server_settings=_SETTINGS))
        raws = [_Raw(connection) for connection in connections]
        for raw in raws:
            await raw.prepare()
        floor = _Floor(url, raws[0], connections[0], raws[1:])
        yield Floor(
            floor.pairs,
            floor.renewals,
            {
                "uncontended": {"pg_advisory_lock (not durable, no token)": floor.advisory},
                "concurrent": {f"asyncpg, {_POOL} connections": floor.crowd},
                "renewals": {"asyncpg, one transaction for all": floor.renewals_together},
            },
        )
    finally:
        for connection in connections:
            await connection.close()
