"""Jobs on Redis on its bad days: lost replies, restarts, forgotten claims, a full server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
from msgspec.structs import replace

from outlive.drivers.redis.scripts import Script
from outlive.errors import Fenced, LeaseLost, OutcomeUnknown, OutliveError, StoreUnavailable
from outlive.model.job import Completion, Enqueued, Entry, Failure, JobState, Return, Settled
from tests.process.redis_drivers import Drivers
from tests.process.redis_workers import RedisWorker, done, job
from tests.services.proxy import FaultProxy
from tests.services.redis import FORGETFUL, RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]

TTL_S = 0.8


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    found = Drivers()
    yield found
    await found.close()


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", redis_server.port) as running:
        yield running


@pytest.fixture
async def distant(drivers, proxy, redis_url) -> RedisWorker:
    """A worker behind the proxy, whose scripts the server knows already."""
    worker = await RedisWorker(await drivers.open(proxy.url_of(redis_url))).open()
    await worker.jobs.enqueue([job(f"warm{n}", "warm") for n in range(3)])
    one, two, three = await worker.claim(3, "warm")
    await worker.jobs.complete(done(one))
    await worker.jobs.fail([Failure(two.id, two.token, '"e"')])
    await worker.jobs.release([Return(three.id, three.token)])
    return worker


async def retry(call):
    """The first answer of ``call`` from a server that comes back."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await call()
            except LeaseLost:
                raise
            except OutliveError:
                await asyncio.sleep(0.01)


async def claim_when_allowed(worker: RedisWorker):
    """The first job that is claimed; the answers before say when it makes sense to ask again."""
    async with asyncio.timeout(10):
        while True:
            answer = await worker.ask()
            if answer.jobs:
                return answer.jobs[0]
            assert answer.next_due_s is not None
            assert answer.next_due_s <= TTL_S
            await asyncio.sleep(answer.next_due_s / 2)
            await worker.hosts.renew(worker.session, worker.ttl_us)


def restart(server: RedisServer) -> None:
    server.crash()
    server.revive()


# -- lost replies -----------------------------------------------------------------------------


async def test_a_claim_whose_reply_was_lost_is_had_by_asking_again(distant, proxy) -> None:
    await distant.jobs.enqueue([job(f"j{n}") for n in range(5)])
    request = distant.request(3)
    proxy.drop_reply_after(request.request.encode())
    with pytest.raises(OutcomeUnknown):
        await distant.jobs.claim(request)
    again = replace(request, again=True)
    first = (await distant.jobs.claim(again)).jobs
    assert [each.id for each in first] == ["j0", "j1", "j2"]
    assert (await distant.jobs.claim(again)).jobs == first
    assert await distant.jobs.complete(done(*first)) == [Settled.OK] * 3
    assert [each.id for each in await distant.claim(9)] == ["j3", "j4"]


async def test_jobs_whose_reply_was_lost_are_added_once(distant, proxy) -> None:
    jobs = [job("lost-one", unique_key="u"), job("two")]
    proxy.drop_reply_after(b"lost-one")
    with pytest.raises(OutcomeUnknown):
        await distant.jobs.enqueue(jobs)
    existing = [Enqueued(each.id, Entry.EXISTING) for each in jobs]
    assert await distant.jobs.enqueue(jobs) == existing
    assert [each.id for each in await distant.claim(9)] == ["lost-one", "two"]


@pytest.mark.parametrize("how", ["complete", "fail", "release"])
async def test_a_settlement_whose_reply_was_lost_has_happened_once(distant, proxy, how) -> None:
    await distant.jobs.enqueue([job("the-lost")])
    (claimed,) = await distant.claim()
    what = {
        "complete": Completion(claimed.id, claimed.token, '"r"'),
        "fail": Failure(claimed.id, claimed.token, '"e"', 60_000_000),
        "release": Return(claimed.id, claimed.token),
    }
    settle = getattr(distant.jobs, how)
    proxy.drop_reply_after(b"the-lost")
    with pytest.raises(OutcomeUnknown):
        await settle([what[how]])
    assert await settle([what[how]]) == [Settled.OK]
    record = await distant.jobs.get(claimed.id)
    assert record.attempts == (how == "fail")
    others = {"complete", "fail", "release"} - {how}
    for other in others:
        assert await getattr(distant.jobs, other)([what[other]]) == [Settled.LOST]


# -- restarts ---------------------------------------------------------------------------------


async def test_a_log_keeps_jobs_claims_and_sessions(drivers, services) -> None:
    server = services.start(RedisServer())
    worker = await RedisWorker(await drivers.open(server.url)).open()
    await worker.jobs.enqueue([job("a"), job("b"), job("c", delay_us=60_000_000)])
    (claimed,) = await worker.claim()
    await asyncio.to_thread(restart, server)
    await retry(lambda: worker.hosts.renew(worker.session, worker.ttl_us))
    assert await worker.jobs.complete(done(claimed)) == [Settled.OK]
    (queue,) = await worker.jobs.queues()
    assert queue.counts == {JobState.DONE: 1, JobState.READY: 1, JobState.SCHEDULED: 1}


