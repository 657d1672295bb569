"""The area of leases: what can be chosen, and that a tiny run of it works. Never how fast it is."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from contextlib import closing

import pytest

from benchmarks import __main__ as command
from benchmarks import sent as counted
from benchmarks.leases import area, backend, concurrent, contention, sent, uncontended, versus
from benchmarks.leases.backend import Absent
from benchmarks.leases.postgres_backend import PostgresBackend
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.report import Report

TINY = dataclasses.replace(
    backend.QUICK, rounds=3, round_s=0.01, crowd_rounds=1, crowd_s=0.02, contention_s=0.2
)


def test_every_backend_has_the_same_measurements_but_contention():
    found = {name: set(measures) for name, measures in area._MEASUREMENTS.items()}
    assert found["sqlite"] - found["postgres"] == set(contention.ALL)
    assert found["postgres"] <= found["sqlite"]
    assert found["redis"] - {versus.NAME} <= found["sqlite"] - {sent.NAME}


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
        found = []
        # Duties of the host fall into some of these at most.
        for _ in range(5):
            before = count()
            lease = await host.leases.try_acquire("key")
            between = count()
            await lease.release()
            found.append((before, between, count()))
    acquired = [between.transactions - before.transactions for before, between, _ in found]
    released = [after.transactions - between.transactions for _, between, after in found]
    assert min(acquired) == min(released) == 1
    assert all(between.statements > before.statements for before, between, _ in found)


async def test_a_statement_with_triggers_is_one_and_the_same_read_twice_is_two(tmp_path):
    sqlite = SqliteBackend(tmp_path)
    async with sqlite.counting(sqlite.new_store()) as count:
        connection = sqlite3.connect(tmp_path / "t.db", isolation_level=None)
        with closing(connection):
            connection.execute("CREATE TABLE a (b)")
            for name in ("one", "two"):
                connection.execute(
                    f"CREATE TRIGGER {name} AFTER INSERT ON a BEGIN UPDATE a SET b = b + 1; END"
                )
            before = count()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO a VALUES (1)")
            connection.execute("SAVEPOINT s")
            for _ in range(2):
                connection.execute("SELECT b FROM a")
            connection.execute("COMMIT")
            after = count()
    assert after.statements - before.statements == 3
    assert after.brackets - before.brackets == 3
    assert after.transactions - before.transactions == 1
    assert after.sent - before.sent == 6


async def test_what_a_pair_sends_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(counted, "_ACTS", 5)
    (row,) = await sent.measure(SqliteBackend(tmp_path), TINY)
    assert (row.name, row.unit) == ("sqlite/sent-lease-pair", "statements")
    # A transaction for each of the two, with something in it.
    assert row.peers["of these BEGIN, COMMIT and the like"] == 4
    assert row.ours >= 6


@pytest.mark.service
async def test_what_a_pair_sends_to_postgres_is_counted(postgres_server, monkeypatch):
    monkeypatch.setattr(counted, "_ACTS", 5)
    backend = PostgresBackend(postgres_server.url, postgres_server.log)
    try:
        (row,) = await sent.measure(backend, TINY)
    finally:
        backend.drop_stores()
    assert row.name == "postgres/sent-lease-pair"
    assert row.ours >= 2


async def test_statements_that_cannot_be_seen_are_left_out(monkeypatch):
    backend = PostgresBackend("postgresql://named", None)
    monkeypatch.setattr(backend, "new_store", lambda: "postgresql://named/x")
    with pytest.raises(Absent, match="log"):
        await sent.measure(backend, TINY)


async def test_count_that_sees_nothing_is_refused(tmp_path):
    sqlite = SqliteBackend(tmp_path)
    with pytest.raises(RuntimeError, match="no statement"):
        async with sqlite.counting(sqlite.new_store()):
            pass


async def test_a_contest_in_which_nobody_was_served_is_made_longer(monkeypatch):
    asked: list[float] = []

    async def served(*_: object) -> tuple[list[int], list[float]]:
        asked.append(_[-1])
        return ([0, 0] if len(asked) < 3 else [1, 3]), [0.1, 0.2]

    monkeypatch.setattr(contention, "_round", served)
    result = await contention.contest("url", "one-key", 2, 1.0)
    assert asked == [1.0, 2.0, 4.0]
    assert (result.share, result.rate) == (0.5, 1.0)


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
    document = json.loads(path.read_text())
    (row,) = document["rows"]
    assert (document["area"], document["quick"]) == ("leases", True)
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
