"""SQLite, ready to be measured: files in one temporary directory, and the sqlite3 module beside.

The floor is the sqlite3 module with the driver's own schema, triggers and statements, on the
calling thread: what the fastest program that writes the same rows would do.
"""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.children import boot_time
from benchmarks.leases.backend import BRACKETS, TTL_S, Count, Floor, LeaseCount
from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.schema import bring_up, migrations
from outlive.model.lease import HISTORY_MAX

_TTL_US = int(TTL_S * 1e6)
_NAMESPACE = "floor"
_DOMAIN = "benchmark"

# A pair writes about three pages, and SQLite copies the log back after a thousand.
_WARM_UP_PAIRS = 1_000

# What a host says about itself with every grant; the floor writes as much.
_METADATA = '{"host":"bench","instance":"0123456789abcdef","hostname":"bench","pid":12345}'


class SqliteBackend:
    """Stores below one directory."""

    name = "sqlite"
    sees_statements = True
    bars = {  # noqa: RUF012 - a constant
        "uncontended": 0.6,
        "concurrent": 8.0,
        "share-2": 0.5,
        "share-10": 0.25,
        "wait": 250.0,
        "handover": 2.0,
        "idle": 1.0,
    }

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._numbers = itertools.count(1)

    def new_store(self) -> str:
        """The URL of a file that does not exist yet."""
        return f"sqlite:///{self._directory / f'store-{next(self._numbers)}.db'}"

    @asynccontextmanager
    async def floor(self, url: str) -> AsyncGenerator[Floor]:
        """The sqlite3 module on a file of its own, on the same disk as the store."""
        del url
        path = self._directory / f"floor-{next(self._numbers)}.db"
        with closing(open_raw(path)) as connection:
            raw = _Raw(connection)
            raw.warm_up()
            together: Callable[[float], Awaitable[float]] = raw.renewals_together
            yield Floor(
                raw.pairs,
                raw.renewals,
                {"renewals": {"sqlite3, one transaction for all": together}},
            )

    @asynccontextmanager
    async def counting(self, url: str) -> AsyncGenerator[Callable[[], Count]]:
        """Count by SQLite's own trace, on every connection that is opened inside the block."""
        del url
        count = Count()
        original = sqlite3.connect

        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection = original(*arguments, **options)
            connection.set_trace_callback(_tracing(count))
            return connection

        with mock.patch.object(sqlite3, "connect", connect):
            yield lambda: dataclasses.replace(count)
        if not count.statements:
            raise RuntimeError("the trace saw no statement at all: the driver goes past it")


def open_raw(path: Path, *, timeout_s: float = 0.0) -> sqlite3.Connection:
    """A plain connection with the same durability and the driver's own schema."""
    connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    bring_up(connection, migrations())
    return connection


_READS = frozenset({"SELECT", "PRAGMA"})


def _tracing(count: Count) -> Callable[[str], None]:
    """A trace that counts the statements of one connection."""
    last = ""

    def traced(statement: str) -> None:
        nonlocal last
        word = statement.split(maxsplit=1)[0].upper()
        # A write is traced again, by the same text, as each of its triggers begins: they are part
        # of it. The same write twice has BEGIN and COMMIT in between.
        if statement == last and word not in _READS:
            return
        last = statement
        count.brackets += word in BRACKETS
        count.statements += word not in BRACKETS
        count.transactions += word == "BEGIN"

    return traced


