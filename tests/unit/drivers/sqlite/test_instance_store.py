"""What is particular to instances in an SQLite file: joined writes, full disks, jobs, bells."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from outlive.drivers.sqlite import instance_moves
from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.drivers.sqlite.instance_committing import InstanceCommitting
from outlive.drivers.sqlite.instance_starting import INPUT_INLINE_MAX
from outlive.drivers.sqlite.transaction import Turn
from outlive.errors import Fenced, LeaseExpired, StoreUnavailable, UsageError
from outlive.model.instance import (
    START_MAX,
    Entry,
    Handback,
    InstanceFilter,
    InstanceStatus,
    Opened,
    Sent,
)
from outlive.model.job import Completion, Failure, OnDuplicate, QueueMode, QueueSettings
from outlive.names import HostId, InstanceId, JobId, Token
from outlive.ports.wakeups import Wakeup
from outlive.testing import ManualClock
from tests.unit.drivers.retention import IN_STEPS, removed_in_steps
from tests.unit.drivers.sqlite.support import (
    TTL_US,
    ask_for,
    flow,
    job,
    letter,
    open_session,
    open_store,
    owned,
    step,
    want,
)

pytestmark = pytest.mark.whitebox

DONE: dict[str, Any] = {"status": InstanceStatus.COMPLETED, "outcome": "1"}


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncGenerator[SqliteDriver, None]:
    opened = await open_store(tmp_path)
    await open_session(opened)
    yield opened
    await opened.close()


def oks(answers: Any) -> list[bool]:
    return [answer.ok for batch in answers for answer in batch]


async def test_commits_of_many_callers_join_and_one_refused_changes_nothing_for_the_others(
    driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.instances.start([owned(f"f{n}") for n in range(12)])
    joined: list[int] = []
    commit = InstanceCommitting.commit

    def counting(self: InstanceCommitting, turn: Turn, batches: Any) -> Any:
        joined.append(len(batches))
        return commit(self, turn, batches)

    monkeypatch.setattr(InstanceCommitting, "commit", counting)
    other = await open_store(driver.paths.main.parent, "host-2")
    instances = other.instances
    answers = await asyncio.gather(
        *(instances.commit([step(f"f{n}", 1)]) for n in range(10)),
        instances.commit([step("f10", 1, token=9)]),
        instances.commit([step("f11", 7)]),
        instances.commit([step("nobody", 1)]),
    )
    assert joined == [13]
    assert oks(answers) == [True] * 10 + [False] * 3
    for n in range(12):
        rows = await instances.history(InstanceId(f"f{n}"), after=0, limit=9)
        assert [row.version for row in rows] == ([1] if n < 10 else [])
    await other.close()


async def test_a_commit_sent_twice_at_once_is_made_once(driver: SqliteDriver) -> None:
    instances = driver.instances
    await instances.start([owned(f"f{n}") for n in range(5)])
    sends = (letter("f1"),)
    same = [instances.commit([step("f0", 1, sends=sends)]) for _ in range(3)]
    rival = instances.commit([step("f0", 1, commit="rival")])
    others = [instances.commit([step(f"f{n}", 1)]) for n in range(1, 5)]
    answers = await asyncio.gather(*same, rival, *others)
    assert oks(answers) == [True, True, True, False, True, True, True, True]
    assert len(await instances.history(InstanceId("f0"), after=0, limit=9)) == 1
    assert len(await instances.letters(InstanceId("f1"), after=0, limit=9)) == 1
    with pytest.raises(UsageError, match="two commits"):
        await instances.commit([step("f0", 2), step("f0", 3)])


async def test_a_full_disk_fails_one_commit_and_the_others_run_again(
    driver: SqliteDriver,
) -> None:
    instances = driver.instances
    await instances.start([owned(f"f{n}") for n in range(6)])
    connection = driver.writer._transactions.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 3}")
    large = '["' + "x" * 200_000 + '"]'
    outcomes = await asyncio.gather(
        *(instances.commit([step(f"f{n}", 1, **DONE)]) for n in range(3)),
        instances.commit([step("f3", 1, events=large, sends=(letter("f5"),))]),
        instances.commit([step("f4", 1)]),
        instances.start([owned("new")]),
        return_exceptions=True,
    )
    assert isinstance(outcomes[3], StoreUnavailable)
    assert "full" in str(outcomes[3])
    assert oks([*outcomes[:3], outcomes[4]]) == [True] * 4
    assert outcomes[5][0].entry is Entry.CREATED
    for n, version in enumerate([1, 1, 1, 0, 1, 0]):
        found = await instances.get(InstanceId(f"f{n}"))
        rows = await instances.history(InstanceId(f"f{n}"), after=0, limit=9)
        assert found is not None
        assert found.version == version
        assert len(rows) == version
    assert await instances.letters(InstanceId("f5"), after=0, limit=9) == []
    connection.execute("PRAGMA max_page_count=1000000")
    (again,) = await instances.commit([step("f3", 1, events=large, sends=(letter("f5"),))])
    assert again.ok
    assert len(await instances.letters(InstanceId("f5"), after=0, limit=9)) == 1


async def test_a_large_input_stands_apart_and_comes_along(driver: SqliteDriver) -> None:
    instances = driver.instances
    texts = ['"' + "x" * size + '"' for size in (10, INPUT_INLINE_MAX + 1, 100_000)]
    await instances.start([flow(f"f{n}", input=text) for n, text in enumerate(texts)])
    claimed = await instances.claim(ask_for())
    assert [one.input for one in claimed.instances] == texts
    # A new run may begin with a short one, and the next with a long one.
    for version, text in enumerate((texts[0], texts[2]), 1):
        (answer,) = await instances.commit([step("f2", version, restart=text)])
        assert answer.ok
        found = await instances.get(InstanceId("f2"))
        assert found is not None
        assert (found.input, found.base) == (text, version - 1)
        rows = await instances.history(InstanceId("f2"), after=0, limit=9)
        assert [row.version for row in rows] == [version]


async def test_a_session_that_does_not_live_owns_nothing_new(tmp_path: Path) -> None:
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    with pytest.raises(Fenced):
        await driver.instances.start([owned("a")])
    await open_session(driver)
    clock.advance(TTL_US / 1e6 + 1)
    starts = [driver.instances.start([owned("a")])]
    starts += [driver.instances.start([flow(f"f{n}")]) for n in range(5)]
    first, *others = await asyncio.gather(*starts, return_exceptions=True)
    # Those who shared the statement with it are started all the same.
    assert isinstance(first, LeaseExpired)
    assert all(other[0].entry is Entry.CREATED for other in others)
    with pytest.raises(LeaseExpired):
        await driver.instances.claim(ask_for())
    assert await driver.instances.get(InstanceId("a")) is None
    await driver.close()


async def test_what_a_dead_host_owned_is_claimed_with_a_greater_token(tmp_path: Path) -> None:
    one, two = await open_store(tmp_path, "host-1"), await open_store(tmp_path, "host-2")
    await open_session(one, "host-1")
    await open_session(two, "host-2")
    await one.instances.start([owned(f"f{n}") for n in range(5)])
    await one.instances.commit([step("f0", 1, due_at_us=2**60)])
    assert await two.instances.reclaim(limit=10) == []
    await one.hosts.close(HostId("host-1"))
    assert len(await two.instances.reclaim(limit=3)) == 3
    assert len(await two.instances.reclaim(limit=3)) == 2
    claimed = (await two.instances.claim(ask_for(host="host-2"))).instances
    assert sorted((c.id, c.token) for c in claimed) == [(f"f{n}", 3) for n in range(5)]
    assert oks([await one.instances.commit([step("f0", 2)])]) == [False]
    await one.close()
    await two.close()


async def test_more_than_one_call_may_bring_is_refused(driver: SqliteDriver) -> None:
    many = [flow(f"f{n}") for n in range(START_MAX + 1)]
    with pytest.raises(UsageError, match="at most"):
        await driver.instances.start(many)
    assert len(await driver.instances.start(many[:-1])) == START_MAX
    assert await driver.instances.count(InstanceFilter()) == {InstanceStatus.PENDING: START_MAX}


# -- jobs that answer -----------------------------------------------------------------------------


async def answers(driver: SqliteDriver, id_: str = "f") -> list[tuple[str, str, Any]]:
    found = await driver.instances.letters(InstanceId(id_), after=0, limit=99)
    return [(one.id, one.name, msgspec.json.decode(one.payload)) for one in found]


async def test_however_a_job_ends_its_instance_gets_a_letter(tmp_path: Path) -> None:
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    await open_session(driver)
    await open_session(driver, "host-2")
    await driver.instances.start([owned("f")])
    kinds: dict[str, dict[str, Any]] = {
        "done": {},
        "dead": {"max_attempts": 1},
        "cancelled": {"delay_us": 10},
        "expired": {"delay_us": 9_000_000, "expires_us": 1_000_000},
        "lost": {"max_losses": 0, "queue": "risky"},
        "replaced": {"unique_key": "u", "delay_us": 10},
    }
    jobs = [job(k, **more, instance=InstanceId("f"), step=f"{k}#0") for k, more in kinds.items()]
    assert oks([await driver.instances.commit([step("f", 1, jobs=tuple(jobs))])]) == [True]
    await driver.jobs.cancel([JobId("cancelled")], reason="no")
    await driver.jobs.enqueue([job("next", unique_key="u", on_duplicate=OnDuplicate.REPLACE)])
    (lost,) = (await driver.jobs.claim(want(1, "risky", host="host-2"))).jobs
    done, dead = (await driver.jobs.claim(want(2))).jobs
    await driver.jobs.complete([Completion(done.id, done.token, '{"paid":true}')])
    await driver.jobs.fail([Failure(dead.id, dead.token, '"broke"', None)])
    await driver.hosts.close(HostId("host-2"))
    await driver.jobs.reclaim(limit=10)
    clock.advance(2)
    await driver.jobs.tend(limit=10)
    assert lost.id == "lost"
    expired = "expired: not claimed within 1 s"
    lost_why = "lost too often: losses 1, max_losses 0, last host host-2"
    assert sorted(await answers(driver)) == [
        ("job/cancelled", "cancelled#0", {"state": "cancelled", "outcome": "no"}),
        ("job/dead", "dead#0", {"state": "dead", "outcome": "broke"}),
        ("job/done", "done#0", {"state": "done", "outcome": {"paid": True}}),
        ("job/expired", "expired#0", {"state": "dead", "outcome": expired}),
        ("job/lost", "lost#0", {"state": "dead", "outcome": lost_why}),
        ("job/replaced", "replaced#0", {"state": "cancelled", "outcome": None}),
    ]
    # One that is tried again by hand has answered already.
    await driver.jobs.retry([JobId("dead")])
    (again,) = [j for j in (await driver.jobs.claim(want(9))).jobs if j.id == "dead"]
    await driver.jobs.complete([Completion(again.id, again.token)])
    assert len(await answers(driver)) == len(kinds)
    await driver.close()


async def test_a_job_that_its_queue_does_not_take_is_answered_at_once(
    driver: SqliteDriver,
) -> None:
    await driver.instances.start([owned("f")])
    await driver.jobs.put_queue(QueueSettings(name="shut", mode=QueueMode.DRAINING))
    await driver.jobs.enqueue([job("first", unique_key="u")])
    refused = (
        job("a", "shut", instance=InstanceId("f"), step="a#0"),
        job("b", unique_key="u", instance=InstanceId("f"), step="b#0"),
    )
    await driver.instances.commit([step("f", 1, jobs=refused)])
    told = {
        "state": "cancelled",
        "outcome": "the queue rejected the job: draining or duplicate unique key",
    }
    assert await answers(driver) == [("job/a", "a#0", told), ("job/b", "b#0", told)]


async def test_a_job_of_an_instance_that_ended_or_never_was_ends_all_the_same(
    driver: SqliteDriver,
) -> None:
    await driver.instances.start([owned("f")])
    await driver.jobs.enqueue(
        [job(id_, instance=InstanceId(id_), step="s#0") for id_ in ("f", "nobody")]
    )
    await driver.instances.commit([step("f", 1, **DONE)])
    for one in (await driver.jobs.claim(want(2))).jobs:
        await driver.jobs.complete([Completion(one.id, one.token)])
    assert await answers(driver) == []


# -- mailboxes and bells --------------------------------------------------------------------------


async def test_mailboxes_are_counted_right_whatever_happens_to_letters(
    driver: SqliteDriver,
) -> None:
    instances = driver.instances
    await instances.start([owned("a"), owned("b"), flow("c")])
    await instances.send([letter(to, f"m{n}") for to in ("a", "b", "c") for n in range(4)])
    numbers = [one.number for one in await instances.letters(InstanceId("a"), after=0, limit=9)]
    await instances.commit([step("a", 1, consumed=(numbers[0], numbers[2], 999))])
    await instances.commit([step("b", 1, **DONE)])
    assert await instances.send([letter("a", "m0"), letter("b", "m9"), letter("b", "m0")]) == [
        Sent.DUPLICATE,
        Sent.ENDED,
        Sent.DUPLICATE,
    ]
    connection = driver.writer._transactions.connection

    def counted() -> tuple[Any, Any]:
        kept = connection.execute(
            "SELECT i.id, m.letters FROM outlive_mailbox AS m "
            "JOIN outlive_instance AS i ON i.number = m.instance ORDER BY 1"
        ).fetchall()
        unread = connection.execute(
            "SELECT i.id, count(*) FROM outlive_letter AS l JOIN outlive_instance AS i "
            "ON i.number = l.instance WHERE l.payload IS NOT NULL GROUP BY 1 ORDER BY 1"
        ).fetchall()
        return kept, unread

    assert counted() == ([("a", 2), ("c", 4)],) * 2
    left = await instances.letters(InstanceId("a"), after=0, limit=9)
    assert [one.number for one in left] == [numbers[1], numbers[3]]
    await instances.terminate(InstanceId("c"), outcome="1")
    await instances.purge([InstanceId("b"), InstanceId("c")])
    assert counted() == ([("a", 2)],) * 2
    gone = connection.execute("SELECT count(*) FROM outlive_letter").fetchone()
    assert gone == (4,)


class Listening:
    """What a driver hears, in order."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        driver.wakeups.subscribe(self._hear)

    def _hear(self, wakeup: Wakeup) -> None:
        self._heard.put_nowait(wakeup.topic)

    async def next(self) -> str:
        return await asyncio.wait_for(self._heard.get(), 5)


