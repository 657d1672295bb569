"""The area of charts: what can be chosen, and that a tiny run works. Never how fast it is."""

from __future__ import annotations

import dataclasses
import json
from contextlib import asynccontextmanager

import pytest

from benchmarks import __main__ as command
from benchmarks.charts import area, crowd, peers
from benchmarks.report import Report

TINY = dataclasses.replace(area.QUICK, rounds=1, round_s=0.01, machines=1_000)


def test_a_part_of_a_name_chooses():
    assert area.chosen("fla") == ["flat/xstate", "flat/python"]
    assert area.chosen(None) == area.names()
    assert area.chosen("crowd") == ["crowd/stress", "crowd/slow-machine", "crowd/memory"]


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """Without peers, wherever they are installed."""
    monkeypatch.setattr(peers, "cache", lambda: tmp_path / "none")


async def test_rows_without_peers(alone):
    (row,) = await area._speed("parallel", "xstate", TINY)
    assert (row.name, row.unit, row.floor, row.bar) == ("parallel/xstate", "events/s", None, None)
    assert row.ours > 0


async def test_rows_beside_peers(monkeypatch):
    @asynccontextmanager
    async def peer():
        async def rate(shape: str, seconds: float) -> float:
            return 1.0

        yield rate

    bars = {name: bar for name, (_, bar) in area._PEERS.items()}
    monkeypatch.setattr(area, "_PEERS", {name: (peer, bar) for name, bar in bars.items()})
    rows = [row for name in bars for row in await area._speed("flat", name, TINY)]
    assert [(row.name, row.bar, row.ok) for row in rows] == [
        ("flat/xstate", 2.0, True), ("flat/python", 5.0, True)
    ]  # fmt: skip


@pytest.mark.process
async def test_memory_is_measured_in_a_process_of_its_own():
    (row,) = await area._memory(TINY)
    assert (row.name, row.at_most, row.bar) == ("memory", True, 600.0)


def test_both_shapes_move():
    for shape in ("flat", "parallel"):
        actor = area.actor_of(shape)
        before = actor.snapshot.value
        actor.send("TOGGLE")
        assert actor.snapshot.value != before


@pytest.mark.process
def test_what_is_not_installed_is_said(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(area, "QUICK", TINY)
    written = tmp_path / "rows.json"
    assert command.main(["charts", "--quick", "--only", "flat", "--json", str(written)]) == 0
    names = [row["name"] for row in json.loads(written.read_text())["rows"]]
    assert names == ["flat/xstate", "flat/python"]
    shown = capsys.readouterr().out
    assert "left out: XState: " in shown
    assert "left out: Python peers: they are not installed" in shown
    assert not peers.cache().exists()


def test_a_measurement_that_breaks_costs_the_others_nothing(alone, monkeypatch):
    async def broken(_effort: object) -> list[object]:
        raise RuntimeError("no")

    monkeypatch.setattr(area, "QUICK", TINY)
    monkeypatch.setitem(area._MEASUREMENTS, "flat/xstate", broken)
    report = Report()
    area.run(report, only="flat", quick=True)
    assert report.failures == ["flat/xstate: RuntimeError('no')"]
    assert [row.name for row in report.rows] == ["flat/python"]


def test_a_peer_that_breaks_costs_the_row_beside_it_alone(monkeypatch):
    @asynccontextmanager
    async def broken():
        async def rate(shape: str, seconds: float) -> float:
            raise RuntimeError("it ended")

        yield rate

    monkeypatch.setattr(area, "QUICK", TINY)
    monkeypatch.setattr(
        area, "_PEERS", {"xstate": (broken, 2.0), "python": (peers.python_peers, 5.0)}
    )
    monkeypatch.setattr(peers, "_python", lambda: peers.Path("nowhere"))
    report = Report()
    area.run(report, only="flat", quick=True)
    assert report.failures == ["flat/xstate: RuntimeError('it ended')"]
    assert [row.name for row in report.rows] == ["flat/python"]


def test_peers_that_cannot_be_installed_are_named_and_cost_no_row(alone, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError("no index")

    monkeypatch.setattr(area, "QUICK", TINY)
    monkeypatch.setattr(peers, "_run", refused)
    report = Report()
    area.run(report, only="flat", quick=True, peers=True)
    assert "the installation of the Python peers: OSError('no index')" in report.failures
    assert len(report.rows) == 2
    assert report.status == 1


async def test_the_crowd_is_measured(alone, monkeypatch):
    monkeypatch.setattr(crowd, "GROUPS", 5)
    monkeypatch.setattr(crowd, "MACHINES", 50)
    monkeypatch.setattr(crowd, "_ASKED_AT_ONCE", 10)
    monkeypatch.setattr(crowd, "_BATCHES", 2)
    effort = crowd.Effort(events=500, rounds=1, machines=100)
    (row,) = await crowd.stress(effort)
    assert row.ours > 0
    (slow,) = await crowd.slow_machine(effort)
    assert (slow.unit, slow.bar, slow.at_most) == ("ms", 10.0, True)
