"""A claim and completions that come together: one statement, and each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from holdfast.drivers.postgres import job_sql
from holdfast.drivers.postgres.driver import PostgresDriver
from holdfast.errors import Fenced, OutcomeUnknown, UsageError
from holdfast.model.job import Completion, JobFilter, JobState, QueueSettings, Settled
from holdfast.names import HostId, Token
from tests.unit.drivers.postgres.jobs import hosts, job, jobs, wish

pytestmark = pytest.mark.service

CLAIM, KEPT, GENERAL, BOTH = "claim", "kept", "general", "both"


def watch(driver: PostgresDriver, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Which statements that claim or complete were sent since it was asked last."""
    tables = driver.jobs._tables
    names = {
        tables.text(job_sql.CLAIM_LONE): CLAIM,
        tables.text(job_sql.COMPLETE_KEPT): KEPT,
        tables.text(job_sql.COMPLETE): GENERAL,
        tables.text(job_sql.EXCHANGE): BOTH,
    }
    sent: list[str] = []
    fetch = tables.fetch

    async def watched(text, *args, write=True):
        sent.extend([names[text]] if text in names else [])
        return await fetch(text, *args, write=write)

    monkeypatch.setattr(tables, "fetch", watched)

    def asked() -> list[str]:
        found, sent[:] = list(sent), []
        return found

    return asked


async def claimed(driver: PostgresDriver, count: int, *queues: str) -> list[Completion]:
    found = (await driver.jobs.claim(wish(count, *queues))).jobs
    assert len(found) == count
    return [Completion(one.id, one.token, f'"{one.id}"') for one in found]


@pytest.mark.parametrize("claim_first", [True, False])
@pytest.mark.parametrize("count", [1, 10])
async def test_together_they_are_one_statement(postgres_url, monkeypatch, claim_first, count):
    async with hosts(postgres_url, "h") as (driver,):
        made = jobs(2 * count)
        await driver.jobs.enqueue(made)
        batch = await claimed(driver, count)
        sent = watch(driver, monkeypatch)
        calls = [driver.jobs.claim(wish(count)), driver.jobs.complete(batch)]
        answers = await asyncio.gather(*(calls if claim_first else reversed(calls)))
        taken, settled = answers if claim_first else reversed(answers)
        assert sent() == [BOTH]
        assert settled == [Settled.OK] * count
        assert [(one.id, one.payload) for one in taken.jobs] == [
            (one.id, one.payload) for one in made[count:]
        ]
        found = await driver.jobs.list(JobFilter(), after=None, limit=100)
        assert [(one.state, one.result) for one in found] == [
            *((JobState.DONE, f'"{one.id}"') for one in made[:count]),
            *[(JobState.CLAIMED, None)] * count,
        ]
        rest = [Completion(one.id, one.token, None) for one in taken.jobs]
        assert await driver.jobs.complete(rest) == [Settled.OK] * count


async def test_apart_they_are_two(postgres_url, monkeypatch):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(2))
        sent = watch(driver, monkeypatch)
        batch = await claimed(driver, 1)
        assert await driver.jobs.complete(batch) == [Settled.OK]
        assert len((await driver.jobs.claim(wish())).jobs) == 1
        assert sent() == [CLAIM, KEPT, CLAIM]


async def test_many_go_side_by_side(postgres_url, monkeypatch):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(200))
        batch = await claimed(driver, 101)
        sent = watch(driver, monkeypatch)
        taken, settled = await asyncio.gather(
            driver.jobs.claim(wish(10)), driver.jobs.complete(batch)
        )
        assert sorted(sent()) == [CLAIM, KEPT]
        assert (len(taken.jobs), set(settled)) == (10, {Settled.OK})


