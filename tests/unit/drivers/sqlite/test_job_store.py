"""What is particular to jobs in an SQLite file: joined writes, full disks, the sidecar."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.drivers.sqlite.job_settling import JobSettling
from outlive.drivers.sqlite.transaction import Turn
from outlive.errors import Fenced, LeaseExpired, StoreUnavailable, UsageError
from outlive.model.job import (
    ENQUEUE_MAX,
    Completion,
    Failure,
    JobFilter,
    JobState,
    QueueSettings,
    Return,
    Settled,
)
from outlive.names import HostId, JobId, Token
from outlive.ports.wakeups import Wakeup
from outlive.testing import ManualClock
from tests.unit.drivers.sqlite.openers import user_transaction
from tests.unit.drivers.sqlite.support import TTL_US, job, open_session, open_store, want

pytestmark = pytest.mark.whitebox


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncGenerator[SqliteDriver, None]:
    opened = await open_store(tmp_path)
    await open_session(opened)
    yield opened
    await opened.close()


async def test_completions_of_many_callers_join_in_one_statement(
    driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.jobs.enqueue([job(f"j{n}") for n in range(20)])
    claimed = (await driver.jobs.claim(want(20))).jobs
    joined: list[int] = []
    complete = JobSettling.complete

    def counting(self: JobSettling, turn: Turn, batches: Any) -> Any:
        joined.append(len(batches))
        return complete(self, turn, batches)

    monkeypatch.setattr(JobSettling, "complete", counting)
    other = await open_store(driver.paths.main.parent, "host-2")
    wrong = Completion(claimed[0].id, Token(claimed[0].token + 1))
    answers = await asyncio.gather(
        *(other.jobs.complete([Completion(one.id, one.token, '"x"')]) for one in claimed),
        other.jobs.complete([wrong, Completion(claimed[1].id, claimed[1].token)]),
    )
    assert answers[:20] == [[Settled.OK]] * 20
    # The last caller was answered for its own jobs, one of them under a stale token.
    assert answers[20] == [Settled.LOST, Settled.OK]
    assert joined == [21]
    await other.close()


async def test_a_full_disk_undoes_the_whole_batch_and_recovers(driver: SqliteDriver) -> None:
    await driver.jobs.enqueue([job(f"j{n}") for n in range(5)])
    connection = driver.writer._transactions.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 2}")
    large = [job(f"big{n}", headers='"' + "x" * 5000 + '"') for n in range(50)]
    adding = driver.jobs.enqueue(large)
    claiming = driver.jobs.claim(want(5))
    outcomes = await asyncio.gather(adding, claiming, return_exceptions=True)
    assert isinstance(outcomes[0], StoreUnavailable)
    assert "full" in str(outcomes[0])
    # Whoever shared the transaction ran again without the one that filled the disk.
    assert len(outcomes[1].jobs) == 5
    assert await driver.jobs.list(JobFilter(states=(JobState.READY,)), after=None, limit=9) == []
    connection.execute("PRAGMA max_page_count=1000000")
    assert len(await driver.jobs.enqueue(large)) == 50


async def test_ten_thousand_go_in_at_once_and_no_more(driver: SqliteDriver) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0)
            ticks += 1

    ticking = asyncio.create_task(tick())
    jobs = [job(f"j{n}") for n in range(ENQUEUE_MAX)]
    assert len(await driver.jobs.enqueue(jobs)) == ENQUEUE_MAX
    ticking.cancel()
    # The event loop went on meanwhile.
    assert ticks > 10
    (queue,) = await driver.jobs.queues()
    assert queue.counts == {JobState.READY: ENQUEUE_MAX}
    with pytest.raises(UsageError, match="at most"):
        await driver.jobs.enqueue([*jobs, job("one-more")])


async def test_a_session_that_a_peer_ended_claims_nothing_more(tmp_path: Path) -> None:
    clock = ManualClock()
    one = await open_store(tmp_path, "host-1", clock=clock)
    two = await open_store(tmp_path, "host-2", clock=clock)
    await open_session(one, "host-1")
    await one.jobs.enqueue([job("a"), job("b")])
    (mine,) = (await one.jobs.claim(want())).jobs
    clock.advance(TTL_US / 1e6)
    with pytest.raises(LeaseExpired):
        await one.jobs.claim(want())
    # It ran out, but nobody has ended it: the claim is still its own.
    assert await two.jobs.reclaim(limit=10) == []
    assert [host.id for host in await two.hosts.reap(limit=10)] == ["host-1"]
    with pytest.raises(Fenced):
        await one.jobs.claim(want())
    assert [lost.id for lost in await two.jobs.reclaim(limit=10)] == ["a"]
    assert await one.jobs.complete([Completion(mine.id, mine.token)]) == [Settled.LOST]
    await one.close()
    await two.close()


async def test_a_session_lives_on_while_a_user_holds_the_file(tmp_path: Path) -> None:
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    await open_session(driver)
    async with user_transaction(driver.paths.main):
        for _ in range(4):
            clock.advance(0.75 * TTL_US / 1e6)
            await driver.hosts.renew(HostId("host-1"), TTL_US)
        assert list(await driver.hosts.reap(limit=10)) == []
    await driver.jobs.enqueue([job("a")])
    assert [one.id for one in (await driver.jobs.claim(want())).jobs] == ["a"]
    await driver.close()


async def test_claims_of_an_unknown_session_are_taken_back(driver: SqliteDriver) -> None:
    """The sidecar may be rebuilt when it is missing; what its sessions had is not stranded."""
    await driver.jobs.enqueue([job("a")])
    await driver.jobs.claim(want())
    with closing(sqlite3.connect(driver.paths.hosts)) as sidecar:
        sidecar.execute("DELETE FROM outlive_session")
        sidecar.commit()
    assert [lost.id for lost in await driver.jobs.reclaim(limit=10)] == ["a"]


async def test_a_session_of_another_clock_is_not_judged_by_this_one(tmp_path: Path) -> None:
    clock = ManualClock()
    theirs = await open_store(tmp_path, "host-1", clock=clock, domain="another boot")
    await open_session(theirs, "host-1")
    await theirs.close()
    clock.advance(2 * TTL_US / 1e6)
    ours = await open_store(tmp_path, "server", clock=clock, domain="this boot")
    await ours.jobs.enqueue([job("a")])
    assert len((await ours.jobs.claim(want(host="host-1"))).jobs) == 1
    await ours.close()


async def test_tokens_grow_when_an_id_is_used_again(driver: SqliteDriver) -> None:
    tokens: list[int] = []
    for _ in range(3):
        await driver.jobs.enqueue([job("again", retention_us=0)])
        for _ in range(4):
            (claimed,) = (await driver.jobs.claim(want())).jobs
            tokens.append(claimed.token)
            await driver.jobs.release([Return(claimed.id, claimed.token)])
        (claimed,) = (await driver.jobs.claim(want())).jobs
        tokens.append(claimed.token)
        await driver.jobs.complete([Completion(claimed.id, claimed.token)])
        assert await driver.jobs.get(claimed.id) is None
    assert tokens == sorted(set(tokens))


async def test_what_a_job_leaves_behind_goes_with_it(driver: SqliteDriver) -> None:
    await driver.jobs.enqueue([job("a", retention_us=1)])
    (claimed,) = (await driver.jobs.claim(want())).jobs
    await driver.jobs.fail([Failure(claimed.id, claimed.token, '"boom"')])
    assert len(await driver.jobs.attempts(claimed.id)) == 1
    assert (await driver.jobs.tend(limit=10)).pruned == 1
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        for table in ("outlive_job", "outlive_job_attempt"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


async def test_a_rate_counts_no_claims_from_a_clock_that_was_ahead(tmp_path: Path) -> None:
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    await open_session(driver)
    await driver.jobs.put_queue(QueueSettings(name="mail", rate=1, rate_period_us=10_000_000))
    await driver.jobs.enqueue([job("a"), job("b"), job("c")])
    assert len((await driver.jobs.claim(want(3))).jobs) == 1
    refused = await driver.jobs.claim(want(3))
    assert refused.jobs == ()
    assert refused.next_due_s == 10
    clock.jump_wall(-86_400)
    assert len((await driver.jobs.claim(want(3))).jobs) == 1
    await driver.close()


async def test_a_long_read_is_not_in_the_way_of_the_next_one(driver: SqliteDriver) -> None:
    await driver.jobs.enqueue([job(f"j{n}") for n in range(2000)])
    reading = asyncio.create_task(driver.jobs.queues())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    found = await driver.jobs.get(JobId("j1"))
    assert found is not None
    assert found.queue == "mail"


async def test_a_cursor_of_nowhere_is_refused(driver: SqliteDriver) -> None:
    with pytest.raises(UsageError, match="cursor"):
        await driver.jobs.list(JobFilter(), after="x", limit=1)


@pytest.mark.parametrize("state", [JobState.CLAIMED, JobState.DEAD])
async def test_listings_by_state_find_the_few_among_many(
    driver: SqliteDriver, state: JobState
) -> None:
    await driver.jobs.enqueue([job(f"j{n}") for n in range(100)])
    claimed = (await driver.jobs.claim(want(4))).jobs
    await driver.jobs.fail([Failure(one.id, one.token, '"x"') for one in claimed[:2]])
    wanted = JobFilter(states=(state,), session=HostId("host-1"), queue="mail")
    page = await driver.jobs.list(wanted, after=None, limit=1)
    rest = await driver.jobs.list(wanted, after=page[0].cursor, limit=9)
    here = claimed[:2] if state is JobState.DEAD else claimed[2:]
    assert [record.id for record in [*page, *rest]] == [one.id for one in here]


async def test_a_host_is_not_woken_for_what_the_limits_of_a_queue_hold_back(
    driver: SqliteDriver,
) -> None:
    heard: asyncio.Queue[Wakeup] = asyncio.Queue()
    driver.wakeups.subscribe(heard.put_nowait)
    for name in ("narrow", "slow", "open"):
        await driver.jobs.enqueue([job(f"{name}-{n}", name) for n in range(2)])
    await driver.jobs.put_queue(QueueSettings(name="narrow", concurrency=1))
    await driver.jobs.put_queue(QueueSettings(name="slow", rate=1, rate_period_us=3_600_000_000))
    for name in ("narrow", "slow"):
        found = await driver.jobs.claim(want(2, name, wait_us=30_000_000))
        assert len(found.jobs) == 1
    # The file is looked at after each of these, and only the last has something to say.
    await driver.jobs.claim(want(3, "open", wait_us=30_000_000))
    async with user_transaction(driver.paths.main) as tx:
        await driver.jobs.enqueue_in([job("more", "open")], tx)
    async with asyncio.timeout(10):
        assert await heard.get() == Wakeup("work/open")
    assert heard.empty()


async def test_only_jobs_whose_turn_it_is_ring(tmp_path: Path) -> None:
    waiting = [await open_store(tmp_path, f"host-{n}") for n in range(1, 5)]
    for number, host in enumerate(waiting, 1):
        name = f"host-{number}"
        await open_session(host, name)
        await host.jobs.claim(want(host=name, wait_us=30_000_000))
    sender = await open_store(tmp_path, "sender")
    await sender.jobs.enqueue([job(f"j{n}", ordering_key="k") for n in range(3)])
    with closing(sqlite3.connect(sender.paths.main)) as connection:
        left = connection.execute("SELECT host FROM outlive_job_waiter ORDER BY note").fetchall()
    # One job can be claimed: its host and one more are rung.
    assert left == [("host-2",), ("host-3",)]
    for host in (*waiting, sender):
        await host.close()
