"""The floor on SQLite: the ``sqlite3`` module on the calling thread, in tables of its own.

A flow is one inserted row; a step is one transaction that updates the row under its token and
inserts a record. ``BEGIN IMMEDIATE`` and ``COMMIT`` around each, a write-ahead log and
``synchronous=FULL``. A file has one writer: several flows in flight are one after the other here.
"""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from benchmarks.work.jobs import PAYLOAD

_SCHEMA = """
CREATE TABLE flow (
    namespace TEXT, id TEXT, name TEXT, input TEXT, status TEXT, outcome TEXT, owner TEXT,
    token INTEGER, version INTEGER, created_at_us INTEGER, updated_at_us INTEGER,
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;
CREATE TABLE flow_history (
    namespace TEXT, id TEXT, version INTEGER, commit_id TEXT, token INTEGER, worker TEXT,
    at_us INTEGER, events TEXT, PRIMARY KEY (namespace, id, version)
) WITHOUT ROWID;
"""
_START = "INSERT INTO flow VALUES ('default', ?, 'steps', ?, 'running', NULL, 'h', 1, 0, ?, ?)"
_ADVANCE = """
UPDATE flow SET version = ?, status = ?, outcome = ?, updated_at_us = ?
WHERE namespace = 'default' AND id = ? AND token = 1 AND version = ? - 1
"""
_RECORD = "INSERT INTO flow_history VALUES ('default', ?, ?, ?, 1, 'bench', ?, ?)"


class SqliteFloor:
    """Raw writes of flows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cursor = connection.cursor()
        self._numbers = itertools.count()

    async def rate(self, steps: int, in_flight: int, seconds: float) -> float:
        """Flows a second; see the protocol."""
        del in_flight
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            self._flow(steps)
            done += 1
            now = time.perf_counter()
        return done / (now - started)

    async def latencies(self, steps: int, times: int) -> list[float]:
        """Milliseconds of flows one after the other."""
        found: list[float] = []
        for _ in range(times):
            started = time.perf_counter()
            self._flow(steps)
            found.append((time.perf_counter() - started) * 1000)
        return found

    def _flow(self, steps: int) -> None:
        execute, name = self._cursor.execute, f"flow-{next(self._numbers)}"
        now_us = _now_us()
        execute("BEGIN IMMEDIATE")
        execute(_START, (name, PAYLOAD, now_us, now_us))
        execute("COMMIT")
        for version in range(1, steps + 1):
            last = version == steps
            status, outcome = ("completed", PAYLOAD) if last else ("running", None)
            now_us = _now_us()
            execute("BEGIN IMMEDIATE")
            execute(_ADVANCE, (version, status, outcome, now_us, name, version))
            execute(_RECORD, (name, version, f"c{version}", now_us, PAYLOAD))
            execute("COMMIT")


def _now_us() -> int:
    return time.time_ns() // 1000


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[SqliteFloor]:
    """A file beside that of ``url``."""
    path = Path(f"{url.removeprefix('sqlite:///')}-floor")
    with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.executescript(_SCHEMA)
        yield SqliteFloor(connection)