async def test_each_of_a_mixed_batch_gets_its_own_end_beside_a_claim(postgres_url, monkeypatch):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.put_queue(QueueSettings(name="limited", concurrency=50))
        made = [job(), job(retention_us=0), job("limited"), job(ordering_key="x"), job(), job()]
        await driver.jobs.enqueue(made)
        by_id = {one.id: one for one in await claimed(driver, 6, "q", "limited")}
        batch = [by_id[one.id] for one in made]
        lost = Completion(batch[4].id, Token(batch[4].token + 1), None)
        await driver.jobs.enqueue(more := [job()])
        sent = watch(driver, monkeypatch)
        taken, settled = await asyncio.gather(
            driver.jobs.claim(wish()), driver.jobs.complete([*batch[:4], lost, batch[5]])
        )
        assert sent() == [BOTH, GENERAL]
        assert [one.id for one in taken.jobs] == [more[0].id]
        assert settled == [*[Settled.OK] * 4, Settled.LOST, Settled.OK]
        found = await driver.jobs.list(JobFilter(), after=None, limit=10)
        assert {one.id: one.state for one in found} == {
            made[0].id: JobState.DONE,
            made[2].id: JobState.DONE,
            made[3].id: JobState.DONE,
            made[4].id: JobState.CLAIMED,
            made[5].id: JobState.DONE,
            more[0].id: JobState.CLAIMED,
        }


async def test_a_queue_that_has_nothing_takes_nothing_from_completions(postgres_url):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(3))
        batch = await claimed(driver, 3)
        taken, settled = await asyncio.gather(
            driver.jobs.claim(wish(3)), driver.jobs.complete(batch)
        )
        assert (taken.jobs, settled) == ((), [Settled.OK] * 3)


async def test_a_session_that_has_ended_claims_nothing_and_its_token_decides(postgres_url):
    async with hosts(postgres_url, "h", "g") as (driver, other):
        await driver.jobs.enqueue(jobs(2))
        batch = await claimed(driver, 1)
        await other.hosts.close(HostId("h"))
        refused, settled = await asyncio.gather(
            driver.jobs.claim(wish()), driver.jobs.complete(batch), return_exceptions=True
        )
        assert isinstance(refused, Fenced)
        # Nobody has taken the claim yet.
        assert settled == [Settled.OK]
        states = [one.state for one in await driver.jobs.list(JobFilter(), after=None, limit=9)]
        assert states == [JobState.DONE, JobState.READY]


@pytest.mark.parametrize("claim_first", [True, False])
async def test_a_result_that_cannot_be_kept_is_nothing_to_the_claim(postgres_url, claim_first):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(2))
        (one,) = await claimed(driver, 1)
        bad = Completion(one.id, one.token, "\0")
        calls = [driver.jobs.claim(wish()), driver.jobs.complete([bad])]
        answers = await asyncio.gather(
            *(calls if claim_first else reversed(calls)), return_exceptions=True
        )
        taken, settled = answers if claim_first else reversed(answers)
        assert len(taken.jobs) == 1
        assert isinstance(settled, UsageError)


async def test_who_sends_for_both_and_gives_up_leaves_the_other_a_doubt(postgres_url):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(2))
        batch = await claimed(driver, 2)
        await driver.jobs.enqueue(jobs(1))
        # The first waits for the second, which sends for both.
        completing = asyncio.create_task(driver.jobs.complete(batch))
        claiming = asyncio.create_task(driver.jobs.claim(request := wish()))
        await asyncio.sleep(0)
        claiming.cancel()
        with pytest.raises(OutcomeUnknown):
            await completing
        assert await driver.jobs.complete(batch) == [Settled.OK] * 2
        again = wish(request=request.request, again=True)
        assert len((await driver.jobs.claim(again)).jobs) == 1


async def test_several_of_a_kind_do_not_wait_for_one_another(postgres_url):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(12))
        first, second = await claimed(driver, 2), await claimed(driver, 2)
        calls = (driver.jobs.complete(first), driver.jobs.complete(second))
        wishes = (driver.jobs.claim(wish(2)) for _ in range(4))
        async with asyncio.timeout(10):
            *settled, a, b, c, d = await asyncio.gather(*calls, *wishes)
        assert settled == [[Settled.OK] * 2] * 2
        assert len({one.id for each in (a, b, c, d) for one in each.jobs}) == 8


@pytest.mark.parametrize("turns", range(4))
async def test_who_leaves_before_anybody_came_is_not_sent_for(postgres_url, turns):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(3))
        batch = await claimed(driver, 2)
        leaving = asyncio.create_task(driver.jobs.claim(wish()))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert await driver.jobs.complete(batch) == [Settled.OK] * 2
        # What had been sent already may be carried out; what had not is not.
        states = [one.state for one in await driver.jobs.list(JobFilter(), after=None, limit=9)]
        assert states[:2] == [JobState.DONE] * 2
        if turns < 3:
            assert states[2] is JobState.READY
