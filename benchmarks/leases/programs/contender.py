"""One of several processes that contend: acquires and releases for a while, and counts.

Started by ``benchmarks.leases.contention`` with the way of contending, the URL and a number. Counts
operations that return between the two instants it is told, and the longest wait of those that were
under way at any time between them, however early they began and however late they return.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import outlive
from benchmarks.children import boot_time, listen, say
from benchmarks.leases.sqlite_backend import open_raw, raw_acquire, raw_release

Cycle = Callable[["Tally"], Awaitable[None]]

# Longer than any wait that a measurement could be glad about; without it a lost process would
# never report.
_PATIENCE_S = 300.0


class Tally:
    """What this process was served."""

    def __init__(self) -> None:
        self.begin = self.end = 0.0
        self.served = 0
        self.wait_s = 0.0

    def add(self, started: float, operations: int) -> None:
        """Book ``operations`` that began at ``started`` and have just returned."""
        now = boot_time()
        if self.begin <= now < self.end:
            self.served += operations
        if started < self.end and now >= self.begin:
            self.wait_s = max(self.wait_s, now - started)


@asynccontextmanager
async def one_key(url: str, number: int) -> AsyncGenerator[Cycle]:
    """All contend for one key: whoever is refused waits in its queue."""
    async with outlive.connect(url, name=f"bench-{number}") as host:

        async def cycle(tally: Tally) -> None:
            started = boot_time()
            lease = await host.leases.acquire("shared", timeout=_PATIENCE_S)
            tally.add(started, 1)
            started = boot_time()
            await lease.release()
            tally.add(started, 1)

        yield cycle


@asynccontextmanager
async def own_key(url: str, number: int) -> AsyncGenerator[Cycle]:
    """Each has a key of its own: all contend for the right to write only."""
    async with outlive.connect(url, name=f"bench-{number}") as host:

        async def cycle(tally: Tally) -> None:
            started = boot_time()
            lease = await host.leases.try_acquire(f"own-{number}")
            assert lease is not None
            tally.add(started, 1)
            started = boot_time()
            await lease.release()
            tally.add(started, 1)

        yield cycle


@asynccontextmanager
async def raw(url: str, number: int) -> AsyncGenerator[Cycle]:
    """The sqlite3 module, waiting for the lock in the way that SQLite itself offers."""
    path = Path(url.removeprefix("sqlite:///"))
    # Blocks the loop, on which nothing else runs: a connection belongs to the thread that made it.
    with closing(_open_patiently(path)) as connection:
        cursor = connection.cursor()
        key, owner = f"own-{number}", f"bench/{number}"

        async def cycle(tally: Tally) -> None:
            started = boot_time()
            token = raw_acquire(cursor, key, owner)
            tally.add(started, 1)
            started = boot_time()
            raw_release(cursor, key, owner, token)
            tally.add(started, 1)

        yield cycle


def _open_patiently(path: Path) -> sqlite3.Connection:
    while True:
        try:
            return open_raw(path, timeout_s=_PATIENCE_S)
        except sqlite3.OperationalError:
            # Changing to a write-ahead log does not wait for others who do the same.
            continue


async def main(how: str, url: str, number: int) -> None:
    """Say that all is ready, contend as told, and report."""
    ways = {"one-key": one_key, "own-key": own_key, "raw": raw}
    tally = Tally()
    async with ways[how](url, number) as cycle:
        # The first grant inserts the row; it is not what is measured.
        await cycle(tally)
        say("ready")
        told = await listen()
        if told is None:
            return
        tally.begin, tally.end = told["begin"], told["end"]
        while boot_time() < tally.end:
            await cycle(tally)
        say({"served": tally.served, "wait_s": tally.wait_s})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