class _Raw:
    """The floor: one thread, one transaction for each operation, nothing in between."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._count = itertools.count(1)
        self._renewed: list[tuple[str, str, int]] = []

    def warm_up(self) -> None:
        """Fill the log until SQLite has begun to write it from its start again.

        Until then each flush also makes the file longer. Nothing is flushed meanwhile, which
        changes how long this takes and nothing else.
        """
        self._connection.execute("PRAGMA synchronous=OFF")
        cursor = self._connection.cursor()
        for number in range(_WARM_UP_PAIRS):
            raw_pair(cursor, "warm", f"bench/warm-{number}")
        self._connection.execute("PRAGMA synchronous=FULL")

    async def pairs(self, key: str, seconds: float) -> float:
        """Acquire and release ``key`` by turns."""
        return raw_pairs(self._connection, key, seconds, self._count)

    async def renewals(self, seconds: float) -> float:
        """Renew one lease after the other, each in a transaction of its own."""
        cursor = self._connection.cursor()
        owned = itertools.cycle(self._owned())
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            cursor.execute("BEGIN IMMEDIATE")
            _renew(cursor, *next(owned))
            cursor.execute("COMMIT")
            done += 1
            now = time.perf_counter()
        return done / (now - started)

    async def renewals_together(self, seconds: float) -> float:
        """Renew all leases in one transaction, again and again."""
        cursor = self._connection.cursor()
        owned = self._owned()
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            cursor.execute("BEGIN IMMEDIATE")
            for lease in owned:
                _renew(cursor, *lease)
            cursor.execute("COMMIT")
            done += len(owned)
            now = time.perf_counter()
        return done / (now - started)

    def _owned(self) -> list[tuple[str, str, int]]:
        if not self._renewed:
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            for number in range(LeaseCount):
                key, owner = f"renewed-{number}", f"bench/floor-{number}"
                self._renewed.append((key, owner, _acquire(cursor, key, owner)))
            cursor.execute("COMMIT")
        return self._renewed


def raw_pairs(
    connection: sqlite3.Connection, key: str, seconds: float, count: itertools.count[int]
) -> float:
    """Acquire and release ``key`` by turns for ``seconds``; operations per second."""
    cursor = connection.cursor()
    started = now = time.perf_counter()
    done = 0
    while now < started + seconds:
        raw_pair(cursor, key, f"bench/0123456789abcdef-{next(count)}")
        done += 2
        now = time.perf_counter()
    return done / (now - started)


def raw_pair(cursor: sqlite3.Cursor, key: str, owner: str) -> None:
    """Acquire and release once, in a transaction each."""
    raw_release(cursor, key, owner, raw_acquire(cursor, key, owner))


def raw_acquire(cursor: sqlite3.Cursor, key: str, owner: str) -> int:
    """Acquire ``key`` in a transaction, and prune its history as often as the driver does."""
    cursor.execute("BEGIN IMMEDIATE")
    token = _acquire(cursor, key, owner)
    cursor.execute("COMMIT")
    return token


def raw_release(cursor: sqlite3.Cursor, key: str, owner: str, token: int) -> None:
    """Release ``key`` in a transaction."""
    cursor.execute("BEGIN IMMEDIATE")
    values = (int(boot_time() * 1e6), int(time.time() * 1e6), _NAMESPACE, key, 0, owner, token)
    cursor.execute(sql.RELEASE, values).fetchone()
    cursor.execute("COMMIT")


def _acquire(cursor: sqlite3.Cursor, key: str, owner: str) -> int:
    now, wall = int(boot_time() * 1e6), int(time.time() * 1e6)
    values = (
        *(_NAMESPACE, key, owner, "0123456789abcdef", _DOMAIN),
        *(now + _TTL_US, now, _TTL_US, wall, wall, _METADATA),
    )
    token, *_, endings = cursor.execute(sql.ACQUIRE_AS_NEWCOMER, values).fetchone()
    if endings and endings % sql.PRUNE_EVERY == 0:
        cursor.execute(sql.PRUNE_HISTORY, (_NAMESPACE, key, 0, _NAMESPACE, key, HISTORY_MAX))
    return token


def _renew(cursor: sqlite3.Cursor, key: str, owner: str, token: int) -> None:
    now = int(boot_time() * 1e6)
    values = (
        *(now + _TTL_US, _TTL_US, int(time.time() * 1e6), None),
        *(_NAMESPACE, key, 0, owner, token, _DOMAIN, now),
    )
    if cursor.execute(sql.RENEW, values).fetchone() is None:
        raise RuntimeError(f"the floor lost its lease {key!r}: its renewals measure nothing")
