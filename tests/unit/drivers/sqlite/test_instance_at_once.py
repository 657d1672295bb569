"""Instances that are started and advanced at once: as in company, or not at all."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from outlive.drivers.sqlite import writer
from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.drivers.sqlite.instance_starting import INPUT_INLINE_MAX
from outlive.errors import Fenced, LeaseExpired
from outlive.model.instance import Entry, InstanceStatus
from outlive.names import HostId, InstanceId
from outlive.ports.instance_store import InstanceStore, WritesAtOnce
from outlive.testing import ManualClock
from tests.unit.drivers.sqlite.support import TTL_US, flow, open_session, open_store, owned, step

pytestmark = pytest.mark.whitebox


@pytest.fixture
async def driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[SqliteDriver, None]:
    """A store that has just seen a lone write, on a disk that is never too slow for it."""
    monkeypatch.setattr(writer, "_INLINE_COMMIT_MAX_S", math.inf)
    opened = await open_store(tmp_path)
    await open_session(opened)
    await opened.instances.start([flow("first")])
    yield opened
    await opened.close()


def at_once(driver: SqliteDriver) -> WritesAtOnce:
    store: InstanceStore = driver.instances
    assert isinstance(store, WritesAtOnce)
    return store


async def test_one_that_is_started_at_once_is_there_and_owned(driver: SqliteDriver) -> None:
    started = at_once(driver).start_at_once(owned("f"))
    assert started is not None
    assert (started.id, started.entry, started.token) == ("f", Entry.CREATED, 1)
    found = await driver.instances.get(InstanceId("f"))
    assert found is not None
    assert (found.status, found.owner, found.token) == (InstanceStatus.RUNNING, "host-1", 1)


async def test_asked_again_it_is_the_same_and_another_request_finds_it_there(
    driver: SqliteDriver,
) -> None:
    store = at_once(driver)
    first = store.start_at_once(owned("f"))
    assert store.start_at_once(owned("f")) == first
    other = store.start_at_once(owned("f", name="other", request="another"))
    assert other is not None
    assert (other.entry, other.name, other.token) == (Entry.EXISTING, "order", 0)


async def test_one_with_a_large_input_is_started_whole(driver: SqliteDriver) -> None:
    large = f'"{"x" * INPUT_INLINE_MAX}"'
    assert at_once(driver).start_at_once(owned("f", input=large)) is not None
    found = await driver.instances.get(InstanceId("f"))
    assert found is not None
    assert found.input == large


async def test_a_session_that_has_ended_starts_nothing(driver: SqliteDriver) -> None:
    await driver.hosts.close(HostId("host-1"))
    with pytest.raises(Fenced):
        at_once(driver).start_at_once(owned("f"))
    assert await driver.instances.get(InstanceId("f")) is None


async def test_a_session_that_ran_out_starts_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    driver = await open_store(tmp_path, clock=clock)
    try:
        await open_session(driver)
        await driver.instances.start([flow("first")])
        clock.advance(TTL_US / 1e6)
        with pytest.raises(LeaseExpired):
            at_once(driver).start_at_once(owned("f"))
        assert await driver.instances.get(InstanceId("f")) is None
    finally:
        await driver.close()


async def test_nothing_is_started_where_that_would_mean_waiting(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    store = at_once(driver)
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert store.start_at_once(owned("f")) is None
        other.execute("ROLLBACK")
    asyncio.get_running_loop().call_soon(lambda: None)
    assert store.start_at_once(owned("f")) is None
    await asyncio.sleep(0)
    assert await driver.instances.get(InstanceId("f")) is None
    assert store.start_at_once(owned("f")) is not None


async def test_a_few_go_without_a_turn_and_the_next_is_left_to_who_gives_one(
    driver: SqliteDriver,
) -> None:
    store = at_once(driver)
    done = [n for n in range(20) if store.start_at_once(owned(f"f{n}")) is not None]
    assert done == list(range(6))
    await driver.instances.start([owned("next")])
    assert store.start_at_once(owned("f6")) is not None


async def test_starts_and_ends_by_turns_are_no_company(driver: SqliteDriver) -> None:
    store, ended = at_once(driver), 0
    for number in range(3):
        assert store.start_at_once(owned(f"f{number}")) is not None
        last = step(f"f{number}", 1, 1, status=InstanceStatus.COMPLETED, outcome="1")
        committed = store.commit_at_once(last)
        assert committed is not None
        ended += committed.ok
    assert ended == 3
    # The loop had no turn in all that time.
    assert store.start_at_once(owned("f3")) is None


async def test_nothing_is_done_at_once_beside_a_transaction_of_the_users(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as user:
        user.execute("BEGIN IMMEDIATE")
        await driver.instances.start_in([flow("theirs")], user)
        user.execute("COMMIT")
    assert at_once(driver).start_at_once(owned("f")) is None
