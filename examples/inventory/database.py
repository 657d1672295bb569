"""The stock's own tables, in SQLite or PostgreSQL: transactions, and the statements of the service.

One text serves both: ``$1`` is a parameter in both, and ``{now}`` stands for the database's clock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Protocol

SCHEMA = """
CREATE TABLE IF NOT EXISTS product (
    id TEXT PRIMARY KEY,
    quantity BIGINT NOT NULL CHECK (quantity >= 0),
    -- The newest token that has written this product, where leases are in another store.
    fence BIGINT NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS reservation (
    id TEXT PRIMARY KEY,
    product_id TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    quantity BIGINT NOT NULL CHECK (quantity > 0),
    state TEXT NOT NULL DEFAULT 'held',
    expires_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX IF NOT EXISTS reservation_held ON reservation (product_id, state, expires_at);
-- What was answered under an idempotency key, written with the change itself.
CREATE TABLE IF NOT EXISTS answer (
    key TEXT PRIMARY KEY,
    request TEXT NOT NULL,
    status INTEGER NOT NULL,
    body TEXT NOT NULL
);
"""


class Transaction(Protocol):
    """An open transaction. ``raw`` is what ``lease.guard`` takes."""

    raw: Any

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and give its rows."""
        ...

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement and say how many rows it changed."""
        ...


class SqliteTransaction:
    """On the one connection of this process; nothing in it really waits."""

    NOW = "((julianday('now') - 2440587.5) * 86400.0)"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.raw = connection

    def _run(self, statement: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        named = {str(number): value for number, value in enumerate(values, 1)}
        return self.raw.execute(statement.replace("{now}", self.NOW), named)

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and give its rows."""
        return self._run(statement, values).fetchall()

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement and say how many rows it changed."""
        return self._run(statement, values).rowcount


class SqliteDatabase:
    """One file, shared by the instances of one machine."""

    def __init__(self, url: str) -> None:
        path = url.removeprefix("sqlite:///")
        # Transactions are short: who waits longer for the file than this has met a bug.
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=10)

    async def open(self) -> None:
        """Make the tables."""
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.executescript(SCHEMA)

    async def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncGenerator[Transaction, None]:
        """Commit what the block did, or nothing of it."""
        # The write lock comes first: a read that is upgraded later may find it taken.
        self._connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield SqliteTransaction(self._connection)
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


class PostgresTransaction:
    """On a connection of the pool."""

    NOW = "(extract(epoch FROM clock_timestamp())::float8)"

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    async def fetch(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement and give its rows."""
        rows = await self.raw.fetch(statement.replace("{now}", self.NOW), *values)
        return [tuple(row) for row in rows]

    async def execute(self, statement: str, *values: object) -> int:
        """Run a statement and say how many rows it changed."""
        done = await self.raw.execute(statement.replace("{now}", self.NOW), *values)
        return int(done.rpartition(" ")[2])


class PostgresDatabase:
    """A database, shared by the instances of many machines."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self) -> None:
        """Connect and make the tables."""
        import asyncpg

        self._pool = await asyncpg.create_pool(self._url, min_size=1, max_size=5)
        async with self._pool.acquire() as connection, connection.transaction():
            # Several instances start at once, and CREATE … IF NOT EXISTS alone may collide.
            await connection.execute("SELECT pg_advisory_xact_lock(72)")
            await connection.execute(SCHEMA)

    async def close(self) -> None:
        """Disconnect."""
        await self._pool.close()

    @asynccontextmanager
    async def transaction(self, *, write: bool = True) -> AsyncGenerator[Transaction, None]:
        """Commit what the block did, or nothing of it."""
        opening = {"readonly": not write}
        async with self._pool.acquire() as connection, connection.transaction(**opening):
            yield PostgresTransaction(connection)


Database = SqliteDatabase | PostgresDatabase


def database_of(url: str) -> Database:
    """The database that ``url`` names."""
    return SqliteDatabase(url) if url.startswith("sqlite:") else PostgresDatabase(url)
