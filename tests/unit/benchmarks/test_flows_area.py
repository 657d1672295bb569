"""The area of flows: what can be chosen, and that a tiny run of it works. Never how fast it is."""

from __future__ import annotations

import dataclasses
import gc

import pytest

from benchmarks import __main__ as command
from benchmarks import python_peer
from benchmarks import sent as counted
from benchmarks.flows import area, effort, hosts, sent, sizes
from benchmarks.leases.backend import Absent
from benchmarks.leases.postgres_backend import PostgresBackend
from benchmarks.leases.sqlite_backend import SqliteBackend

TINY = dataclasses.replace(
    effort.QUICK,
    rounds=1,
    round_s=0.05,
    latencies=10,
    process_rounds=1,
    process_s=0.1,
    peer_flows=2,
    sleeping=20,
    idle_s=0.2,
    long_steps=50,
)


@pytest.fixture
def sqlite(tmp_path):
    return SqliteBackend(tmp_path)


@pytest.fixture
def postgres(postgres_server):
    backend = PostgresBackend(postgres_server.url, None)
    yield backend
    backend.drop_stores()


@pytest.fixture
def short_sleep(monkeypatch):
    monkeypatch.setattr(sizes, "_PARK_S", 0.5)
    # The row collects garbage while its host runs. What other tests left takes seconds to look
    # through on a busy machine, in which the host could not renew its session.
    gc.freeze()


async def beside_the_floor(backend):
    measures = area._MEASUREMENTS[backend.name]
    # Of two rows from the same rounds the name begins with that of the measurement.
    found = [await measures[name](backend, TINY) for name in NAMES if name in measures]
    return [row for rows in found for row in rows]


def test_a_part_of_a_name_chooses():
    assert area.chosen("sleeping") == ["sqlite/sleeping", "postgres/sleeping"]
    assert area.chosen("two-hosts") == ["postgres/two-hosts"]
    assert area.chosen("nothing") == []
    assert area.chosen(None) == area.names()


def test_unknown_name_is_a_mistake_of_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["flows", "--only", "nothing"])
    assert ended.value.code == 2
    assert "sqlite/fan-out" in capsys.readouterr().err


NAMES = (
    "one-step-in-flight-16",
    "10-steps-in-flight-16",
    "one-step-in-flight-256",
    "one-step-in-flight-256-to-16",
    "one-step-alone-p50",
    "cpu-per-step",
    "cpu-per-step-to-floor",
)


async def test_flows_in_flight_on_sqlite(sqlite):
    rows = await beside_the_floor(sqlite)
    assert [row.name for row in rows] == [f"sqlite/{name}" for name in NAMES]
    assert [row.bar for row in rows] == [0.5, 0.5, 0.5, 1.0, 2.5, 0.2, None]
    assert all(row.ours > 0 for row in rows)


@pytest.mark.service
async def test_flows_in_flight_on_postgres(postgres):
    rows = await beside_the_floor(postgres)
    assert [row.name for row in rows] == [f"postgres/{name}" for name in NAMES]


async def test_without_dbos_the_rows_beside_it_are_left_out(sqlite, monkeypatch, tmp_path):
    monkeypatch.setattr(python_peer, "cache", lambda: tmp_path)
    for steps in ("one-step", "10-steps"):
        with pytest.raises(Absent, match="--peers"):
            await area._MEASUREMENTS["sqlite"][f"{steps}-to-dbos"](sqlite, TINY)


async def test_commits_are_one_more_than_steps(sqlite):
    (row,) = await sizes.measure_commits(sqlite, TINY)
    assert (row.name, row.ours, row.ok) == ("sqlite/commits-of-7-steps", 8, True)


async def test_a_wide_fan_out_writes_as_much_for_each_member_as_a_narrow_one(sqlite):
    (row,) = await sizes.measure_fan(sqlite, TINY)
    assert row.name == "sqlite/fan-out-1000"
    # Bytes, not times: this is the same on any machine.
    assert row.ok


async def test_long_flow_on_sqlite(sqlite):
    (row,) = await sizes.measure_long(sqlite, TINY)
    assert (row.name, row.bar, row.at_most) == ("sqlite/long-flow-50", 1.3, True)


async def test_sleeping_flows_all_wake(sqlite, short_sleep):
    rows = await sizes.measure_sleeping(sqlite, TINY)
    assert [row.name for row in rows] == [
        f"sqlite/sleeping-20-{what}" for what in ("memory", "idle", "lost")
    ]
    assert rows[-1].ours == 0


async def test_flows_that_wake_too_soon_get_more_time(sqlite, monkeypatch):
    asked: list[float] = []

    async def slow(_backend: object, _effort: object, calm_in_s: float) -> object:
        asked.append(calm_in_s)
        return None if len(asked) < 3 else (1.0, 2.0, 0)

    monkeypatch.setattr(sizes, "_sleeping", slow)
    rows = await sizes.measure_sleeping(sqlite, TINY)
    assert [row.ours for row in rows] == [1.0, 2.0, 0]
    assert asked[0] < asked[1] < asked[2]


async def test_what_flows_send_is_counted(sqlite, monkeypatch):
    monkeypatch.setattr(counted, "_ACTS", 5)
    monkeypatch.setattr(counted, "_SETTLE_S", 0.1)
    (flow,) = await sent.measure_flow(sqlite, TINY)
    (idle,) = await sent.measure_idle(sqlite, TINY)
    assert (flow.name, idle.name) == ("sqlite/sent-one-step", "sqlite/sent-idle")
    # A transaction for the start and one for the end, with something in each.
    assert flow.ours >= 6
    assert idle.ours >= 0


@pytest.mark.process
@pytest.mark.service
async def test_two_hosts_on_postgres(postgres):
    (row,) = await hosts.measure(postgres, TINY)
    assert (row.name, row.bar) == ("postgres/two-hosts", 1.6)
