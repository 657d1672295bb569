"""The area ``work``: which measurements there are, on which backends, in which order.

The places they run in are those of the area of leases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module

from benchmarks.leases.postgres_backend import postgres
from benchmarks.leases.redis_backend import redis
from benchmarks.places import Places
from benchmarks.report import Report, Row
from benchmarks.running import install
from benchmarks.work import backlog, batches, end_to_end, pickup, sent
from benchmarks.work.backend import Backend, OpenFloor
from benchmarks.work.effort import FULL, QUICK, Effort
from benchmarks.work.peers import PROCRASTINATE

Measure = Callable[[Backend, Effort], Awaitable[list[Row]]]


def _claims(module: str) -> dict[str, Measure]:
    """Claims beside the floor of ``module``, whose client library may be missing."""

    def open_floor() -> OpenFloor:
        return import_module(f"benchmarks.work.{module}").open_floor

    return {
        f"{batches.NAME}-{size}": partial(batches.measure, size, open_floor)
        for size in batches.SIZES
    }


_SENT: dict[str, Measure] = {
    sent.ENQUEUE_NAME: sent.measure_enqueue,
    sent.JOB_NAME: sent.measure_job,
    sent.IDLE_NAME: sent.measure_idle,
}
_MEASUREMENTS: dict[str, dict[str, Measure]] = {
    "sqlite": {
        end_to_end.NAME: end_to_end.measure_sqlite,
        **_claims("sqlite_floor"),
        pickup.NAME: pickup.measure,
        backlog.NAME: backlog.measure,
        **_SENT,
    },
    "postgres": {
        end_to_end.NAME: end_to_end.measure_postgres,
        end_to_end.PROCESSES_NAME: end_to_end.measure_processes,
        end_to_end.FULL_PROCESSES_NAME: end_to_end.measure_full_processes,
        **_claims("postgres_floor"),
        pickup.NAME: pickup.measure,
        backlog.NAME: backlog.measure,
        **_SENT,
    },
    "redis": {**_claims("redis_floor"), pickup.NAME: pickup.measure},
}

_PLACES = Places(_MEASUREMENTS, {"postgres": ("PostgreSQL", postgres), "redis": ("Redis", redis)})

names = _PLACES.names
chosen = _PLACES.chosen


def run(
    report: Report, *, only: str | None = None, quick: bool = False, peers: bool = False
) -> None:
    """Measure what is chosen, into ``report``; with ``peers`` Procrastinate is installed first."""
    if peers:
        install(report, "Procrastinate", PROCRASTINATE.install)
    if f"postgres/{end_to_end.NAME}" in chosen(only) and not PROCRASTINATE.is_installed():
        report.absent.append("Procrastinate: it is not installed; --peers installs it")
    _PLACES.run(report, only, QUICK if quick else FULL)
