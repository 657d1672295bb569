"""Many callers in one statement get what each would have got alone."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlive.drivers.sqlite import transaction
from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.drivers.sqlite.joint import Joint, runs_of
from outlive.errors import Fenced, StoreError
from outlive.model.lease import Grant, Held
from outlive.testing import ManualClock
from tests.unit.drivers.sqlite.support import TTL_US, ask, open_store

pytestmark = pytest.mark.whitebox

HOSTILE = ('"', "\\", '{"a":1}', "[0]", "'; --", "$[0]", "\N{SNOWMAN}\U0001f600", "a/b?c#d", "null")


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    opened = await open_store(tmp_path)
    yield opened
    await opened.close()


async def together(*calls: Any) -> list[Any]:
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def own(driver: SqliteDriver, *keys: str, owner: str = "web") -> list[Grant]:
    asking = (driver.leases.acquire(ask(key, f"{owner}/{n}")) for n, key in enumerate(keys))
    grants = await together(*asking)
    assert all(isinstance(grant, Grant) for grant in grants)
    return grants


def sabotage(tmp_path: Path, *, event: str, key: str, how: str) -> None:
    """Make each write of ``key`` fail, alone (ABORT) or with its whole transaction (ROLLBACK)."""
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as connection:
        connection.execute(
            f"CREATE TRIGGER sabotage BEFORE {event} ON outlive_lease WHEN NEW.key = '{key}' "
            f"BEGIN SELECT RAISE({how}, 'sabotaged'); END"
        )


def listen(driver: SqliteDriver) -> list[tuple[str, int]]:
    """Which topics are rung from now on, for which waiters."""
    rung: list[tuple[str, int]] = []
    driver.wakeups.subscribe(lambda wakeup: rung.append((wakeup.topic, wakeup.waiter)))
    return rung


async def until_rung(rung: list[tuple[str, int]]) -> None:
    for _ in range(200):
        if rung:
            break
        await asyncio.sleep(0.01)


def entries_kept(tmp_path: Path) -> int:
    """How long all histories are together, beyond what anybody is shown."""
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        return connection.execute("SELECT count(*) FROM outlive_lease_history").fetchone()[0]


def test_kinds_run_by_rank_and_others_keep_their_place():
    first = Joint(lambda *_: None, lambda *_: [], rank=0)
    second = Joint(lambda *_: None, lambda *_: [], rank=1)

    def plain(*_: Any) -> None:
        return None

    future: Any = None
    calls = [second, first, second, plain, second, first]
    entries = [(future, call, number) for number, call in enumerate(calls)]
    order = [[entry[2] for entry in run] for _, run in runs_of(entries)]
    assert order == [[1], [0, 2], [3], [5], [4]]


async def test_many_are_granted_in_one_statement(driver: SqliteDriver):
    seen: list[str] = []
    connection = driver.writer._transactions.connection
    connection.set_trace_callback(lambda text: seen.append(text.split(None, 1)[0]))
    grants = await own(driver, *(f"k{number}" for number in range(40)))
    assert [grant.key for grant in grants] == [f"k{number}" for number in range(40)]
    assert seen.count("INSERT") == 1
    seen.clear()
    assert await together(*(driver.leases.release(grant) for grant in grants)) == [None] * 40
    # Each trigger of it is traced under its name; done one by one, it would begin with UPDATE.
    assert "WITH" in seen
    assert "UPDATE" not in seen


async def told(directory: Path, seed: int) -> list[Any]:
    """A random history of batches: every answer, and how the keys ended up."""
    clock, dice = ManualClock(), random.Random(seed)
    driver = await open_store(directory, clock=clock)
    story: list[Any] = []
    grants: list[Grant] = []
    for turn in range(30):
        keys = [f"k{dice.randrange(12)}" for _ in range(dice.randrange(1, 16))]
        queue_us = dice.choice((0, TTL_US))
        asking = [ask(key, f"web/{turn}-{n}", queue_us=queue_us) for n, key in enumerate(keys)]
        answers = await together(*(driver.leases.acquire(request) for request in asking))
        story.append(answers)
        grants += [answer for answer in answers if isinstance(answer, Grant)]
        clock.advance(dice.choice((0.0, 0.1, 5.0, 40.0)))
        dice.shuffle(grants)
        ending = [grants.pop() for _ in range(dice.randrange(len(grants) + 1))]
        answers = await together(*(driver.leases.release(grant) for grant in ending))
        story.append([repr(answer) for answer in answers])
        clock.advance(dice.choice((0.0, 0.3)))
    for number in range(12):
        story.append(await driver.leases.get(f"k{number}"))
        story.append(await driver.leases.history(f"k{number}", limit=100))
    await driver.close()
    return story


@pytest.mark.parametrize("seed", range(8))
async def test_together_or_alone_the_story_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, seed: int
):
    joined = await told(tmp_path_factory.mktemp("joined"), seed)
    monkeypatch.setattr(transaction, "JOINT_LEAST", 10_000)
    assert joined == await told(tmp_path_factory.mktemp("alone"), seed)


async def test_names_go_through_unharmed(driver: SqliteDriver):
    asking = [ask(key, f'{key}"\\/{number}') for number, key in enumerate(HOSTILE)]
    grants = await together(*(driver.leases.acquire(request) for request in asking))
    assert [(g.key, g.owner) for g in grants] == [(r.key, r.owner) for r in asking]
    for request in asking:
        (record,) = await driver.leases.get(request.key)
        assert record.owner == request.owner
    assert await together(*map(driver.leases.release, grants)) == [None] * len(HOSTILE)


async def test_each_gets_its_own_ttl_and_metadata(driver: SqliteDriver):
    asking = [ask(f"k{n}", f"web/{n}", TTL_US + n % 3 * 1_000_000) for n in range(18)]
    grants = await together(*(driver.leases.acquire(request) for request in asking))
    assert [grant.ttl_us for grant in grants] == [request.ttl_us for request in asking]
    for request in asking:
        (record,) = await driver.leases.get(request.key)
        assert record.ttl_s == request.ttl_us / 1e6


async def test_of_two_who_ask_for_one_key_the_first_wins(driver: SqliteDriver):
    asking = [ask("same", f"web/{number}", queue_us=TTL_US) for number in range(8)]
    answers = await together(*(driver.leases.acquire(request) for request in asking))
    assert isinstance(answers[0], Grant)
    assert [held.owner for held in answers[1:]] == ["web/0"] * 7
    assert [held.ahead for held in answers[1:]] == list(range(7))


async def test_one_owner_may_ask_for_many_keys_and_twice_for_one(driver: SqliteDriver):
    asking = [ask(key, "web/1") for key in ("a", "b", "c", "a", "d", "e")]
    grants = await together(*(driver.leases.acquire(request) for request in asking))
    assert [grant.key for grant in grants] == ["a", "b", "c", "a", "d", "e"]
    assert grants[0].token == grants[3].token


async def test_refusals_waiters_and_semaphores_mix_with_grants(driver: SqliteDriver):
    await own(driver, "taken")
    held = await driver.leases.acquire(ask("taken", "late/1", queue_us=TTL_US))
    assert isinstance(held, Held)
    answers = await together(
        *(driver.leases.acquire(ask(f"k{number}", f"web/k{number}")) for number in range(6)),
        driver.leases.acquire(ask("taken", "web/x")),
        driver.leases.acquire(ask("taken", "late/1", waiter=held.waiter, queue_us=TTL_US)),
        driver.leases.acquire(ask("pool", "web/p1", limit=2)),
        driver.leases.acquire(ask("pool", "web/p2", limit=2)),
    )
    assert [type(answer) for answer in answers] == [Grant] * 6 + [Held] * 2 + [Grant] * 2
    assert answers[7].waiter == held.waiter
    assert {answers[8].slot, answers[9].slot} == {0, 1}


async def test_what_a_batch_gives_up_is_free_in_the_same_batch(driver: SqliteDriver):
    grants = await own(driver, *"abcde")
    answers = await together(
        *(driver.leases.acquire(ask(key, f"next/{key}")) for key in "abcde"),
        *(driver.leases.release(grant) for grant in grants),
    )
    assert [type(answer) for answer in answers] == [Grant] * 5 + [type(None)] * 5


async def test_a_stale_release_is_refused_alone(driver: SqliteDriver):
    grants = await own(driver, *"abcde")
    await driver.leases.break_lease("c", reason="test")
    answers = await together(*(driver.leases.release(grant) for grant in (*grants, grants[0])))
    assert answers[:2] == answers[3:5] == [None, None]
    assert isinstance(answers[2], Fenced)
    assert isinstance(answers[5], Fenced)


async def test_a_takeover_of_expired_keys_is_told_and_kept_in_the_history(tmp_path: Path):
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    await own(driver, *"abcdef")
    clock.advance(TTL_US / 1e6 + 1)
    grants = await own(driver, *"abcdef", owner="next")
    assert [grant.previous_owner for grant in grants] == [f"web/{number}" for number in range(6)]
    assert {grant.token for grant in grants} == {2}
    for key in "abcdef":
        present, ended = await driver.leases.history(key, limit=10)
        assert (present.owner[:4], ended.owner[:4], ended.ended) == ("next", "web/", "expired")
    await driver.close()


async def test_history_stays_bounded_however_it_is_released(driver: SqliteDriver, tmp_path: Path):
    for turn in range(230):
        grants = await own(driver, *"abcd", owner=f"turn{turn}")
        await together(*(driver.leases.release(grant) for grant in grants))
    for key in "abcd":
        assert len(await driver.leases.history(key, limit=1000)) == 100
    assert 4 * 100 <= entries_kept(tmp_path) <= 4 * 200


async def test_history_stays_bounded_however_grants_end(tmp_path: Path):
    """Of a lock that is broken or runs out, and of the slots of a semaphore."""
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    for turn in range(330):
        await driver.leases.acquire(ask("lock", f"turn{turn}/1"))
        if turn % 2:
            await driver.leases.break_lease("lock", reason="test")
        for slot in range(2):
            await driver.leases.acquire(ask("pool", f"turn{turn}/{slot}", limit=2))
        clock.advance(TTL_US / 1e6 + 1)
    assert 3 * 100 <= entries_kept(tmp_path) <= 3 * 201
    await driver.close()


@pytest.mark.parametrize("how", ["ABORT", "ROLLBACK"])
async def test_one_acquire_that_fails_does_not_take_the_others_along(
    driver: SqliteDriver, tmp_path: Path, how: str
):
    sabotage(tmp_path, event="INSERT", key="bad", how=how)
    keys = ("a", "b", "bad", "c", "d", "e")
    asking = (driver.leases.acquire(ask(key, f"web/{key}")) for key in keys)
    answers = dict(zip(keys, await together(*asking), strict=True))
    assert isinstance(answers.pop("bad"), StoreError)
    assert {key: type(answer) for key, answer in answers.items()} == dict.fromkeys("abcde", Grant)
    assert {grant.token for grant in answers.values()} == {1}
    assert await driver.leases.get("bad") == []


@pytest.mark.parametrize("how", ["ABORT", "ROLLBACK"])
async def test_one_release_that_fails_does_not_take_the_others_along(
    driver: SqliteDriver, tmp_path: Path, how: str
):
    grants = await own(driver, "a", "b", "bad", "c", "d", "e")
    sabotage(tmp_path, event="UPDATE", key="bad", how=how)
    answers = await together(*(driver.leases.release(grant) for grant in grants))
    assert isinstance(answers.pop(2), StoreError)
    assert answers == [None] * 5
    for key in "abcde":
        (record,) = await driver.leases.get(key)
        assert (record.owner, record.token) == (None, 1)


async def test_the_cancelled_are_left_out(driver: SqliteDriver):
    tasks = [
        asyncio.ensure_future(driver.leases.acquire(ask(f"k{number}", f"web/{number}")))
        for number in range(6)
    ]
    # Submitted by their first step, run by the flush after it.
    asyncio.get_running_loop().call_soon(tasks[3].cancel)
    answers = await together(*tasks)
    assert isinstance(answers[3], asyncio.CancelledError)
    assert await driver.leases.get("k3") == []
    for number in (0, 1, 2, 4, 5):
        (record,) = await driver.leases.get(f"k{number}")
        assert record.active


async def test_a_stale_release_takes_no_other_along(driver: SqliteDriver):
    grants = await own(driver, *"abcdef")
    held = await driver.leases.acquire(ask("c", "late/1", queue_us=TTL_US))
    assert isinstance(held, Held)
    await driver.leases.break_lease("e", reason="test")
    rung = listen(driver)
    answers = await together(*(driver.leases.release(grant) for grant in grants))
    assert [type(answer) for answer in answers] == [type(None)] * 4 + [Fenced, type(None)]
    for key in "abcdf":
        (ended,) = await driver.leases.history(key, limit=10)
        assert ended.ended == "released"
    await until_rung(rung)
    assert rung == [("lease/c", held.waiter)]


async def test_waiters_are_woken_by_a_release_among_many(driver: SqliteDriver):
    grants = await own(driver, *"abcdef")
    held = await driver.leases.acquire(ask("c", "late/1", queue_us=TTL_US))
    assert isinstance(held, Held)
    rung = listen(driver)
    await together(*(driver.leases.release(grant) for grant in grants))
    await until_rung(rung)
    assert rung == [("lease/c", held.waiter)]