async def test_whoever_must_know_is_rung_in_other_drivers(tmp_path: Path) -> None:
    one, two = await open_store(tmp_path, "host-1"), await open_store(tmp_path, "host-2")
    await open_session(one, "host-1")
    await open_session(two, "host-2")
    heard = Listening(two)
    f = InstanceId("f")

    async def waits() -> None:
        asked = ask_for(5, host="host-2", request="w", wait_us=TTL_US)
        assert (await two.instances.claim(asked)).instances == ()

    await waits()
    await one.instances.start([flow("f")])
    assert await heard.next() == "instances/flow/order"
    (claimed,) = (await two.instances.claim(ask_for(1, host="host-2"))).instances
    await one.instances.send([letter("f")])
    assert await heard.next() == "mail/f"
    await one.instances.suspend(f)
    assert await heard.next() == "operate/f"
    await one.instances.resume(f)
    assert await heard.next() == "operate/f"
    job_of_f = job("j", instance=f, step="s#0")
    await two.instances.commit([step("f", 1, token=claimed.token, jobs=(job_of_f,))])
    (taken,) = (await one.jobs.claim(want(1, host="host-1"))).jobs
    await one.jobs.complete([Completion(taken.id, taken.token)])
    assert await heard.next() == "mail/f"
    await one.instances.ring([f])
    assert await heard.next() == "mail/f"
    await one.instances.start([owned("g", "host-1")])
    assert await two.instances.get(InstanceId("g"), wait_us=TTL_US)
    await one.instances.commit([step("g", 1, **DONE)])
    assert await heard.next() == "instance/g"
    await two.instances.release([Handback(f, claimed.token)])
    # It has letters: the next to wait is told at once that there is something to be had.
    await waits_for_other_names(two)
    await one.instances.start([flow("h", "other")])
    assert await heard.next() == "instances/flow/other"
    await one.instances.terminate(InstanceId("h"), outcome="1")
    await one.close()
    await two.close()


