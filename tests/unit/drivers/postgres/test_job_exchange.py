"""A claim and completions that come together: one statement, and each with its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from outlive.drivers.postgres import job_sql
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import Fenced, OutcomeUnknown, UsageError
from outlive.model.job import Completion, JobFilter, JobState, QueueSettings, Settled
from outlive.names import HostId, Token
from tests.unit.drivers.postgres.jobs import hosts, job, jobs, until_blocked, watch, wish

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

CLAIM, KEPT, GENERAL, BOTH = "claim", "kept", "general", "both"
NAMES = {
    job_sql.CLAIM_LONE: CLAIM,
    job_sql.COMPLETE_KEPT: KEPT,
    job_sql.COMPLETE: GENERAL,
    job_sql.EXCHANGE: BOTH,
}


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
        sent = watch(driver, monkeypatch, NAMES)
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
        sent = watch(driver, monkeypatch, NAMES)
        batch = await claimed(driver, 1)
        assert await driver.jobs.complete(batch) == [Settled.OK]
        assert len((await driver.jobs.claim(wish())).jobs) == 1
        assert sent() == [CLAIM, KEPT, CLAIM]


async def test_who_always_comes_alone_waits_for_nobody_until_the_other_comes_near(
    postgres_url, monkeypatch
):
    async with hosts(postgres_url, "h") as (driver,):
        exchange = driver.jobs._claimer._exchange
        await driver.jobs.enqueue(jobs(20))
        held = [(await claimed(driver, 1))[0] for _ in range(10)]
        assert exchange._vain == 4
        sent = watch(driver, monkeypatch, NAMES)
        # Each would have met the other, had somebody waited.
        await asyncio.gather(driver.jobs.claim(wish()), driver.jobs.complete(held[:2]))
        assert sorted(sent()) == [CLAIM, KEPT]
        await asyncio.gather(driver.jobs.claim(wish()), driver.jobs.complete(held[2:4]))
        assert sent() == [BOTH]


async def test_many_go_side_by_side(postgres_url, monkeypatch):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(200))
        batch = await claimed(driver, 101)
        sent = watch(driver, monkeypatch, NAMES)
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
        sent = watch(driver, monkeypatch, NAMES)
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


@asynccontextmanager
async def locked(url: str, job_id: str) -> AsyncGenerator[None]:
    """The row of a job, locked by somebody who takes his time."""
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute("SELECT FROM outlive.job WHERE id = $1 FOR UPDATE", job_id)
            yield
    finally:
        await other.close()


async def test_a_claim_does_not_wait_with_a_completion(postgres_url, monkeypatch):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(3))
        batch = await claimed(driver, 2)
        sent = watch(driver, monkeypatch, NAMES)
        async with locked(postgres_url, batch[0].id):
            completing = asyncio.create_task(driver.jobs.complete(batch))
            async with asyncio.timeout(5):
                assert len((await driver.jobs.claim(wish())).jobs) == 1
            assert sent() == [BOTH, GENERAL]
            assert not completing.done()
        assert await completing == [Settled.OK] * 2


async def test_who_waits_for_several_jobs_and_who_exchanges_some_do_not_block_each_other(
    postgres_url,
):
    watching = await asyncpg.connect(postgres_url)
    async with hosts(postgres_url, "h", "g") as (driver, other):
        await driver.jobs.enqueue([job(id="a")])
        (first,) = await claimed(driver, 1)
        await driver.jobs.enqueue([job("apart", id="b"), job(id="c"), job(id="d")])
        async with locked(postgres_url, "a"):
            async with locked(postgres_url, "b"):
                # Its snapshot shows all three as ready; it takes them one by one.
                cancelling = asyncio.create_task(other.jobs.cancel(["b", "c", "d"], reason="x"))
                await until_blocked(watching, 1)
                (second,) = await claimed(driver, 1)
                completing = asyncio.create_task(driver.jobs.complete([first, second]))
                claiming = asyncio.create_task(driver.jobs.claim(wish()))
                await until_blocked(watching, 2)
            await asyncio.wait({cancelling}, timeout=0.3)
        assert await completing == [Settled.OK] * 2
        await cancelling
        await claiming
    # Sessions tell their figures when they end.
    met = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await watching.fetchval(met) == 0
    await watching.close()


async def test_what_is_done_stays_done_where_others_of_its_batch_are_not(postgres_url, monkeypatch):
    """Also where nobody could look it up any more."""
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue([*jobs(1, retention_us=1000), *jobs(2)])
        kept, lost = await claimed(driver, 2)
        tables = driver.jobs._tables
        fetch, general = tables.fetch, tables.text(job_sql.COMPLETE)

        async def tended_between(text, *args, write=True):
            if text == general:
                await asyncio.sleep(0.05)
                await driver.jobs.tend(limit=10)
            return await fetch(text, *args, write=write)

        monkeypatch.setattr(tables, "fetch", tended_between)
        stale = Completion(lost.id, Token(lost.token + 1), None)
        _, settled = await asyncio.gather(
            driver.jobs.claim(wish()), driver.jobs.complete([kept, stale])
        )
        assert settled == [Settled.OK, Settled.LOST]
        assert await driver.jobs.get(kept.id) is None


async def test_long_results_go_side_by_side_with_a_claim(postgres_url, monkeypatch):
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue(jobs(3))
        batch = [
            Completion(one.id, one.token, f'"{"x" * 60_000}"') for one in await claimed(driver, 2)
        ]
        sent = watch(driver, monkeypatch, NAMES)
        taken, settled = await asyncio.gather(
            driver.jobs.claim(wish()), driver.jobs.complete(batch)
        )
        assert sorted(sent()) == [CLAIM, KEPT]
        assert (len(taken.jobs), settled) == (1, [Settled.OK] * 2)
