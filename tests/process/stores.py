"""The stores that processes can share, looked at from outside.

Owns a connection per question, so that a test never holds a store up.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import psycopg

import outlive
from outlive.errors import StoreError

# To make an empty store is no part of what is tested; making it again is safe.
_CREATE_TRIES = 3


class Store(Protocol):
    """One store: where it is, and what stands in it."""

    kind: str
    url: str

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement and give its rows, if it has any."""
        ...

    def is_writable(self) -> bool:
        """Whether no process sits on a lock that keeps all others from writing."""
        ...


class SqliteStore:
    """A file."""

    kind = "sqlite"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=10, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    def is_writable(self) -> bool:
        # A process that runs holds the lock for milliseconds.
        with closing(sqlite3.connect(self.path, timeout=0.2, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            connection.execute("ROLLBACK")
            return True


class PostgresStore:
    """A database."""

    kind = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []

    def is_writable(self) -> bool:
        # A statement ends in the server, whatever becomes of its client.
        return True


class RedisStore:
    """A server that answers no questions in SQL: only processes look into it."""

    kind = "redis"

    def __init__(self, url: str) -> None:
        self.url = url


def create_schema(url: str) -> None:
    """Connect once and leave; again where a machine without time let a reply come too late."""

    async def connect() -> None:
        async with outlive.connect(url):
            return

    for left in range(_CREATE_TRIES - 1, -1, -1):
        try:
            return asyncio.run(connect())
        except StoreError:
            if left == 0:
                raise
    raise AssertionError


def make_ledger(store: Store) -> None:
    """Make the table that ``programs.ledgers`` writes."""
    sequence = {
        "sqlite": "seq INTEGER PRIMARY KEY AUTOINCREMENT",
        "postgres": "seq bigserial PRIMARY KEY",
    }[store.kind]
    store.ask(f"CREATE TABLE ledger ({sequence}, token bigint NOT NULL, writer text NOT NULL)")


def read_ledger(store: Store) -> list[tuple[int, str]]:
    """Token and writer of every row, in the order the database applied them."""
    return store.ask("SELECT token, writer FROM ledger ORDER BY seq")


def newest_token(store: Store, key: str) -> int:
    """The token that the store itself knows for ``key``."""
    table = "outlive_lease" if store.kind == "sqlite" else "outlive.lease"
    return store.ask(f"SELECT max(token) FROM {table} WHERE key = '{key}'")[0][0]