async def waits_for_other_names(driver: SqliteDriver) -> None:
    asked = ask_for(5, "other", host="host-2", request="w2", wait_us=TTL_US)
    assert (await driver.instances.claim(asked)).instances == ()


async def test_what_comes_due_is_heard_without_a_bell(tmp_path: Path) -> None:
    driver = await open_store(tmp_path)
    await open_session(driver)
    heard = Listening(driver)
    await driver.instances.start([flow("f", delay_us=150_000)])
    found = await driver.instances.claim(ask_for(5, wait_us=TTL_US))
    assert found.instances == ()
    assert found.next_due_s is not None
    assert 0 < found.next_due_s <= 0.15
    assert await heard.next() == "instances/flow/order"
    assert len((await driver.instances.claim(ask_for(5))).instances) == 1
    await driver.close()


async def test_a_reopened_instance_is_known_when_it_is_asked_for_again(
    driver: SqliteDriver,
) -> None:
    await driver.instances.start([owned("f")])
    f = InstanceId("f")
    await driver.instances.commit([step("f", 1, status=InstanceStatus.FAILED, outcome="1")])
    reopen = {"version": 2, "events": '["retried"]'}
    assert await driver.instances.reopen(f, **reopen) is Opened.CHANGED
    assert await driver.instances.reopen(f, **reopen) is Opened.CHANGED
    assert await driver.instances.reopen(f, version=2, events="[]") is Opened.REFUSED
    (claimed,) = (await driver.instances.claim(ask_for())).instances
    assert (claimed.version, claimed.token) == (2, Token(2))


