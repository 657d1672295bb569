"""The area of charts: what can be chosen, and that a tiny run works. Never how fast it is."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks import __main__ as command
from benchmarks.charts import area, crowd, peers
from benchmarks.report import Report

TINY = dataclasses.replace(area.QUICK, rounds=1, round_s=0.01, machines=1_000)


def test_a_part_of_a_name_chooses():
    assert area.chosen("fla") == ["flat"]
    assert area.chosen(None) == area.names()
    assert area.names()[:3] == ["flat", "parallel", "memory"]
    assert area.chosen("crowd") == ["crowd/stress", "crowd/slow-machine", "crowd/memory"]


async def test_rows_without_peers():
    (row,) = await area._speed("parallel", area.Peers(), TINY)
    assert (row.name, row.unit, row.floor, row.bar) == ("parallel", "events/s", None, None)
    assert row.ours > 0


async def test_rows_beside_peers():
    async def peer(shape: str, seconds: float) -> float:
        return 1.0

    rows = await area._speed("flat", area.Peers(xstate=peer, python=peer), TINY)
    assert [(row.name, row.bar, row.ok) for row in rows] == [
        ("flat/xstate", 2.0, True), ("flat/python", 5.0, True)
    ]  # fmt: skip


@pytest.mark.process
async def test_memory_is_measured_in_a_process_of_its_own():
    (row,) = await area._memory(area.Peers(), TINY)
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
    assert [row["name"] for row in json.loads(written.read_text())["rows"]] == ["flat"]
    shown = capsys.readouterr().out
    assert "left out: XState: " in shown
    assert "left out: Python peers: they are not installed" in shown
    assert not peers.cache().exists()


def test_a_measurement_that_breaks_costs_the_others_nothing(monkeypatch):
    async def broken(_peers: object, _effort: object) -> list[object]:
        raise RuntimeError("no")

    monkeypatch.setattr(area, "QUICK", TINY)
    monkeypatch.setattr(peers, "_xstate", lambda: peers.Path("nowhere"))
    monkeypatch.setattr(peers, "_python", lambda: peers.Path("nowhere"))
    monkeypatch.setitem(area._MEASUREMENTS, "flat", broken)
    # Another table instead of a changed one: put back, an entry would stand at the end.
    kept = {n: m for n, m in area._MEASUREMENTS.items() if n != "crowd/slow-machine"}
    monkeypatch.setattr(area, "_MEASUREMENTS", kept)
    report = Report()
    area.run(report, only="l", quick=True)
    assert report.failures == ["flat: RuntimeError('no')"]
    assert [row.name for row in report.rows] == ["parallel"]


async def test_the_crowd_is_measured(monkeypatch):
    monkeypatch.setattr(crowd, "GROUPS", 5)
    monkeypatch.setattr(crowd, "MACHINES", 50)
    monkeypatch.setattr(crowd, "_ASKED_AT_ONCE", 10)
    monkeypatch.setattr(crowd, "_BATCHES", 2)
    effort = crowd.Effort(events=500, rounds=1, machines=100)
    (row,) = await crowd.stress(None, effort)
    assert row.ours > 0
    (slow,) = await crowd.slow_machine(None, effort)
    assert (slow.unit, slow.bar, slow.at_most) == ("ms", 10.0, True)
