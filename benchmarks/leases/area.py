"""The area ``leases``: which measurements there are, on which backends, in which order.

Owns the places they run in: a temporary directory for SQLite, a private server for PostgreSQL. What
cannot be had here is said in the report's last lines, never silently left out.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.disk import flush_ms
from benchmarks.leases import concurrent, contention, handover, idle, renewals, uncontended
from benchmarks.leases.backend import FULL, QUICK, Backend, Effort
from benchmarks.leases.postgres_backend import Absent, postgres
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.report import Report, Row, shown

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
    if any(name.startswith("postgres/") for name in wanted):
        try:
            with postgres() as backend:
                _run_all(report, backend, wanted, effort)
        except Absent as error:
            report.absent.append(f"PostgreSQL: {error}")


def _run_all(report: Report, backend: Backend, wanted: list[str], effort: Effort) -> None:
    before = _flush_ms()
    for name, measure in _MEASUREMENTS[backend.name].items():
        full_name = f"{backend.name}/{name}"
        if full_name in wanted:
            _progress(f"measuring {full_name} …")
            _run_one(report, full_name, measure(backend, effort))
    report.conditions.append(
        f"{backend.name}: one flush of the disk took {shown(before)} ms before the run and "
        f"{shown(_flush_ms())} ms after it"
    )


def _flush_ms() -> float:
    # Both backends keep their files where temporary files go.
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        return flush_ms(Path(directory))


def _run_one(report: Report, name: str, measuring: Awaitable[list[Row]]) -> None:
    async def main() -> list[Row]:
        return await measuring

    try:
        rows = asyncio.run(main())
    except Exception as error:  # noqa: BLE001 - one that breaks must not cost the others
        traceback.print_exc()
        report.failures.append(f"{name}: {error!r}")
        return
    report.rows += rows
    for row in rows:
        verdict = {True: "ok", False: "MISSED", None: ""}[row.ok]
        _progress(f"  {row.name}: {shown(row.ours)} {row.unit} x{shown(row.ratio)} {verdict}")


def _progress(text: str) -> None:
    print(text.rstrip(), file=sys.stderr, flush=True)
