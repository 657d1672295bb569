"""The area ``leases``: which measurements there are, on which backends, in which order.

Owns the places they run in: a temporary directory for SQLite, private servers for the others. What
cannot be had here is said in the report's last lines, never silently left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from benchmarks.leases import (
    azblob_backend,
    concurrent,
    contention,
    handover,
    idle,
    renewals,
    uncontended,
    versus,
)
from benchmarks.leases.backend import FULL, QUICK, Absent, Backend, Effort
from benchmarks.leases.cosmos_backend import cosmos
from benchmarks.leases.etcd_backend import etcd
from benchmarks.leases.postgres_backend import postgres
from benchmarks.leases.redis_backend import redis
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.report import Report, Row
from benchmarks.running import run_measurements

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
    "sqlite": {**_EVERYWHERE, contention.NAME: contention.measure},
    "postgres": _EVERYWHERE,
    # Scripts run one at a time, and so does whoever waits for a key: who is served how often?
    "redis": {
        **_EVERYWHERE,
        contention.NAME: contention.measure_one_key,
        versus.NAME: versus.measure,
    },
    "etcd": _EVERYWHERE,
    # Every waiter polls and every request costs money: how many there are is what matters.
    "azblob": {azblob_backend.NAME: azblob_backend.measure, idle.NAME: idle.measure},
    # An emulator in one process says nothing about crowds and hand-overs.
    "cosmos": {uncontended.NAME: uncontended.measure},
}

# What each server is called, and how a private one is had.
_SERVERS: dict[str, tuple[str, Callable[[], AbstractContextManager[Backend]]]] = {
    "postgres": ("PostgreSQL", postgres),
    "redis": ("Redis", redis),
    "etcd": ("etcd", etcd),
    "azblob": ("Azure Blob Storage", azblob_backend.azblob),
    "cosmos": ("Azure Cosmos DB", cosmos),
}


def names() -> list[str]:
    """Every measurement as ``backend/measurement``."""
    return [f"{backend}/{name}" for backend, found in _MEASUREMENTS.items() for name in found]


def chosen(only: str | None) -> list[str]:
    """The measurements that ``only`` is part of; all of them for ``None``."""
    return [name for name in names() if only is None or only in name]


def run(
    report: Report, *, only: str | None = None, quick: bool = False, peers: bool = False
) -> None:
    """Measure what is chosen, into ``report``. ``peers`` installs nothing: they must be there."""
    del peers
    wanted = chosen(only)
    effort = QUICK if quick else FULL
    if any(name.startswith("sqlite/") for name in wanted):
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
            _run_all(report, SqliteBackend(Path(directory)), wanted, effort)
    for name, (said, server) in _SERVERS.items():
        if any(measurement.startswith(f"{name}/") for measurement in wanted):
            try:
                with server() as backend:
                    _run_all(report, backend, wanted, effort)
            except Absent as error:
                report.absent.append(f"{said}: {error}")


def _run_all(report: Report, backend: Backend, wanted: list[str], effort: Effort) -> None:
    measurements = {
        f"{backend.name}/{name}": partial(measure, backend, effort)
        for name, measure in _MEASUREMENTS[backend.name].items()
        if f"{backend.name}/{name}" in wanted
    }
    run_measurements(report, backend.name, measurements)
