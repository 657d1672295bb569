"""The area ``work``: which measurements there are, on which backends, in which order.

Owns the places they run in, which are those of the area of leases. What cannot be had here is said
in the report's last lines, never silently left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks.leases.backend import Absent
from benchmarks.leases.postgres_backend import postgres
from benchmarks.leases.redis_backend import redis
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.report import Report, Row
from benchmarks.running import run_measurements
from benchmarks.work import backlog, batches, end_to_end, pickup
from benchmarks.work import peers as others
from benchmarks.work.backend import Backend
from benchmarks.work.effort import FULL, QUICK, Effort

Measure = Callable[[Backend, Effort], Awaitable[list[Row]]]


def _claims(module: str) -> Measure:
    """Claims beside the floor of ``module``, whose client library may be missing."""

    async def measure(backend: Backend, effort: Effort) -> list[Row]:
        floor = import_module(f"benchmarks.work.{module}")
        return await batches.measure(backend, effort, floor.open_floor)

    return measure


_MEASUREMENTS: dict[str, dict[str, Measure]] = {
    "sqlite": {
        end_to_end.NAME: end_to_end.measure_sqlite,
        batches.NAME: _claims("sqlite_floor"),
        pickup.NAME: pickup.measure,
        backlog.NAME: backlog.measure,
    },
    "postgres": {
        end_to_end.NAME: end_to_end.measure_postgres,
        end_to_end.PROCESSES_NAME: end_to_end.measure_processes,
        batches.NAME: _claims("postgres_floor"),
        pickup.NAME: pickup.measure,
        backlog.NAME: backlog.measure,
    },
    "redis": {batches.NAME: _claims("redis_floor"), pickup.NAME: pickup.measure},
}

# What each server is called, and how a private one is had.
_SERVERS: dict[str, tuple[str, Callable[[], AbstractContextManager[Backend]]]] = {
    "postgres": ("PostgreSQL", postgres),
    "redis": ("Redis", redis),
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
    """Measure what is chosen, into ``report``; with ``peers`` Procrastinate is installed first."""
    if peers:
        others.install()
    wanted = chosen(only)
    if f"postgres/{end_to_end.NAME}" in wanted and not others.is_installed():
        report.absent.append("Procrastinate: it is not installed; --peers installs it")
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
