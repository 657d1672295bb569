"""The area of work: what can be chosen, and that a tiny run of it works. Never how fast it is."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks import __main__ as command
from benchmarks import python_peer
from benchmarks import sent as counted
from benchmarks.children import children
from benchmarks.leases.postgres_backend import PostgresBackend
from benchmarks.leases.redis_backend import RedisBackend
from benchmarks.leases.sqlite_backend import SqliteBackend
from benchmarks.work import area, backlog, batches, effort, end_to_end, pickup, sent
from benchmarks.work.crew import PROGRAM, Crew
from benchmarks.work.jobs import open_jobs

TINY = dataclasses.replace(
    effort.QUICK,
    rounds=1,
    round_s=0.1,
    batch_rounds=1,
    batch_s=0.001,
    pickups=3,
    backlog=2_000,
    backlog_rounds=1,
    peer_jobs=5,
    idle_s=0.2,
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
def redis(redis_server):
    return RedisBackend(redis_server)


async def claims_of(backend):
    measures = area._MEASUREMENTS[backend.name]
    found = [await measures[f"claims-{size}"](backend, TINY) for size in batches.SIZES]
    return [row for rows in found for row in rows]


def test_a_part_of_a_name_chooses():
    assert area.chosen("pickup") == [f"{name}/pickup" for name in ("sqlite", "postgres", "redis")]
    assert area.chosen("nothing") == []
    assert area.chosen(None) == area.names()


def test_unknown_name_is_a_mistake_of_the_command(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["work", "--only", "nothing"])
    assert ended.value.code == 2
    assert "sqlite/end-to-end" in capsys.readouterr().err


async def test_claims_of_sqlite(sqlite):
    rows = await claims_of(sqlite)
    assert [row.name for row in rows] == [f"sqlite/claims-{size}" for size in (1, 10, 100)]
    assert all(row.ours > 0 and row.floor and row.bar == 0.8 for row in rows)


@pytest.mark.service
async def test_claims_of_postgres(postgres):
    rows = await claims_of(postgres)
    assert [row.name for row in rows] == [f"postgres/claims-{size}" for size in (1, 10, 100)]


@pytest.mark.service
async def test_claims_of_redis(redis):
    rows = await claims_of(redis)
    assert [row.name for row in rows] == [f"redis/claims-{size}" for size in (1, 10, 100)]


async def test_backlog_of_sqlite(sqlite):
    (row,) = await backlog.measure(sqlite, TINY)
    assert (row.name, row.bar, row.at_most) == ("sqlite/backlog-2000", 1.5, True)
    assert row.ours > 0


async def test_a_claim_that_finds_too_little_is_no_measurement(sqlite):
    async with open_jobs(sqlite.new_store()) as jobs:
        await jobs.fill("few", 3)
        with pytest.raises(RuntimeError, match="asked for 4"):
            await jobs.claim("few", 4)


@pytest.mark.process
async def test_end_to_end_of_sqlite(sqlite):
    (row,) = await end_to_end.measure_sqlite(sqlite, TINY)
    assert (row.name, row.bar) == ("sqlite/end-to-end", 2.0)
    assert row.ours > 0


@pytest.mark.process
async def test_a_crew_that_empties_its_queue_does_the_round_again_with_more(sqlite):
    url = sqlite.new_store()
    async with open_jobs(url) as jobs, children(PROGRAM, [[url]]) as runners:
        await runners[0].hear()
        # Nothing but what must be left: whatever the crew does is too much.
        crew = Crew(jobs, runners, 0.2, backlog_per_s=0)
        assert await crew.rate() > 0


async def test_a_crew_that_did_nothing_yet_gets_a_longer_round(sqlite, monkeypatch):
    asked: list[float] = []

    async def served(crew: Crew) -> tuple[int, float]:
        asked.append(crew._seconds)
        return (0 if len(asked) < 3 else 5), crew._seconds

    monkeypatch.setattr(Crew, "_round", served)
    async with open_jobs(sqlite.new_store()) as jobs:
        assert await Crew(jobs, [], 0.5).rate() == 2.5
    assert asked == [0.5, 1.0, 2.0]


@pytest.mark.process
@pytest.mark.service
async def test_end_to_end_of_postgres_without_its_peer(postgres, monkeypatch, tmp_path):
    monkeypatch.setattr(python_peer, "cache", lambda: tmp_path)
    (row,) = await end_to_end.measure_postgres(postgres, TINY)
    assert (row.name, row.floor, row.bar) == ("postgres/end-to-end", None, None)


@pytest.mark.process
@pytest.mark.service
async def test_two_processes_of_postgres(postgres):
    (few,) = await end_to_end.measure_processes(postgres, TINY)
    (many,) = await end_to_end.measure_full_processes(postgres, TINY)
    assert (few.name, few.bar) == ("postgres/two-processes", 1.5)
    assert (many.name, many.bar) == ("postgres/two-processes-full", 1.5)


@pytest.mark.process
async def test_pickup_of_sqlite(sqlite):
    rows = await pickup.measure(sqlite, TINY)
    assert [(row.name, row.bar) for row in rows] == [
        ("sqlite/pickup-p50", 5.0), ("sqlite/pickup-p99", None)
    ]  # fmt: skip


async def test_what_work_sends_is_counted(sqlite, monkeypatch):
    monkeypatch.setattr(counted, "_ACTS", 3)
    monkeypatch.setattr(counted, "_SETTLE_S", 0.1)
    (enqueued,) = await sent.measure_enqueue(sqlite, TINY)
    (worked,) = await sent.measure_job(sqlite, TINY)
    (idle,) = await sent.measure_idle(sqlite, TINY)
    assert [row.name for row in (enqueued, worked, idle)] == [
        "sqlite/sent-enqueue", "sqlite/sent-lone-job", "sqlite/sent-idle"
    ]  # fmt: skip
    # A transaction, with something in it; for the job one for the claim and one for its end.
    assert enqueued.ours >= 3
    assert worked.ours >= 6
    assert idle.ours >= 0
