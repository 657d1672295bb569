"""A table in the store's own database, written inside transactions that a lease guards.

Each row carries the token it was written under; its ``seq`` is the order in which the database
applied it, which is what proves a stale write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Protocol

import asyncpg

import outlive

_INSERT = "INSERT INTO ledger (token, writer) VALUES "

Step = Callable[[], Awaitable[None]]


class Ledger(Protocol):
    """A connection of the program's own to the store's database."""

    async def write(self, lease: outlive.Lease, writer: str, pause: Step | None = None) -> None:
        """Write a row under ``lease``; ``pause`` runs between the guard and the write."""
        ...


class SqliteLedger:
    def __init__(self, path: str) -> None:
        self._connection = sqlite3.connect(path, timeout=5, isolation_level=None)

    async def write(self, lease: outlive.Lease, writer: str, pause: Step | None = None) -> None:
        token = lease.tenure.grant.token
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            await lease.guard(self._connection)
            if pause is not None:
                await pause()
            execute(_INSERT + "(?, ?)", (token, writer))
        except BaseException:
            execute("ROLLBACK")
            raise
        execute("COMMIT")


class PostgresLedger:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def write(self, lease: outlive.Lease, writer: str, pause: Step | None = None) -> None:
        token = lease.tenure.grant.token
        async with self._connection.transaction():
            await lease.guard(self._connection)
            if pause is not None:
                await pause()
            await self._connection.execute(_INSERT + "($1, $2)", token, writer)


async def open_ledger(url: str) -> Ledger:
    """A ledger in the database that ``url`` names; the test has made its table."""
    if url.startswith("sqlite:///"):
        return SqliteLedger(url.removeprefix("sqlite:///"))
    return PostgresLedger(await asyncpg.connect(url))
