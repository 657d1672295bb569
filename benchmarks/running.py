"""Runs the measurements of one backend, one after the other, into a report.

Owns what becomes of one that breaks (it costs no other), the talk on stderr, and the flushes of
the disk that are measured around them all.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from benchmarks.disk import flush_ms
from benchmarks.leases.backend import Absent
from benchmarks.report import Report, Row, shown

Measurement = Callable[[], Awaitable[list[Row]]]


def run_measurements(report: Report, backend: str, measurements: Mapping[str, Measurement]) -> None:
    """Run ``measurements``, each by its full name, and add the conditions they ran under."""
    before = _flush_ms()
    for name, measure in measurements.items():
        run_measurement(report, name, measure)
    report.conditions.append(
        f"{backend}: one flush of the disk took {shown(before)} ms before the run and "
        f"{shown(_flush_ms())} ms after it"
    )


def _flush_ms() -> float:
    # All backends keep their files where temporary files go.
    with tempfile.TemporaryDirectory(prefix="outlive-bench-") as directory:
        return flush_ms(Path(directory))


def run_measurement(report: Report, name: str, measure: Measurement) -> None:
    """Run one, by its full name; an exception in it is added to the failures of the report."""
    _progress(f"measuring {name} …")

    async def main() -> list[Row]:
        return await measure()

    try:
        rows = asyncio.run(main())
    except Absent as error:
        report.absent.append(f"{name}: {error}")
        return
    except Exception as error:  # noqa: BLE001 - one that breaks must not cost the others
        fail(report, name, error)
        return
    report.rows += rows
    for row in rows:
        verdict = {True: "ok", False: "MISSED", None: ""}[row.ok]
        _progress(f"  {row.name}: {shown(row.ours)} {row.unit} x{shown(row.ratio)} {verdict}")


def fail(report: Report, name: str, error: Exception) -> None:
    """Add a failure, and print the traceback."""
    traceback.print_exception(error)
    report.failures.append(f"{name}: {error!r}")


def install(report: Report, name: str, put: Callable[[], None]) -> None:
    """Install a peer; one that cannot be had costs nothing but the rows beside it."""
    try:
        put()
    except Exception as error:  # noqa: BLE001 - as above
        fail(report, f"the installation of {name}", error)


def _progress(text: str) -> None:
    print(text.rstrip(), file=sys.stderr, flush=True)
