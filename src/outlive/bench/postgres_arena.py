"""Claims on PostgreSQL: ``FOR UPDATE SKIP LOCKED``, by a version field, and naively.

asyncpg alone, each statement its own transaction, in a schema of the benchmark's own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from outlive.bench.arena import PREFIX, Miss, Site
from outlive.drivers.postgres.connections import import_asyncpg
from outlive.drivers.postgres.settings import read_settings
from outlive.drivers.postgres.translate import translate, translate_connect
from outlive.model.location import parse_url

_CREATE = """
CREATE SCHEMA IF NOT EXISTS {s};
CREATE TABLE IF NOT EXISTS {s}.item (
    run int NOT NULL, item int NOT NULL, claimed_by text, version int NOT NULL,
    PRIMARY KEY (run, item)
);
TRUNCATE {s}.item
"""
_LAY_OUT = "INSERT INTO {s}.item SELECT $1, n, NULL, 1 FROM generate_series(0, $2 - 1) AS n"
# Materialised, so that the row is chosen and locked once, whatever the planner makes of the rest.
_TRANSACTION = """
WITH next AS MATERIALIZED (
    SELECT run, item FROM {s}.item WHERE run = $1 AND claimed_by IS NULL
    ORDER BY item LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE {s}.item AS i SET claimed_by = $2, version = i.version + 1
FROM next WHERE i.run = next.run AND i.item = next.item
RETURNING i.item
"""
_NEXT = """
SELECT item, version FROM {s}.item
WHERE run = $1 AND claimed_by IS NULL ORDER BY item LIMIT 1
"""
_TAKE = """
UPDATE {s}.item SET claimed_by = $1, version = version + 1 WHERE run = $2 AND item = $3
"""
_TAKE_VERSION = f"{_TAKE} AND version = $4 RETURNING item"
_ABOUT = """
SELECT current_setting('server_version_num')::int, current_setting('fsync'),
    current_setting('synchronous_commit')
"""


class PostgresArena:
    """One strategy on one database, over one connection."""

    def __init__(self, site: Site, strategy: str) -> None:
        location = parse_url(site.urls["postgres"])
        self._settings = read_settings(location, {}, role="host")
        self._schema = f"{PREFIX}{site.tag}"
        self._connection: Any = None
        ways: dict[str, Callable[[int, str], Awaitable[int | Miss]]] = {
            "transaction": self._skip_locked,
            "optimistic": self._by_version,
            "naive": self._naively,
        }
        self._way = ways[strategy]

    async def build(self) -> str:
        """Make schema and table."""
        connection = await self._open()
        try:
            await connection.execute(self._sql(_CREATE))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate(error, write=True) from None
        number, fsync, commit = await connection.fetchrow(_ABOUT)
        version = f"{number // 10_000}.{number % 10_000}"
        return f"PostgreSQL {version}, fsync={fsync}, synchronous_commit={commit}"

    async def lay_out(self, run: int, items: int) -> None:
        """Insert them in one statement."""
        await self._fetch(_LAY_OUT, run, items)

    async def claim(self, run: int, claimant: str) -> int | Miss:
        """Try once, in the way of the strategy."""
        return await self._way(run, claimant)

    async def tidy(self, run: int) -> None:
        """Nothing: the rows of a run are in no one's way."""

    async def demolish(self) -> None:
        """Drop the schema, and that of the library beside it."""
        await self._fetch("DROP SCHEMA IF EXISTS {s}, {s}_jobs CASCADE")

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()

    async def _skip_locked(self, run: int, claimant: str) -> int | Miss:
        rows = await self._fetch(_TRANSACTION, run, claimant)
        return rows[0][0] if rows else Miss.EMPTY

    async def _by_version(self, run: int, claimant: str) -> int | Miss:
        rows = await self._fetch(_NEXT, run)
        if not rows:
            return Miss.EMPTY
        item, version = rows[0]
        taken = await self._fetch(_TAKE_VERSION, claimant, run, item, version)
        return item if taken else Miss.BEATEN

    async def _naively(self, run: int, claimant: str) -> int | Miss:
        rows = await self._fetch(_NEXT, run)
        if not rows:
            return Miss.EMPTY
        await self._fetch(_TAKE, claimant, run, rows[0][0])
        return rows[0][0]

    async def _fetch(self, statement: str, *values: object) -> list[Any]:
        connection = await self._open()
        try:
            return await connection.fetch(
                self._sql(statement), *values, timeout=self._settings.command_timeout_s
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate(error, write=True) from None

    async def _open(self) -> Any:
        if self._connection is not None:
            return self._connection
        asyncpg = import_asyncpg()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                self._connection = await asyncpg.connect(self._settings.dsn)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate_connect(error, self._settings.shown) from None
        return self._connection

    def _sql(self, text: str) -> str:
        return text.replace("{s}", self._schema)
