"""Claims on an SQLite file: in one transaction, by a version field, and naively.

The ``sqlite3`` module alone, with a write-ahead log and ``synchronous=FULL``. Whoever finds the
file locked looks again after a short random pause; the busy handler that comes with SQLite sleeps
up to 100 ms, and would measure its own sleep.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

from outlive.bench.arena import Miss, Site
from outlive.errors import StoreUnavailable
from outlive.runtime.runtime import Runtime

# Between two looks at a locked file; a commit takes about as long.
_PAUSE_S = (0.0001, 0.003)

# A file that stays locked for longer than this is not being contended for, it is stuck.
_PATIENCE_S = 30.0

_CREATE = """
CREATE TABLE IF NOT EXISTS outlive_bench_item (
    run INTEGER NOT NULL, item INTEGER NOT NULL, claimed_by TEXT, version INTEGER NOT NULL,
    PRIMARY KEY (run, item)
) WITHOUT ROWID
"""
_LAY_OUT = "INSERT INTO outlive_bench_item VALUES (?, ?, NULL, 1)"
_NEXT = """
SELECT item, version FROM outlive_bench_item
WHERE run = ? AND claimed_by IS NULL ORDER BY item LIMIT 1
"""
_TAKE = """
UPDATE outlive_bench_item SET claimed_by = ?, version = version + 1 WHERE run = ? AND item = ?
"""
_TAKE_VERSION = f"{_TAKE} AND version = ?"


class SqliteArena:
    """One strategy on one file."""

    def __init__(self, site: Site, strategy: str, runtime: Runtime) -> None:
        self._runtime = runtime
        self._connection = sqlite3.connect(
            site.folder / "claims.db", timeout=0, isolation_level=None
        )
        self._connection.execute("PRAGMA synchronous=FULL")
        ways: dict[str, Callable[[int, str], Awaitable[int | Miss]]] = {
            "transaction": self._in_transaction,
            "optimistic": self._by_version,
            "naive": self._naively,
        }
        self._way = ways[strategy]

    async def build(self) -> str:
        """Make the table; the file was made by opening it."""
        await self._execute("PRAGMA journal_mode=WAL")
        await self._execute(_CREATE)
        await self._execute("DELETE FROM outlive_bench_item")
        return f"SQLite {sqlite3.sqlite_version}, write-ahead log, synchronous=FULL"

    async def lay_out(self, run: int, items: int) -> None:
        """Insert them in one transaction."""
        await self._execute("BEGIN IMMEDIATE")
        self._connection.executemany(_LAY_OUT, [(run, item) for item in range(items)])
        await self._execute("COMMIT")

    async def claim(self, run: int, claimant: str) -> int | Miss:
        """Try once, in the way of the strategy."""
        return await self._way(run, claimant)

    async def tidy(self, run: int) -> None:
        """Nothing: the rows of a run are in no one's way."""

    async def demolish(self) -> None:
        """Nothing: the folder is removed as a whole."""

    async def close(self) -> None:
        """Close the file."""
        self._connection.close()

    async def _in_transaction(self, run: int, claimant: str) -> int | Miss:
        await self._execute("BEGIN IMMEDIATE")
        row = self._connection.execute(_NEXT, (run,)).fetchone()
        if row is None:
            await self._execute("ROLLBACK")
            return Miss.EMPTY
        self._connection.execute(_TAKE, (claimant, run, row[0]))
        await self._execute("COMMIT")
        return row[0]

    async def _by_version(self, run: int, claimant: str) -> int | Miss:
        row = (await self._execute(_NEXT, run)).fetchone()
        if row is None:
            return Miss.EMPTY
        item, version = row
        taken = await self._execute(_TAKE_VERSION, claimant, run, item, version)
        return item if taken.rowcount else Miss.BEATEN

    async def _naively(self, run: int, claimant: str) -> int | Miss:
        row = (await self._execute(_NEXT, run)).fetchone()
        if row is None:
            return Miss.EMPTY
        await self._execute(_TAKE, claimant, run, row[0])
        return row[0]

    async def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Run one statement as soon as the file is not locked by others."""
        clock = self._runtime.clock
        give_up_at = clock.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._connection.execute(statement, values)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise StoreUnavailable(f"SQLite failed: {error}") from None
                if clock.monotonic() > give_up_at:
                    raise StoreUnavailable(
                        f"the SQLite file stayed locked for {_PATIENCE_S:g} s"
                    ) from None
            await clock.sleep(self._runtime.random.uniform(*_PAUSE_S))
