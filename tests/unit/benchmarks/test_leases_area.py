"""The area of leases: what can be chosen, and that a tiny run of it works. Never how fast it is."""

from __future__ import annotations

import dataclasses
import json

import pytest

from benchmarks import __main__ as command
from benchmarks.leases import area, backend, concurrent, contention, uncontended, versus
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.report import Report

TINY = dataclasses.replace(
    backend.QUICK, rounds=3, round_s=0.01, crowd_rounds=1, crowd_s=0.02, contention_s=0.2
)


def test_every_backend_has_the_same_measurements_but_contention():
    found = {name: set(measures) for name, measures in area._MEASUREMENTS.items()}
    assert found["sqlite"] - found["postgres"] == {contention.NAME}
    assert found["postgres"] <= found["sqlite"]
    assert found["redis"] - {versus.NAME} == found["sqlite"]


def test_a_part_of_a_name_chooses():
    assert area.chosen("sqlite/uncontended") == ["sqlite/uncontended"]
    backends = ("sqlite", "postgres", "redis", "azblob")
    assert area.chosen("idle") == [f"{name}/idle" for name in backends]
    assert area.chosen("nothing") == []
    assert area.chosen(None) == area.names()


def test_unknown_name_is_a_mistake_of_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["leases", "--only", "nothing"])
    assert ended.value.code == 2
    assert "sqlite/uncontended" in capsys.readouterr().err


async def test_one_row_of_sqlite(tmp_path):
    (row,) = await uncontended.measure(SqliteBackend(tmp_path), TINY)
    assert row.name == "sqlite/uncontended"
    assert row.unit == "ops/s"
    assert row.ours > 0
    assert row.floor is not None
    assert row.bar == 0.6


async def test_crowd_of_sqlite(tmp_path):
    (row,) = await concurrent.measure(SqliteBackend(tmp_path), TINY)
    assert row.name == "sqlite/concurrent-100"
    assert row.ours > 0


async def test_count_of_statements_sees_what_a_host_sends(tmp_path):
    import outlive

    sqlite = SqliteBackend(tmp_path)
    url = sqlite.new_store()
    async with sqlite.counting(url) as count, outlive.connect(url, name="h") as host:
        before = count()
        lease = await host.leases.try_acquire("key")
        between = count()
        await lease.release()
        after = count()
    assert between.statements > before.statements
    assert between.transactions == before.transactions + 1
    assert after.transactions == between.transactions + 1


async def test_count_that_sees_nothing_is_refused(tmp_path):
    sqlite = SqliteBackend(tmp_path)
    with pytest.raises(RuntimeError, match="no statement"):
        async with sqlite.counting(sqlite.new_store()):
            pass


@pytest.mark.process
async def test_processes_contend_and_report(tmp_path):
    url = SqliteBackend(tmp_path).new_store()
    result = await contention.contest(url, "own-key", 2, TINY.contention_s)
    assert result.rate > 0


def test_command_writes_json_and_tells_by_its_status(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(area, "QUICK", TINY)
    path = tmp_path / "rows.json"
    arguments = ["leases", "--quick", "--only", "sqlite/uncontended", "--json", str(path)]
    status = command.main(arguments)
    (row,) = json.loads(path.read_text())["rows"]
    assert status == (0 if row["ok"] else 1)
    assert "sqlite/uncontended" in capsys.readouterr().out


def test_measurement_that_breaks_is_reported_and_costs_no_other(monkeypatch, tmp_path):
    async def broken(*_):
        raise RuntimeError("it broke")

    measurements = {"broken": broken, "uncontended": uncontended.measure}
    monkeypatch.setitem(area._MEASUREMENTS, "sqlite", measurements)
    report = Report()
    names = ["sqlite/broken", "sqlite/uncontended"]
    area._PLACES.run_on(report, SqliteBackend(tmp_path), names, TINY)
    assert [row.name for row in report.rows] == ["sqlite/uncontended"]
    assert len(report.failures) == 1
    assert report.status == 1
