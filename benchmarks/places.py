"""An area whose measurements run on backends: which there are, which are chosen, and where.

Owns the places: a temporary directory for SQLite, private servers for the others. What cannot be
had here is said in the report's last lines, never silently left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.leases.backend import Absent
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.report import Report, Row
from benchmarks.running import fail, run_measurements

E_contra = TypeVar("E_contra", contravariant=True)


class Measure(Protocol[E_contra]):
    """Measures something on one backend, for as long as the effort says."""

    def __call__(self, backend: Any, effort: E_contra, /) -> Awaitable[list[Row]]:
        """The rows."""
        ...


Server = tuple[str, Callable[[], AbstractContextManager[Any]]]
"""What a server is called, and how a private one is had."""


@dataclass(frozen=True, slots=True)
class Places(Generic[E_contra]):
    """The measurements of an area by backend and name, and the servers that they need."""

    measurements: Mapping[str, Mapping[str, Measure[E_contra]]]
    servers: Mapping[str, Server]

    def names(self) -> list[str]:
        """Every measurement as ``backend/measurement``."""
        return [f"{backend}/{name}" for backend, all_ in self.measurements.items() for name in all_]

    def chosen(self, only: str | None) -> list[str]:
        """The measurements that ``only`` is part of; all of them for ``None``."""
        return [name for name in self.names() if only is None or only in name]

    def run(self, report: Report, only: str | None, effort: E_contra) -> None:
        """Measure what is chosen, into ``report``."""
        wanted = self.chosen(only)
        if any(name.startswith("sqlite/") for name in wanted):
            with tempfile.TemporaryDirectory(prefix="outlive-bench-") as directory:
                self.run_on(report, SqliteBackend(Path(directory)), wanted, effort)
        for name, (said, server) in self.servers.items():
            if any(measurement.startswith(f"{name}/") for measurement in wanted):
                try:
                    with server() as backend:
                        report.servers[said] = backend.version
                        self.run_on(report, backend, wanted, effort)
                except Absent as error:
                    report.absent.append(f"{said}: {error}")
                except Exception as error:  # noqa: BLE001 - one server must not cost the others
                    fail(report, said, error)

    def run_on(self, report: Report, backend: Any, wanted: list[str], effort: E_contra) -> None:
        """Measure what is wanted of one backend."""
        measurements = {
            f"{backend.name}/{name}": partial(measure, backend, effort)
            for name, measure in self.measurements[backend.name].items()
            if f"{backend.name}/{name}" in wanted
        }
        run_measurements(report, backend.name, measurements)