async def test_after_a_restart_nothing_is_claimed_for_the_ttl_of_a_session(
    drivers, services
) -> None:
    server = services.start(RedisServer())
    worker = await RedisWorker(await drivers.open(server.url), TTL_S).open()
    await worker.jobs.enqueue([job("a")])
    (claimed,) = await worker.claim()
    await worker.jobs.release([Return(claimed.id, claimed.token)])
    await asyncio.to_thread(restart, server)
    newcomer = await RedisWorker(await drivers.open(server.url)).open()
    answer = await newcomer.ask()
    assert answer.jobs == ()
    assert 0 < answer.next_due_s <= TTL_S
    said = [finding.what for finding in await newcomer.driver.check()]
    assert any("no job is claimed for another" in what for what in said)
    assert (await claim_when_allowed(newcomer)).token > claimed.token


async def test_claims_made_before_a_restart_are_given_again_meanwhile(drivers, services) -> None:
    server = services.start(RedisServer())
    worker = await RedisWorker(await drivers.open(server.url)).open()
    await worker.jobs.enqueue([job("a")])
    request = worker.request(again=True)
    claimed = await worker.jobs.claim(request)
    await asyncio.to_thread(restart, server)
    again = await retry(lambda: worker.jobs.claim(request))
    assert again.jobs == claimed.jobs


async def test_restart_wait_can_be_turned_off(drivers, services) -> None:
    server = services.start(RedisServer())
    url = f"{server.url}?restart_wait=false"
    worker = await RedisWorker(await drivers.open(url)).open()
    await worker.jobs.enqueue([job("a")])
    await asyncio.to_thread(restart, server)
    assert len(await retry(worker.claim)) == 1


async def test_a_claim_that_the_server_forgot_is_lost_and_the_next_token_is_greater(
    drivers, services
) -> None:
    # It comes back with what it was told to save, which is what a failover may do.
    server = services.start(RedisServer(settings={"appendonly": "no", "save": "3600 1"}))
    worker = await RedisWorker(await drivers.open(server.url), TTL_S).open()
    await worker.jobs.enqueue([job("a"), job("b")])
    server.command("SAVE")
    one, two = await worker.claim(2)
    await asyncio.to_thread(restart, server)
    assert await retry(lambda: worker.jobs.complete(done(one))) == [Settled.LOST]
    other = await RedisWorker(await drivers.open(server.url)).open()
    taken = [await claim_when_allowed(other), *await other.claim()]
    assert [each.id for each in taken] == ["a", "b"]
    assert min(each.token for each in taken) > max(one.token, two.token)
    assert await worker.jobs.complete(done(one, two)) == [Settled.LOST] * 2
    assert await other.jobs.complete(done(*taken)) == [Settled.OK] * 2


@pytest.mark.parametrize("how", ["flush", "restart"])
async def test_a_server_that_lost_everything_refuses_who_was_there_before(
    drivers, services, how
) -> None:
    server = services.start(RedisServer(settings=FORGETFUL))
    worker = await RedisWorker(await drivers.open(server.url), TTL_S).open()
    await worker.jobs.enqueue([job("a")])
    (claimed,) = await worker.claim()
    if how == "flush":
        server.command("FLUSHALL")
    else:
        await asyncio.to_thread(restart, server)
    assert await retry(lambda: worker.jobs.complete(done(claimed))) == [Settled.LOST]
    with pytest.raises(Fenced):
        await worker.hosts.renew(worker.session, worker.ttl_us)
    with pytest.raises(Fenced):
        await worker.claim()
    await worker.open()
    # Whoever enqueued it asks again, with the same id.
    await worker.jobs.enqueue([job("a")])
    again = await claim_when_allowed(worker)
    assert again.token > claimed.token
    assert await worker.jobs.complete(done(claimed)) == [Settled.LOST]
    assert await worker.jobs.complete(done(again)) == [Settled.OK]