async def test_an_ended_instance_leaves_nothing_behind_when_it_is_removed(
    driver: SqliteDriver,
) -> None:
    instances = driver.instances
    large = '"' + "x" * 5000 + '"'
    await instances.start([owned("f", input=large, retention_us=0)])
    await instances.send([letter("f")])
    assert await instances.get(InstanceId("f"), wait_us=TTL_US) is not None
    assert oks([await instances.commit([step("f", 1, **DONE)])]) == [True]
    assert await instances.tend(limit=10) == 1
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        for table in ("", "_input"):
            rows = connection.execute(f"SELECT * FROM outlive_instance{table}").fetchall()
            assert rows == []
        for table in ("history", "letter", "mailbox", "reply", "watcher"):
            assert connection.execute(f"SELECT * FROM outlive_{table}").fetchall() == []


async def test_an_empty_call_is_answered(driver: SqliteDriver) -> None:
    instances = driver.instances
    assert await instances.start([]) == []
    assert await instances.commit([]) == []
    assert await instances.send([]) == []
    assert await instances.release([]) == []


async def test_a_start_has_a_token_above_what_another_process_removed(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    (first,) = await driver.instances.start([owned("a")])
    assert first.token == Token(1)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("INSERT INTO outlive_instance_floor (namespace, token) VALUES ('default', 7)")
    (second,) = await driver.instances.start([owned("b")])
    (third,) = await driver.instances.start([owned("c")])
    assert (second.token, third.token) == (Token(8), Token(8))
    record = await driver.instances.get(InstanceId("c"))
    assert record is not None
    assert record.token == Token(8)


async def test_few_with_long_histories_are_removed_in_one_step(
    driver: SqliteDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostId("host-1")
    assert await removed_in_steps(driver, host, instance_moves, monkeypatch) == IN_STEPS
