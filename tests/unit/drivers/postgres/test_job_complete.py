"""How completions share statements: the short one where it does, the general one for the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from outlive.drivers.postgres import job_sql
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.model.job import Completion, JobFilter, JobState, QueueSettings, Settled
from outlive.names import JobId, Token
from tests.unit.drivers.postgres.jobs import hosts, job, jobs, watch, wish

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

KEPT, GENERAL = "kept", "general"
NAMES = {job_sql.COMPLETE_KEPT: KEPT, job_sql.COMPLETE: GENERAL}


async def claim_all(driver: PostgresDriver, *queues: str) -> list[Completion]:
    claimed = (await driver.jobs.claim(wish(100, *queues))).jobs
    return [Completion(one.id, one.token, f'"{one.id}"') for one in claimed]


async def complete(driver: PostgresDriver, batch: Sequence[Completion]) -> list[Settled]:
    return list(await driver.jobs.complete(batch))


async def test_what_is_kept_takes_the_short_statement(postgres_url, monkeypatch) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        sent = watch(driver, monkeypatch, NAMES)
        await driver.jobs.enqueue(jobs(5))
        batch = await claim_all(driver, "q")
        assert await complete(driver, batch) == [Settled.OK] * 5
        assert sent() == [KEPT]
        found = await driver.jobs.list(JobFilter(), after=None, limit=10)
        assert [(one.state, one.result) for one in found] == [
            (JobState.DONE, f'"{one.id}"') for one in found
        ]
        assert await complete(driver, batch) == [Settled.OK] * 5


async def test_each_of_a_mixed_batch_gets_its_own_end(postgres_url, monkeypatch) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.put_queue(QueueSettings(name="limited", concurrency=50))
        made = [job(), job(retention_us=0), job("limited"), job(ordering_key="x"), job()]
        await driver.jobs.enqueue(made)
        by_id = {one.id: one for one in await claim_all(driver, "q", "limited")}
        batch = [by_id[one.id] for one in made]
        lost = Completion(batch[4].id, Token(batch[4].token + 1), None)
        sent = watch(driver, monkeypatch, NAMES)
        assert await complete(driver, [*batch[:4], lost]) == [Settled.OK] * 4 + [Settled.LOST]
        assert sent() == [KEPT, GENERAL]
        found = await driver.jobs.list(JobFilter(), after=None, limit=10)
        assert [(one.id, one.state) for one in found] == [
            (made[0].id, JobState.DONE),
            (made[2].id, JobState.DONE),
            (made[3].id, JobState.DONE),
            (made[4].id, JobState.CLAIMED),
        ]


async def test_the_short_statement_is_left_out_while_it_would_not_do(
    postgres_url, monkeypatch
) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        sent = watch(driver, monkeypatch, NAMES)
        expected = [
            ({"retention_us": 0}, [KEPT, GENERAL]),
            ({"retention_us": 0}, [GENERAL]),
            ({}, [GENERAL]),
            ({}, [KEPT]),
            ({"ordering_key": "x"}, [KEPT, GENERAL]),
            ({"ordering_key": "x"}, [GENERAL]),
        ]
        for fields, statements in expected:
            await driver.jobs.enqueue([job(**fields)])
            batch = await claim_all(driver, "q")
            assert await complete(driver, batch) == [Settled.OK]
            assert sent() == statements, fields


async def test_a_limit_that_comes_while_a_job_runs_rings_who_waits_for_room(
    postgres_url, monkeypatch
) -> None:
    async with hosts(postgres_url, "h", "g") as (driver, other):
        await driver.jobs.enqueue(jobs(2))
        claimed = (await driver.jobs.claim(wish(1))).jobs
        await driver.jobs.put_queue(QueueSettings(name="q", concurrency=1))
        waiting = wish(1, host="g", wait_us=5_000_000)
        assert (await other.jobs.claim(waiting)).jobs == ()
        notes = "SELECT count(*) AS notes FROM outlive.waiting WHERE namespace || '' = $1"
        tables = driver.jobs._settler._tables
        assert [row["notes"] for row in await tables.fetch(notes)] == [1]
        sent = watch(driver, monkeypatch, NAMES)
        done = [Completion(JobId(one.id), one.token, None) for one in claimed]
        assert await complete(driver, done) == [Settled.OK]
        assert sent() == [KEPT, GENERAL]
        # Who was told has no note any more.
        assert [row["notes"] for row in await tables.fetch(notes)] == [0]
        assert len((await other.jobs.claim(wish(1, host="g"))).jobs) == 1
