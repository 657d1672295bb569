"""Instances on PostgreSQL: what its batches and its statements must not get wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlive.drivers.postgres import instance_desk
from outlive.drivers.postgres.doubts import Doubts
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.model.instance import (
    Entry,
    Handback,
    InstanceFilter,
    InstanceStatus,
    Opened,
    Reply,
    Sent,
)
from outlive.model.job import Completion, QueueMode, QueueSettings
from outlive.model.job import Entry as JobEntry
from outlive.names import HostId, InstanceId
from tests.unit.drivers.postgres.instances import ask, letter, mine, new, news, step
from tests.unit.drivers.postgres.jobs import hosts, job, open_host, until_blocked, wish
from tests.unit.drivers.retention import IN_STEPS, removed_in_steps

pytestmark = [pytest.mark.service, pytest.mark.whitebox]


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    opened = await open_host(postgres_url)
    yield opened
    await opened.close()


async def test_a_flow_lives_from_start_to_end(driver: PostgresDriver) -> None:
    store = driver.instances
    (started,) = await store.start([mine("a")])
    assert (started.entry, started.token) == (Entry.CREATED, 1)
    first = step(started, events='["one"]')
    (made,) = await store.commit([first])
    assert made.ok
    assert not made.suspended
    (again,) = await store.commit([first])
    assert again.ok
    last = step(first, events='["two"]', status=InstanceStatus.COMPLETED, outcome="7")
    assert (await store.commit([last]))[0].ok
    assert (await store.commit([last]))[0].ok
    assert not (await store.commit([step(last)]))[0].ok
    record = await store.get(InstanceId("a"))
    assert record is not None
    assert (record.status, record.outcome, record.version) == (InstanceStatus.COMPLETED, "7", 2)
    assert record.owner is None
    rows = await store.history(InstanceId("a"), after=0, limit=10)
    assert [(row.version, row.events, row.worker) for row in rows] == [
        (1, '["one"]', "h"),
        (2, '["two"]', "h"),
    ]


async def test_many_commits_at_once_share_statements(driver: PostgresDriver) -> None:
    store = driver.instances
    sent = 0
    fetch = driver._connections.fetch

    async def counting(*args, **more):
        nonlocal sent
        sent += 1
        return await fetch(*args, **more)

    driver._connections.fetch = counting
    started = await asyncio.gather(*(store.start([mine()]) for _ in range(64)))
    commits = [step(one[0]) for one in started]
    made = await asyncio.gather(*(store.commit([commit]) for commit in commits))
    assert all(one[0].ok for one in made)
    assert sent <= 4


async def test_letters_between_commits_of_one_batch_arrive(driver: PostgresDriver) -> None:
    store = driver.instances
    one, two = await store.start([mine("a"), mine("b")])
    made = await store.commit(
        [
            step(one, sends=(letter("b", "x"), letter("a", "self"), letter("gone"))),
            step(two, sends=(letter("a", "y"), letter("c", "child")), starts=(new("c"),)),
        ]
    )
    assert [answer.ok for answer in made] == [True, True]
    assert [got.id for got in await store.letters(InstanceId("a"), after=0, limit=9)] == [
        "self",
        "y",
    ]
    assert [got.id for got in await store.letters(InstanceId("b"), after=0, limit=9)] == ["x"]
    (child,) = (await store.claim(ask())).instances
    assert [got.id for got in child.letters] == ["child"]


async def test_a_refused_commit_brings_nothing_along(driver: PostgresDriver) -> None:
    store = driver.instances
    (one, two) = await store.start([mine("a"), mine("b")])
    stale = step(
        one,
        version=5,
        sends=(letter("b"),),
        starts=(new("c"),),
        jobs=(job(),),
        replies=(Reply("m", "1"),),
        restart="2",
        consumed=(1,),
    )
    answers = await store.commit([stale, step(two, replies=(Reply("m", "3"),))])
    assert [answer.ok for answer in answers] == [False, True]
    assert await store.letters(InstanceId("b"), after=0, limit=9) == []
    assert await store.get(InstanceId("c")) is None
    assert (await driver.jobs.claim(wish(9))).jobs == ()
    assert await store.reply(InstanceId("a"), "m") is None
    assert await store.reply(InstanceId("b"), "m") == "3"


async def test_a_commit_says_which_starts_others_had(driver: PostgresDriver) -> None:
    store = driver.instances
    await store.start([new("c")])
    (one,) = await store.start([mine("a")])
    commit = step(one, starts=(new("c"), new("d"), new("e", history=('["x"]', '["y"]'))))
    for _ in range(2):
        (made,) = await store.commit([commit])
        assert (made.ok, made.taken) == (True, ("c",))
    rows = await store.history(InstanceId("e"), after=0, limit=9)
    assert [row.events for row in rows] == ['["x"]', '["y"]']


async def test_a_new_run_keeps_the_mailbox_and_drops_the_past(driver: PostgresDriver) -> None:
    store = driver.instances
    (one,) = await store.start([mine("a")])
    first = step(one)
    await store.commit([first])
    await store.send([letter("a", "x"), letter("a", "y")])
    read, _ = await store.letters(InstanceId("a"), after=0, limit=9)
    second = step(first, restart="2", consumed=(read.number,), release=True)
    assert (await store.commit([second]))[0].ok
    (claimed,) = (await store.claim(ask())).instances
    assert (claimed.version, claimed.base, claimed.input) == (2, 1, "2")
    assert [got.id for got in claimed.letters] == ["y"]
    assert [row.version for row in await store.history(claimed.id, after=0, limit=9)] == [2]


async def test_an_ended_job_answers_its_instance(driver: PostgresDriver) -> None:
    store = driver.instances
    (one,) = await store.start([mine("a")])
    asked = job("gpu", instance=InstanceId("a"), step="s#0", retention_us=0)
    assert (await store.commit([step(one, jobs=(asked,))]))[0].ok
    (claimed,) = (await driver.jobs.claim(wish(1, "gpu"))).jobs
    await driver.jobs.complete([Completion(claimed.id, claimed.token, "42")])
    (got,) = await store.letters(InstanceId("a"), after=0, limit=9)
    assert (got.id, got.kind, got.name) == (f"job/{asked.id}", "step", "s#0")
    assert got.payload == '{"state":"done","outcome":42}'


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_job_that_a_draining_queue_refuses_is_answered(
    driver: PostgresDriver, keyed: bool
) -> None:
    await driver.jobs.put_queue(QueueSettings(name="q", mode=QueueMode.DRAINING))
    (one,) = await driver.instances.start([mine("a")])
    key = {"ordering_key": "k"} if keyed else {}
    first, second = (job(instance=InstanceId("a"), step="s", **key) for _ in range(2))
    assert (await driver.instances.commit([step(one, jobs=(first,))]))[0].ok
    (refused,) = await driver.jobs.enqueue([second])
    assert refused.entry is JobEntry.CLOSED
    got = await driver.instances.letters(InstanceId("a"), after=0, limit=9)
    assert [(one.id, one.payload.partition(",")[0]) for one in got] == [
        (f"job/{first.id}", '{"state":"cancelled"'),
        (f"job/{second.id}", '{"state":"cancelled"'),
    ]


async def test_claims_of_two_hosts_share_what_is_due(postgres_url: str) -> None:
    async with hosts(postgres_url, "h", "g") as (one, two):
        await one.instances.start(news(40))
        claims = await asyncio.gather(
            *(one.instances.claim(ask(10)) for _ in range(2)),
            *(two.instances.claim(ask(10, host="g")) for _ in range(2)),
        )
        ids = [got.id for claim in claims for got in claim.instances]
        assert len(ids) == len(set(ids)) == 40


@pytest.mark.parametrize("wait_us", [0, 1_000_000, 180_000_000])
async def test_what_others_were_taking_and_left_is_looked_for_soon(
    postgres_url: str, wait_us: int
) -> None:
    other = await asyncpg.connect(postgres_url)
    async with hosts(postgres_url, "h") as (driver,):
        store = driver.instances
        started = await store.start(news(3))
        async with other.transaction():
            lock = "SELECT FROM outlive.instance WHERE id = ANY($1) FOR NO KEY UPDATE"
            await other.execute(lock, [one.id for one in started[:2]])
            first = await store.claim(ask(2, wait_us=wait_us))
            again = await store.claim(ask(2, wait_us=wait_us))
        assert [one.id for one in first.instances] == [started[2].id]
        assert again.instances == ()
        assert first.next_due_s is not None
        assert again.next_due_s is not None
        assert (first.next_due_s <= 0.02, again.next_due_s <= 0.04) == (True, True)
        found = await store.claim(ask(2, wait_us=wait_us))
        assert {one.id for one in found.instances} == {one.id for one in started[:2]}
        alone = await store.claim(ask(2, wait_us=wait_us))
        assert (alone.instances, alone.next_due_s in (0.02, 0.04, 0.08)) == ((), False)
    await other.close()


async def test_what_somebody_keeps_locked_costs_one_look_for_each_claim(
    driver: PostgresDriver, postgres_url: str
) -> None:
    store, other = driver.instances, await asyncpg.connect(postgres_url)
    fetch, looks = driver._connections.fetch, 0

    async def counting(text, *args, **more):
        nonlocal looks
        looks += text in (store._claimer._claim_sql, store._claimer._waiting_sql)
        return await fetch(text, *args, **more)

    driver._connections.fetch = counting
    (kept,) = await store.start([new("kept")])
    async with other.transaction():
        await other.execute("SELECT FROM outlive.instance WHERE id = $1 FOR UPDATE", kept.id)
        pauses, costs = [], []
        for _ in range(12):
            looks = 0
            pauses.append((await store.claim(ask(1))).next_due_s)
            costs.append(looks)
        assert pauses[-1] == 10
        assert costs == [3, *[1] * 11]
        # Who gets some is let through: the next race that is lost may be a short one.
        for limit in (1, 2):
            await store.start([new(f"one of {limit}")])
            assert len((await store.claim(ask(limit))).instances) == 1
            assert (await store.claim(ask(0))).instances == ()
            assert (await store.claim(ask(1))).next_due_s in (0.02, 0.04)
    assert len((await store.claim(ask(1))).instances) == 1
    await other.close()


async def test_what_lies_in_a_mailbox_is_claimed_by_it(driver: PostgresDriver) -> None:
    store = driver.instances
    (one,) = await store.start([mine("a")])
    parked = step(one, release=True)
    await store.commit([parked])
    assert (await store.claim(ask())).instances == ()
    assert await store.send([letter("a", "x"), letter("a", "x"), letter("b")]) == [
        Sent.SENT,
        Sent.DUPLICATE,
        Sent.NOT_FOUND,
    ]
    (claimed,) = (await store.claim(ask())).instances
    assert (claimed.token, claimed.version) == (2, 1)
    assert (await store.claim(ask())).letters == ("a",)
    assert not (await store.commit([step(parked)]))[0].ok
    assert await store.release([Handback(claimed.id, claimed.token)]) == [True]
    assert await store.release([Handback(claimed.id, claimed.token)]) == [False]


async def test_operators_change_what_they_may(driver: PostgresDriver) -> None:
    store = driver.instances
    (one,) = await store.start([mine("a")])
    id_ = InstanceId("a")
    assert await store.suspend(id_) is Opened.CHANGED
    first = step(one)
    (made,) = await store.commit([first])
    assert made.suspended
    assert await store.resume(id_) is Opened.CHANGED
    assert await store.terminate(id_, outcome='"stop"') is Opened.CHANGED
    assert not (await store.commit([step(first)]))[0].ok
    assert await store.purge([InstanceId("b")]) == [Opened.NOT_FOUND]
    assert await store.reopen(id_, version=2, events='["r"]') is Opened.CHANGED
    assert await store.reopen(id_, version=2, events='["r"]') is Opened.CHANGED
    assert await store.purge([id_]) == [Opened.REFUSED]
    (claimed,) = (await store.claim(ask())).instances
    assert (claimed.token, claimed.version) == (3, 2)
    assert await store.terminate(id_, outcome="1") is Opened.CHANGED
    assert await store.count(InstanceFilter()) == {InstanceStatus.TERMINATED: 1}
    assert await store.purge([id_, id_]) == [Opened.CHANGED, Opened.CHANGED]
    assert await store.list(InstanceFilter(), after=None, limit=9) == []


async def test_a_letter_on_its_way_goes_with_the_instance_it_was_for(
    driver: PostgresDriver, postgres_url: str
) -> None:
    sender = await asyncpg.connect(postgres_url)
    for forget in (
        lambda: driver.instances.purge([InstanceId("i")]),
        lambda: driver.instances.tend(limit=10),
    ):
        (started,) = await driver.instances.start([mine("i", retention_us=0)])
        tx = sender.transaction()
        await tx.start()
        run = driver.instances._mail._tables.within(sender.fetch)
        await driver.instances._mail.deliver(run, [letter("i", "late")])
        done = step(started, status=InstanceStatus.COMPLETED, outcome="1")
        assert (await driver.instances.commit([done]))[0].ok
        forgetting = asyncio.ensure_future(forget())
        await asyncio.wait({forgetting}, timeout=0.3)
        await tx.commit()
        await forgetting
        await driver.instances.purge([started.id])
        await driver.instances.start([mine("i")])
        assert await driver.instances.letters(started.id, after=0, limit=9) == []
        assert await driver.instances.send([letter("i", "late")]) == [Sent.SENT]
        await driver.instances.terminate(started.id, outcome="1")
        await driver.instances.purge([started.id])
    await sender.close()


async def test_hosts_that_give_up_what_the_other_sends_to_do_not_block_each_other(
    postgres_url: str,
) -> None:
    watching = await asyncpg.connect(postgres_url)
    async with hosts(postgres_url, "a", "b") as (a, b):
        for _ in range(8):
            here = await a.instances.start([mine(host="a") for _ in range(60)])
            there = await b.instances.start([mine(host="b") for _ in range(60)])
            pairs = list(zip(here, there, strict=True))
            parks = [step(x, release=True, sends=(letter(y.id),)) for x, y in pairs]
            others = [step(y, release=True, sends=(letter(x.id),)) for x, y in pairs]
            answers = await asyncio.gather(
                *(a.instances.commit([park]) for park in parks),
                *(b.instances.commit([park]) for park in reversed(others)),
            )
            assert all(answer.ok for (answer,) in answers)
    # Sessions tell their figures when they end.
    met = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await watching.fetchval(met) == 0
    await watching.close()


@pytest.mark.parametrize("release", [False, True])
async def test_who_commits_and_sends_takes_its_rows_in_the_order_of_their_ids(
    postgres_url: str, release: bool
) -> None:
    other = await asyncpg.connect(postgres_url)
    async with hosts(postgres_url, "h") as (driver,):
        (one,) = await driver.instances.start([mine("a")])
        await driver.instances.start([mine("b")])
        lock = "SELECT FROM outlive.instance WHERE id = $1 FOR UPDATE NOWAIT"
        async with other.transaction():
            await other.execute(lock, "a")
            sending = step(one, sends=(letter("b"),), release=release)
            committing = asyncio.create_task(driver.instances.commit([sending]))
            await until_blocked(other, 1)
            # It waits for its own row, and has not taken the receiver's meanwhile.
            await other.execute(lock, "b")
        (answer,) = await committing
        assert answer.ok
    await other.close()


async def test_what_is_freed_while_a_host_writes_its_note_anew_is_looked_for_soon(
    postgres_url: str,
) -> None:
    dying, waiting = await open_host(postgres_url, "dying"), await open_host(postgres_url, "w")
    await dying.instances.start([mine("i", host="dying")])
    await waiting.instances.claim(ask(host="w", wait_us=10_000_000))
    await dying.hosts.close(HostId("dying"))
    heard: list[str] = []
    waiting.wakeups.subscribe(lambda wakeup: heard.append(wakeup.topic))
    reaping, writing = [await asyncpg.connect(postgres_url) for _ in range(2)]
    claimer = waiting.instances._claimer
    # That note is old: it is not doubted any more.
    claimer._doubts = Doubts()
    values = (claimer._tables.namespace, 10, claimer._tables.channel)
    async with reaping.transaction():
        # Its note is being written, so that who frees the instance passes over it; and who frees it
        # has not committed when the host looks.
        async with writing.transaction():
            await writing.execute("SELECT FROM outlive.watch FOR UPDATE")
            (freed,) = await reaping.fetch(claimer._reclaim_sql, *values)
            assert (freed["id"], freed["rung"]) == ("i", 0)
        found = await waiting.instances.claim(ask(host="w", wait_us=180_000_000))
        assert found.instances == ()
    # Nobody rings any more.
    assert found.next_due_s is not None
    assert found.next_due_s < 0.5
    (found,) = (await waiting.instances.claim(ask(host="w", wait_us=180_000_000))).instances
    assert (found.id, heard) == ("i", [])
    for each in (reaping, writing, dying, waiting):
        await each.close()


async def test_few_with_long_histories_are_removed_in_one_step(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        found = await removed_in_steps(driver, HostId("h"), instance_desk, monkeypatch)
    assert found == IN_STEPS
