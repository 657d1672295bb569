"""The area ``flows``: which measurements there are, on which backends, in which order.

The places they run in are those of the area of leases.
"""

from __future__ import annotations

from importlib import import_module

from benchmarks.flows import hosts, sent, sizes, throughput
from benchmarks.flows.backend import OpenFloor
from benchmarks.flows.effort import FULL, QUICK
from benchmarks.flows.peers import DBOS
from benchmarks.leases.postgres_backend import postgres
from benchmarks.places import Places
from benchmarks.report import Report
from benchmarks.running import install


def _floor(backend: str) -> OpenFloor:
    """The floor of a backend, whose client library may be missing."""
    return import_module(f"benchmarks.flows.{backend}_floor").open_floor


def _measurements(backend: str) -> dict[str, throughput.Measure]:
    return {
        **throughput.measurements(lambda: _floor(backend)),
        sizes.COMMITS_NAME: sizes.measure_commits,
        sizes.LONG_NAME: sizes.measure_long,
        sizes.FAN_NAME: sizes.measure_fan,
        sizes.SLEEPING_NAME: sizes.measure_sleeping,
        sent.FLOW_NAME: sent.measure_flow,
        sent.IDLE_NAME: sent.measure_idle,
    }


_MEASUREMENTS: dict[str, dict[str, throughput.Measure]] = {
    "sqlite": _measurements("sqlite"),
    # A file has one writer, whoever it is; only a server has room for two hosts. They come first:
    # with their server they fill two cores, and it would vacuum behind all the others meanwhile.
    "postgres": {hosts.NAME: hosts.measure, **_measurements("postgres")},
}
_PLACES = Places(_MEASUREMENTS, {"postgres": ("PostgreSQL", postgres)})

names = _PLACES.names
chosen = _PLACES.chosen


def run(
    report: Report, *, only: str | None = None, quick: bool = False, peers: bool = False
) -> None:
    """Measure what is chosen, into ``report``; with ``peers`` DBOS is installed first."""
    if peers:
        install(report, "DBOS", DBOS.install)
    _PLACES.run(report, only, QUICK if quick else FULL)