async def test_crashes_under_load_lose_no_job_and_finish_none_twice(drivers, services) -> None:
    server = services.start(RedisServer(settings={"appendfsync": "always"}))
    url = f"{server.url}?restart_wait=false"
    workers = [await RedisWorker(await drivers.open(url)).open() for _ in range(3)]
    expected = [f"{number}-{turn}" for number in range(3) for turn in range(120)]
    finished: list[str] = []
    failed, crashed = 0, asyncio.Event()

    async def persist(call):
        nonlocal failed
        while True:
            try:
                return await call()
            except (StoreUnavailable, OutcomeUnknown):
                failed += 1
                await asyncio.sleep(0.01)

    async def produce(number: int) -> None:
        jobs = workers[number].jobs
        for turn in range(119):
            await persist(lambda turn=turn: jobs.enqueue([job(f"{number}-{turn}")]))
        # However quick the machine is, somebody asks while the server is away.
        await crashed.wait()
        await persist(lambda: jobs.enqueue([job(f"{number}-119")]))

    async def consume(number: int) -> None:
        worker = workers[number]
        while len(finished) < len(expected):
            request = worker.request(5, again=True)
            claimed = (await persist(lambda request=request: worker.jobs.claim(request))).jobs
            outcomes = await persist(lambda jobs=claimed: worker.jobs.complete(done(*jobs)))
            assert set(outcomes) <= {Settled.OK}
            finished.extend(each.id for each in claimed)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(produce(number))
            group.create_task(consume(number))
        for _ in range(2):
            await asyncio.sleep(0.15)
            await asyncio.to_thread(restart, server)
        crashed.set()
    assert sorted(finished) == sorted(expected)
    assert failed > 0


async def test_claims_of_a_session_whose_record_was_removed_are_taken_back(
    drivers, redis_server, redis_url
) -> None:
    worker = await RedisWorker(await drivers.open(redis_url)).open()
    await worker.jobs.enqueue([job("a")])
    (claimed,) = await worker.claim()
    assert await worker.jobs.reclaim(limit=10) == []
    redis_server.command("DEL", "outlive:{default}:hosts")
    (taken,) = await worker.jobs.reclaim(limit=10)
    assert (taken.id, taken.state) == ("a", JobState.READY)
    assert await worker.jobs.complete(done(claimed)) == [Settled.LOST]


async def test_a_large_orphanage_is_taken_back_in_parts(drivers, redis_url) -> None:
    worker = await RedisWorker(await drivers.open(redis_url)).open()
    await worker.jobs.enqueue([job(f"j{n}") for n in range(1300)])
    await worker.claim(1000)
    await worker.claim(300)
    await worker.hosts.close(worker.session)
    assert len(await worker.jobs.reclaim(limit=700)) == 700
    assert len(await worker.jobs.reclaim(limit=10_000)) == 600
    assert await worker.jobs.reclaim(limit=10) == []


# -- the server refuses -----------------------------------------------------------------------


async def test_a_full_server_takes_no_jobs_and_finishes_what_it_has(drivers, services) -> None:
    server = services.start(RedisServer())
    worker = await RedisWorker(await drivers.open(server.url)).open()
    await worker.jobs.enqueue([*(job(f"j{n}") for n in range(3)), job("due", delay_us=1)])
    server.command("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="memory is full"):
        await worker.jobs.enqueue([job("new"), job("newer")])
    await worker.hosts.renew(worker.session, worker.ttl_us)
    one, two, three, four = await worker.claim(4)
    assert await worker.jobs.complete(done(one)) == [Settled.OK]
    assert await worker.jobs.fail([Failure(two.id, two.token, '"e"', 0)]) == [Settled.OK]
    assert await worker.jobs.release([Return(three.id, three.token)]) == [Settled.OK]
    assert await worker.jobs.cancel([four.id], reason="enough") == ["requested"]
    assert (await worker.ask(9, wait_us=1_000_000)).jobs != ()
    await worker.hosts.close(worker.session)
    assert len(await worker.jobs.reclaim(limit=9)) == 3
    assert await worker.jobs.get("new") is None


async def test_a_killed_script_is_unavailable_and_has_done_nothing(drivers, services) -> None:
    server = services.start(RedisServer(settings={"lua-time-limit": "20"}))
    driver = await drivers.open(server.url)
    text = "while true do end"
    endless = Script(text, "0" * 40, writes=True)
    running = asyncio.ensure_future(driver._link.run(endless, 0))
    async with asyncio.timeout(10):
        # Each question is asked on a thread, which is the pause between two of them.
        while "NOTBUSY" in await asyncio.to_thread(server.command, "SCRIPT", "KILL"):
            pass
    with pytest.raises(StoreUnavailable, match="SCRIPT KILL"):
        await running


async def test_a_script_past_the_time_limit_is_not_cut_in_half(drivers, services) -> None:
    server = services.start(RedisServer(settings={"lua-time-limit": "1"}))
    worker = await RedisWorker(await drivers.open(server.url)).open()
    adding = asyncio.ensure_future(worker.jobs.enqueue([job(f"j{n}") for n in range(5000)]))
    while not adding.done():
        # Others are told to come back, and somebody tries to kill what has begun to write.
        said = await asyncio.to_thread(server.command, "SCRIPT", "KILL")
        assert said.startswith(("-NOTBUSY", "-UNKILLABLE", "+OK"))
        if said.startswith("+OK"):
            break
    try:
        await adding
    except StoreUnavailable:
        assert await worker.jobs.queues() == []
        return
    (queue,) = await worker.jobs.queues()
    assert queue.counts == {JobState.READY: 5000}
