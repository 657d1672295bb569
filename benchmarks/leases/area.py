"""The area ``leases``: which measurements there are, on which backends, in which order.

The places they run in are had by ``benchmarks.places``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from benchmarks.leases import (
    azblob_backend,
    concurrent,
    contention,
    handover,
    idle,
    renewals,
    sent,
    uncontended,
    versus,
)
from benchmarks.leases.backend import FULL, QUICK, Backend, Effort
from benchmarks.leases.cosmos_backend import cosmos
from benchmarks.leases.postgres_backend import postgres
from benchmarks.leases.redis_backend import redis
from benchmarks.places import Places
from benchmarks.report import Report, Row

Measure = Callable[[Backend, Effort], Awaitable[list[Row]]]

_EVERYWHERE: dict[str, Measure] = {
    uncontended.NAME: uncontended.measure,
    concurrent.NAME: concurrent.measure,
    handover.NAME: handover.measure,
    idle.NAME: idle.measure,
    renewals.NAME: renewals.measure,
}
# Processes contend for the write lock of a file; a server has no such lock.
_MEASUREMENTS: dict[str, dict[str, Measure]] = {
    "sqlite": {**_EVERYWHERE, sent.NAME: sent.measure, **contention.ALL},
    "postgres": {**_EVERYWHERE, sent.NAME: sent.measure},
    # Scripts run one at a time, and so does whoever waits for a key: who is served how often?
    "redis": {**_EVERYWHERE, **contention.ONE_KEY, versus.NAME: versus.measure},
    # Every waiter polls and every request costs money: how many there are is what matters.
    "azblob": {azblob_backend.NAME: azblob_backend.measure, idle.NAME: idle.measure},
    # An emulator in one process says nothing about crowds and hand-overs.
    "cosmos": {uncontended.NAME: uncontended.measure},
}

_PLACES = Places(
    _MEASUREMENTS,
    {
        "postgres": ("PostgreSQL", postgres),
        "redis": ("Redis", redis),
        "azblob": ("Azure Blob Storage", azblob_backend.azblob),
        "cosmos": ("Azure Cosmos DB", cosmos),
    },
)

names = _PLACES.names
chosen = _PLACES.chosen


def run(
    report: Report, *, only: str | None = None, quick: bool = False, peers: bool = False
) -> None:
    """Measure what is chosen, into ``report``. ``peers`` installs nothing: they must be there."""
    del peers
    _PLACES.run(report, only, QUICK if quick else FULL)
