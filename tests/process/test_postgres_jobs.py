"""Jobs on PostgreSQL with many rivals, lost replies, open transactions and ending sessions."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict

import asyncpg
import pytest

from outlive.drivers.postgres import doubts
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.drivers.postgres.wakeups import channel_of
from outlive.errors import Fenced, OutcomeUnknown
from outlive.model.job import (
    Completion,
    Enqueued,
    Entry,
    Failure,
    JobFilter,
    JobState,
    OnDuplicate,
    QueueSettings,
    Settled,
)
from outlive.names import HostId
from tests.services.proxy import FaultProxy
from tests.unit.drivers.postgres.jobs import hosts, job, jobs, wish

pytestmark = [pytest.mark.service, pytest.mark.process]

CREW = ("a", "b", "c", "d", "e", "f")

# Statements may be waited for, not raced: a whole test is over within this.
PATIENCE_S = 20


def host_of(driver: PostgresDriver) -> str:
    return driver.jobs._claimer._tables.host


async def work_off(driver: PostgresDriver, limit: int, seen: list[tuple[str, int]]) -> None:
    while True:
        claimed = (await driver.jobs.claim(wish(limit, host=host_of(driver)))).jobs
        if not claimed:
            return
        seen += [(one.id, one.token) for one in claimed]
        settled = await driver.jobs.complete([Completion(one.id, one.token) for one in claimed])
        assert set(settled) == {Settled.OK}


async def test_many_claimers_take_everything_once(postgres_url) -> None:
    async with hosts(postgres_url, *CREW) as crew:
        made = jobs(1200)
        await crew[0].jobs.enqueue(made)
        seen: list[tuple[str, int]] = []
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for driver in crew:
                for limit in (1, 7, 50):
                    group.create_task(work_off(driver, limit, seen))
        assert Counter(id_ for id_, _ in seen) == Counter({one.id: 1 for one in made})
        assert len({token for _, token in seen}) == len(made)
        (queue,) = await crew[0].jobs.queues()
        assert queue.counts == {JobState.DONE: len(made)}


async def test_single_calls_that_come_together_share_statements(postgres_url) -> None:
    async with hosts(postgres_url, "a") as (driver,):
        made = jobs(300)
        entries = await asyncio.gather(*(driver.jobs.enqueue([one]) for one in made))
        assert entries == [[Enqueued(one.id, Entry.CREATED)] for one in made]
        claimed = (await driver.jobs.claim(wish(300, host="a"))).jobs
        done = await asyncio.gather(
            *(driver.jobs.complete([Completion(one.id, one.token)]) for one in claimed)
        )
        assert done == [[Settled.OK]] * 300


@pytest.fixture
def proxy(postgres_url):
    with FaultProxy.for_url(postgres_url) as running:
        yield running


@pytest.mark.parametrize("waits", [False, True])
async def test_a_claim_whose_reply_was_lost_comes_back(postgres_url, proxy, waits) -> None:
    async with hosts(proxy.url_of(postgres_url), "a") as (driver,):
        await driver.jobs.enqueue(jobs(3))
        if waits:
            # The general statement, as who found too little the last time asks.
            assert (await driver.jobs.claim(wish(4, host="a"))).jobs != ()
            await driver.jobs.enqueue(jobs(3))
        asked = wish(2, host="a", wait_us=1000 if waits else 0)
        proxy.drop_reply_after(b"picked AS")
        with pytest.raises(OutcomeUnknown):
            await driver.jobs.claim(asked)
        proxy.pass_through()
        again = {field: getattr(asked, field) for field in asked.__struct_fields__}
        repeated = type(asked)(**{**again, "again": True})
        first = (await driver.jobs.claim(repeated)).jobs
        second = (await driver.jobs.claim(repeated)).jobs
        assert first == second
        assert len(first) == 2
        claimed = await driver.jobs.list(
            JobFilter(states=(JobState.CLAIMED,)), after=None, limit=10
        )
        assert len(claimed) == (5 if waits else 2)
        settled = await driver.jobs.complete([Completion(one.id, one.token) for one in first])
        assert settled == [Settled.OK, Settled.OK]
        # Nothing of that request is claimed any more, so that it is a claim like any other.
        assert len((await driver.jobs.claim(repeated)).jobs) == 1


async def test_what_was_applied_before_its_reply_was_lost_is_the_same_again(
    postgres_url, proxy
) -> None:
    async with hosts(proxy.url_of(postgres_url), "a") as (driver,):
        made = jobs(2)
        proxy.drop_reply_after(b"INSERT INTO")
        with pytest.raises(OutcomeUnknown):
            await driver.jobs.enqueue(made)
        proxy.pass_through()
        again = [Enqueued(one.id, Entry.EXISTING) for one in made]
        assert await driver.jobs.enqueue(made) == again
        one, two = (await driver.jobs.claim(wish(2, host="a"))).jobs
        for call, member in (
            (driver.jobs.complete, Completion(one.id, one.token, "1")),
            (driver.jobs.fail, Failure(two.id, two.token, '"no"', 60_000_000)),
        ):
            proxy.drop_reply_after(b"SET state")
            with pytest.raises(OutcomeUnknown):
                await call([member])
            proxy.pass_through()
            assert await call([member]) == [Settled.OK]
        assert len(await driver.jobs.attempts(two.id)) == 1
        record = await driver.jobs.get(two.id)
        assert record is not None
        assert (record.state, record.attempts) == (JobState.RETRYING, 1)


async def test_ordering_keys_hold_while_everybody_enqueues_and_works(postgres_url) -> None:
    async with hosts(postgres_url, *CREW[:4]) as crew:
        running: set[str] = set()
        order: dict[str, list[int]] = defaultdict(list)
        total = 4 * 3 * 12

        async def enqueue(driver: PostgresDriver, number: int) -> None:
            for turn in range(12):
                made = [job(ordering_key=key, payload=json.dumps([number, turn])) for key in "xyz"]
                await driver.jobs.enqueue(made)

        async def work(driver: PostgresDriver) -> None:
            while sum(map(len, order.values())) < total:
                claimed = (await driver.jobs.claim(wish(2, host=host_of(driver)))).jobs
                for one in claimed:
                    assert one.ordering_key is not None
                    assert one.ordering_key not in running
                    running.add(one.ordering_key)
                await asyncio.sleep(0)
                for one in claimed:
                    order[str(one.ordering_key)].append(json.loads(one.payload))
                    running.remove(str(one.ordering_key))
                await driver.jobs.complete([Completion(one.id, one.token) for one in claimed])

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for number, driver in enumerate(crew):
                group.create_task(enqueue(driver, number))
                group.create_task(work(driver))
        for key in "xyz":
            for number in range(4):
                turns = [turn for sender, turn in order[key] if sender == number]
                assert turns == list(range(12))


@pytest.mark.parametrize("on_duplicate", list(OnDuplicate))
async def test_a_unique_key_has_one_live_job_whoever_comes(postgres_url, on_duplicate) -> None:
    async with hosts(postgres_url, *CREW[:4]) as crew:
        keys = [f"u{number}" for number in range(30)]

        async def enqueue(driver: PostgresDriver, *, backwards: bool) -> list[Enqueued]:
            made = [job(unique_key=key, on_duplicate=on_duplicate) for key in keys]
            return [*await driver.jobs.enqueue(made[::-1] if backwards else made)]

        async with asyncio.timeout(PATIENCE_S):
            outcomes = await asyncio.gather(
                *(enqueue(driver, backwards=at % 2 == 1) for at, driver in enumerate(crew))
            )
        live = await crew[0].jobs.list(JobFilter(states=(JobState.READY,)), after=None, limit=1000)
        assert Counter(found.unique_key for found in live) == Counter(dict.fromkeys(keys, 1))
        entries = Counter(outcome.entry for answers in outcomes for outcome in answers)
        losers = {
            OnDuplicate.REJECT: Entry.REJECTED,
            OnDuplicate.RETURN: Entry.EXISTING,
            OnDuplicate.REPLACE: Entry.REPLACED,
        }
        assert entries == {Entry.CREATED: 30, losers[on_duplicate]: 90}


async def test_a_claim_waits_for_who_ends_its_session_and_is_refused(postgres_url) -> None:
    async with hosts(postgres_url, "a") as (driver,):
        await driver.jobs.enqueue(jobs(1))
        peer = await asyncpg.connect(postgres_url)
        ending = peer.transaction()
        await ending.start()
        await peer.execute("SELECT FROM outlive.host FOR UPDATE")
        await peer.execute("UPDATE outlive.host SET ended_at = clock_timestamp()")
        claim = asyncio.ensure_future(driver.jobs.claim(wish(host="a")))
        await asyncio.wait({claim}, timeout=0.2)
        assert not claim.done()
        await ending.commit()
        with pytest.raises(Fenced):
            await claim
        (found,) = await driver.jobs.list(JobFilter(), after=None, limit=10)
        assert found.state is JobState.READY
        await peer.close()


async def test_nobody_is_notified_unless_somebody_waits(postgres_url) -> None:
    heard: list[str] = []
    all_heard = asyncio.Event()

    def hear(*message: object) -> None:
        heard.append(str(message[3]))
        if message[3] == "end":
            all_heard.set()

    listener = await asyncpg.connect(postgres_url)
    channel = channel_of("outlive", "n")
    await listener.add_listener(channel, hear)
    async with hosts(postgres_url, "a", "b") as (a, b):
        await a.jobs.enqueue(jobs(2))
        claimed = (await b.jobs.claim(wish(2, host="b"))).jobs
        await b.jobs.complete([Completion(one.id, one.token) for one in claimed])
        assert (await b.jobs.claim(wish(2, host="b", wait_us=30_000_000))).jobs == ()
        await a.jobs.enqueue(jobs(2))
        await a.jobs.enqueue(jobs(2))
        await listener.execute(f"NOTIFY {channel}, 'end'")
        async with asyncio.timeout(PATIENCE_S):
            await all_heard.wait()
    told = [json.loads(payload) for payload in heard if payload.startswith("{")]
    assert [(message["host"], message["topic"]) for message in told] == [("b", "work/q")]
    await listener.close()


async def test_who_is_about_to_wait_while_somebody_enqueues_looks_again_soon(
    postgres_url, monkeypatch
) -> None:
    async with hosts(postgres_url, "a") as (driver,):
        connection = await asyncpg.connect(postgres_url)
        tx = connection.transaction()
        await tx.start()
        await driver.jobs.enqueue_in(jobs(1), connection)
        answer = await driver.jobs.claim(wish(host="a", wait_us=60_000_000))
        assert answer.jobs == ()
        assert answer.next_due_s is not None
        assert answer.next_due_s < 0.1
        await tx.commit()
        assert len((await driver.jobs.claim(wish(host="a", wait_us=60_000_000))).jobs) == 1
        # Nobody is on his way any more, and the note is doubted no more.
        monkeypatch.setattr(doubts, "_LOOKS_S", ())
        nothing = await driver.jobs.claim(wish(host="a", wait_us=60_000_000))
        assert (nothing.jobs, nothing.next_due_s) == ((), None)
        await connection.close()


async def test_a_user_with_rights_on_the_tables_alone_can_work(postgres_url) -> None:
    async with hosts(postgres_url, "owner"):
        admin = await asyncpg.connect(postgres_url)
        await admin.execute(
            "CREATE ROLE plain_worker LOGIN; GRANT USAGE ON SCHEMA outlive TO plain_worker; "
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA outlive TO plain_worker"
        )
        try:
            async with hosts(postgres_url.replace("postgres@", "plain_worker@"), "a") as (driver,):
                await driver.jobs.enqueue([*jobs(2), job(delay_us=1)])
                claimed = (await driver.jobs.claim(wish(3, host="a"))).jobs
                assert len(claimed) == 3
                settled = await driver.jobs.fail(
                    [Failure(one.id, one.token, "{}", 0) for one in claimed]
                )
                assert set(settled) == {Settled.OK}
        finally:
            await admin.execute("DROP OWNED BY plain_worker; DROP ROLE plain_worker")
            await admin.close()


async def test_a_batch_with_more_ordering_keys_than_locks_is_one_step(postgres_url) -> None:
    async with hosts(postgres_url, "a") as (driver,):
        made = [job(ordering_key=f"k{number % 500}") for number in range(1000)]
        entries = await driver.jobs.enqueue(made)
        assert {one.entry for one in entries} == {Entry.CREATED}
        first = (await driver.jobs.claim(wish(1000, host="a"))).jobs
        assert [one.id for one in first] == [one.id for one in made[:500]]
        settled = await driver.jobs.complete([Completion(one.id, one.token) for one in first])
        assert set(settled) == {Settled.OK}
        second = (await driver.jobs.claim(wish(1000, host="a"))).jobs
        assert [one.id for one in second] == [one.id for one in made[500:]]


async def test_jobs_of_a_host_that_closed_are_taken_by_its_peers(postgres_url) -> None:
    async with hosts(postgres_url, "a", "b") as (a, b):
        await a.jobs.enqueue([*jobs(3), job(ordering_key="k"), job(ordering_key="k")])
        claimed = (await a.jobs.claim(wish(5, host="a"))).jobs
        assert len(claimed) == 4
        assert await b.jobs.reclaim(limit=10) == []
        await a.hosts.close(HostId("a"))
        lost = await b.jobs.reclaim(limit=10)
        assert {(one.id, one.state) for one in lost} == {
            (one.id, JobState.READY) for one in claimed
        }
        again = (await b.jobs.claim(wish(5, host="b"))).jobs
        assert {one.id for one in again} == {one.id for one in claimed}
        late = await a.jobs.complete([Completion(one.id, one.token) for one in claimed])
        assert set(late) == {Settled.LOST}


async def test_an_open_transaction_holds_up_the_claims_of_its_key_and_no_others(
    postgres_url,
) -> None:
    async with hosts(postgres_url, "h") as (driver,):
        await driver.jobs.enqueue([job(ordering_key="k"), *jobs(3)])
        held, *others = (await driver.jobs.claim(wish(4))).jobs
        assert held.ordering_key == "k"
        user = await asyncpg.connect(postgres_url)
        began = user.transaction()
        await began.start()
        await driver.jobs.enqueue_in([job(ordering_key="k")], user)
        stuck = asyncio.create_task(driver.jobs.complete([Completion(held.id, held.token)]))
        for other in others:
            settled = await driver.jobs.complete([Completion(other.id, other.token)])
            assert settled == [Settled.OK]
        assert not stuck.done()
        await began.commit()
        assert await stuck == [Settled.OK]
        assert len((await driver.jobs.claim(wish(4))).jobs) == 1
        await user.close()


async def test_repeats_in_a_queue_with_limits_count_once_and_never_block_each_other(
    postgres_url,
) -> None:
    async with hosts(postgres_url, "h", "i") as crew:
        first = crew[0].jobs
        # Both limits are met by what is claimed here, and by nothing that is claimed twice.
        limits = QueueSettings(name="q", concurrency=40, rate=40, rate_period_us=60_000_000)
        await first.put_queue(limits)
        await first.enqueue(jobs(60))
        found: list[tuple[str, int]] = []

        async def ask(driver: PostgresDriver, **more: object) -> None:
            claimed = (await driver.jobs.claim(wish(**more))).jobs
            found.extend((one.id, one.token) for one in claimed)

        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(ask(crew[0]))
                for driver in crew:
                    group.create_task(ask(driver, request=f"again{number}", again=True))
        assert len(found) == 60
        assert len(set(found)) == 40
        assert (await first.claim(wish())).jobs == ()
