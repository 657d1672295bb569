"""A measurement that breaks is named, fails the run, and ends no other, in every area."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from benchmarks import __main__ as command
from benchmarks.leases.backend import Absent
from benchmarks.places import Places
from benchmarks.report import Report, Row
from benchmarks.running import install

PLACED = [area for name, area in command._AREAS.items() if name != "charts"]


class Server:
    """Stands for a server and its backend."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.version = "1"


def row(name: str) -> Row:
    return Row(name=name, unit="x", ours=1.0)


async def measured(backend, effort):
    return [row(f"{backend.name}/one")]


async def broken(backend, effort):
    raise RuntimeError("it broke")


async def left_out(backend, effort):
    raise Absent("not here")


def serving(name: str, *, start: Exception | None = None, stop: Exception | None = None):
    @contextmanager
    def server():
        if start is not None:
            raise start
        yield Server(name)
        if stop is not None:
            raise stop

    return name, server


@pytest.mark.parametrize("area", PLACED)
@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_a_measurement_that_breaks_is_named_and_costs_no_other(area, backend, monkeypatch):
    first, second, third, *_ = area._MEASUREMENTS[backend]
    for name, measure in ((first, broken), (second, left_out), (third, measured)):
        monkeypatch.setitem(area._MEASUREMENTS[backend], name, measure)
    report = Report()
    wanted = [f"{backend}/{name}" for name in (first, second, third)]
    area._PLACES.run_on(report, Server(backend), wanted, None)
    assert report.failures == [f"{backend}/{first}: RuntimeError('it broke')"]
    assert report.absent == [f"{backend}/{second}: not here"]
    assert [each.name for each in report.rows] == [f"{backend}/one"]
    assert report.status == 1


@pytest.mark.parametrize("area", PLACED)
def test_each_row_that_is_measured_by_itself_can_break_by_itself(area):
    # Rows that come from the same rounds share a measurement; all others have their own.
    names = [name.partition("/")[2] for name in area.names()]
    assert not {"in-flight", "claims", "contention", "sent"} & set(names)


def test_a_peer_that_cannot_be_installed_costs_no_row(monkeypatch):
    def refused() -> None:
        raise OSError("no index")

    report = Report()
    install(report, "DBOS", refused)
    assert report.failures == ["the installation of DBOS: OSError('no index')"]


@pytest.mark.parametrize(
    "servers",
    [
        {"a": serving("a", start=OSError("no port")), "b": serving("b")},
        {"a": serving("a", stop=OSError("no port")), "b": serving("b")},
    ],
)
def test_a_server_that_breaks_costs_no_other(servers):
    places = Places({"a": {"one": measured}, "b": {"one": measured}}, servers)
    report = Report()
    places.run(report, None, None)
    assert report.failures == ["a: OSError('no port')"]
    assert report.rows[-1].name == "b/one"
    assert report.servers["b"] == "1"
    assert report.status == 1
