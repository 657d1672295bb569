"""What is special about jobs on Redis: the keys in the database, many at once, hostile texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.job import (
    Completion,
    Entry,
    Failure,
    JobFilter,
    JobState,
    QueueSettings,
    Return,
    Settled,
)
from tests.process.redis_drivers import Drivers
from tests.process.redis_workers import RedisWorker, done, job
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]

KEYS = "outlive:{default}:"


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    found = Drivers()
    yield found
    await found.close()


@pytest.fixture
async def worker(drivers, redis_url) -> RedisWorker:
    return await RedisWorker(await drivers.open(redis_url)).open()


def published(server: RedisServer) -> bool:
    return "cmdstat_publish" in server.command("INFO", "commandstats")


# -- many at once -----------------------------------------------------------------------------


async def test_several_connections_claim_nothing_twice(drivers, redis_url) -> None:
    workers = [await RedisWorker(await drivers.open(redis_url)).open() for _ in range(4)]
    await workers[0].jobs.enqueue([job(f"j{number}") for number in range(400)])
    seen: list[str] = []

    async def work(worker: RedisWorker, limit: int) -> None:
        while claimed := await worker.claim(limit):
            seen.extend(each.id for each in claimed)
            if len(seen) % 3 == 0:
                # Back to its place, and claimed once more by somebody.
                back = claimed[0]
                assert await worker.jobs.release([Return(back.id, back.token)]) == [Settled.OK]
                seen.remove(back.id)
                claimed = claimed[1:]
            assert set(await worker.jobs.complete(done(*claimed))) <= {Settled.OK}

    await asyncio.gather(*(work(worker, limit) for worker in workers for limit in (1, 3, 7)))
    assert sorted(seen) == sorted(f"j{number}" for number in range(400))
    (queue,) = await workers[0].jobs.queues()
    assert queue.counts == {JobState.DONE: 400}


async def test_a_crowd_that_came_due_together_is_claimed_in_order(worker) -> None:
    await worker.jobs.enqueue([job(f"{n:04d}", delay_us=200_000) for n in range(2500)])
    await asyncio.sleep(0.25)
    seen: list[str] = []
    while claimed := await worker.claim(1000):
        seen += (each.id for each in claimed)
    assert seen == [f"{n:04d}" for n in range(2500)]


async def test_ten_thousand_are_added_in_one_step_and_in_their_order(worker) -> None:
    entries = await worker.jobs.enqueue([job(f"{n:05d}") for n in range(10_000)])
    assert {entry.entry for entry in entries} == {Entry.CREATED}
    assert [each.id for each in await worker.claim(3)] == ["00000", "00001", "00002"]
    with pytest.raises(UsageError, match="10001"):
        await worker.jobs.enqueue([job(f"more{n}") for n in range(10_001)])
    (queue,) = await worker.jobs.queues()
    assert queue.counts == {JobState.READY: 9997, JobState.CLAIMED: 3}


async def test_a_listing_over_many_queues_skips_nothing(worker) -> None:
    everything = [job(f"j{n}", f"q{n % 150}") for n in range(900)]
    await worker.jobs.enqueue(everything)
    for claimed in (await worker.claim(1, "q7"), await worker.claim(2, "q9")):
        await worker.jobs.complete(done(*claimed))
    page, seen = await worker.jobs.list(JobFilter(), after=None, limit=70), []
    while page:
        seen += (record.id for record in page)
        page = await worker.jobs.list(JobFilter(), after=page[-1].cursor, limit=70)
    assert seen == [each.id for each in everything]
    assert len(await worker.jobs.queues()) == 150


async def test_a_cursor_of_something_else_is_refused(worker) -> None:
    with pytest.raises(UsageError, match="cursor"):
        await worker.jobs.list(JobFilter(), after="j1; drop", limit=1)


# -- what is refused --------------------------------------------------------------------------


async def test_what_redis_does_not_promise_is_refused_before_it_is_sent(worker) -> None:
    with pytest.raises(UnsupportedByDriver, match="ordering key"):
        await worker.jobs.enqueue([job("a"), job("b", ordering_key="k")])
    with pytest.raises(UnsupportedByDriver, match="limits"):
        await worker.jobs.put_queue(QueueSettings(name="q", concurrency=3))
    with pytest.raises(UnsupportedByDriver, match="limits"):
        await worker.jobs.put_queue(QueueSettings(name="q", rate=3))
    with pytest.raises(UnsupportedByDriver, match="transactions"):
        await worker.jobs.enqueue_in([job("a")], object())
    assert await worker.jobs.queues() == []


async def test_a_batch_that_the_server_would_not_buffer_is_refused(worker) -> None:
    payload = '"' + "x" * (1024 * 1024 - 2) + '"'
    with pytest.raises(UsageError, match="several calls"):
        await worker.jobs.enqueue([job(f"j{n}", payload=payload) for n in range(257)])
    assert await worker.jobs.queues() == []


async def test_an_instant_beyond_what_lua_can_count_is_brought_back(worker) -> None:
    far = round(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC).timestamp()) * 1_000_000
    await worker.jobs.enqueue([job("a", due_at_us=far), job("b", delay_us=far, expires_us=far)])
    assert await worker.claim() == ()
    for record in await worker.jobs.list(JobFilter(), after=None, limit=10):
        assert record.state is JobState.SCHEDULED
        assert record.due_at.year > 2200


async def test_text_that_is_not_unicode_is_refused(worker) -> None:
    for bad in (job("\udcff"), job("a", "\udcff"), job("a", payload='"\udcff"')):
        with pytest.raises(UsageError, match="Unicode"):
            await worker.jobs.enqueue([job("first"), bad])
    assert await worker.jobs.queues() == []


# -- hostile texts ----------------------------------------------------------------------------

# Everything that a text can hold: each byte, the ends of each range, and what Redis, Lua, JSON and
# our own keys use as signs.
ALL = "".join(map(chr, [*range(0x20, 0x7F), *range(0xA0, 0x250), 0xD7FF, 0xE000, 0xFFFD, 0x10FFFF]))
CONTROLS = "".join(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029]))
NAMES = ["a b", "{x}:y", "=", "", "*?[a]", "'..\\n", '"\\u0000"', "0000000000000001a", "ä😀", ALL]


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_is_only_a_name(worker, name) -> None:
    await worker.jobs.enqueue([job(f"id{name}", name, unique_key=name, payload='"1"')])
    await worker.jobs.enqueue([job(f"other{name}", f"{name}2", unique_key=name)])
    assert [queue.settings.name for queue in await worker.jobs.queues()] == sorted(
        [name, f"{name}2"]
    )
    (claimed,) = await worker.claim(5, name, worker=name)
    assert (claimed.id, claimed.queue, claimed.unique_key) == (f"id{name}", name, name)
    await worker.jobs.fail([Failure(claimed.id, claimed.token, f'"{name}"')])
    (trouble,) = await worker.jobs.attempts(claimed.id)
    assert (trouble.worker, trouble.error) == (name, f'"{name}"')
    (record,) = await worker.jobs.list(
        JobFilter(queue=name, unique_key=name, session=worker.session), after=None, limit=10
    )
    assert (record.id, record.claimed_by, record.error) == (claimed.id, name, f'"{name}"')
    assert await worker.jobs.purge([claimed.id]) == ["changed"]
    assert [queue.settings.name for queue in await worker.jobs.queues()] == [f"{name}2"]


async def test_any_text_comes_back_as_it_was(worker) -> None:
    text = f"{ALL}{CONTROLS}\r\n$5\r\nhello\r\n"
    await worker.jobs.enqueue([job("a", payload=text, headers=text, retry=text)])
    (claimed,) = await worker.claim(worker=text)
    assert (claimed.payload, claimed.headers, claimed.retry) == (text, text, text)
    await worker.jobs.fail([Failure(claimed.id, claimed.token, text, 0)])
    (trouble,) = await worker.jobs.attempts(claimed.id)
    assert (trouble.worker, trouble.error) == (text, text)
    (again,) = await worker.claim()
    await worker.jobs.complete([Completion(again.id, again.token, text)])
    record = await worker.jobs.get(again.id)
    assert (record.payload, record.result, record.error) == (text, text, text)


async def test_a_reason_to_cancel_is_json_that_can_be_read(worker) -> None:
    await worker.jobs.enqueue([job("a")])
    await worker.jobs.cancel(["a"], reason='say "no"/\\')
    assert (await worker.jobs.get("a")).error == '"say \\"no\\"/\\\\"'


async def test_a_payload_of_a_mebibyte_passes(worker) -> None:
    payload = '"' + "x" * (1024 * 1024 - 2) + '"'
    await worker.jobs.enqueue([job(f"j{n}", payload=payload) for n in range(5)])
    assert [each.payload == payload for each in await worker.claim(5)] == [True] * 5


# -- keys -------------------------------------------------------------------------------------


async def test_jobs_that_are_not_kept_leave_no_keys(worker, redis_server) -> None:
    before = redis_server.command("DBSIZE")
    jobs = [
        job("a", retention_us=0, unique_key="u"),
        job("b", retention_us=0, expires_us=60_000_000),
        job("c", retention_us=0, delay_us=60_000_000),
    ]
    await worker.jobs.enqueue(jobs)
    claimed = await worker.claim(3)
    await worker.jobs.fail([Failure(claimed[0].id, claimed[0].token, '"e"', 0)])
    await worker.jobs.complete(done(*claimed[1:], *await worker.claim()))
    await worker.jobs.cancel(["c"], reason="not any more")
    # The numbers of jobs stay.
    redis_server.command("DEL", f"{KEYS}numbers:jobs")
    assert redis_server.command("DBSIZE") == before


async def test_nobody_is_rung_who_does_not_wait(worker, redis_server) -> None:
    redis_server.command("CONFIG", "RESETSTAT")
    await worker.jobs.enqueue([job("a")])
    await worker.jobs.complete(done(*await worker.claim()))
    assert not published(redis_server)
    await worker.ask(wait_us=60_000_000)
    await worker.jobs.enqueue([job("b")])
    assert published(redis_server)


@pytest.mark.parametrize("damage", [("DEL",), ("SET", "?"), ("SET", '["x"]')])
async def test_a_job_whose_body_is_damaged_is_dead_and_holds_up_nobody(
    worker, redis_server, damage
) -> None:
    await worker.jobs.enqueue([job("a"), job("b")])
    redis_server.command(damage[0], f"{KEYS}body:a", *damage[1:])
    assert [each.id for each in await worker.claim(2)] == ["b"]
    bad, good = await worker.jobs.list(JobFilter(), after=None, limit=2)
    assert (bad.state, good.state) == (JobState.DEAD, JobState.CLAIMED)
    assert "damaged" in bad.error
    assert await worker.jobs.purge(["a"]) == ["changed"]
