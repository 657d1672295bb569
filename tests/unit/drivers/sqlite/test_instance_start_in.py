"""Instances started in the user's own transaction exist if and when it commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.errors import UsageError
from outlive.model.instance import Entry
from outlive.names import InstanceId
from outlive.ports.wakeups import Wakeup
from tests.unit.drivers.sqlite.openers import OPENERS, Opener, plain, store_with_work
from tests.unit.drivers.sqlite.support import (
    TTL_US,
    ask_for,
    flow,
    open_session,
    open_store,
    owned,
)

pytestmark = pytest.mark.whitebox


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncGenerator[SqliteDriver, None]:
    async with store_with_work(tmp_path) as opened:
        await open_session(opened)
        yield opened


@pytest.mark.parametrize("opener", OPENERS)
async def test_instances_and_the_users_rows_commit_together(
    driver: SqliteDriver, opener: Opener
) -> None:
    await driver.instances.start([flow("old", parent=InstanceId("up"))])
    large = '"' + "x" * 5000 + '"'
    wanted = [
        flow("a"),
        flow("b", input=large, history=("[1]", "[2]")),
        flow("old", request="another"),
        flow("old"),
        flow("a", request="twice"),
        flow("later", delay_us=60_000_000),
    ]
    async with opener(driver.paths.main) as tx:
        answers = await driver.instances.start_in(wanted, tx)
        assert await driver.instances.get(InstanceId("a")) is None
    assert [(one.id, one.entry, one.parent, one.token) for one in answers] == [
        ("a", Entry.CREATED, None, 0),
        ("b", Entry.CREATED, None, 0),
        ("old", Entry.EXISTING, "up", 0),
        ("old", Entry.CREATED, "up", 0),
        ("a", Entry.EXISTING, None, 0),
        ("later", Entry.CREATED, None, 0),
    ]
    claimed = (await driver.instances.claim(ask_for())).instances
    assert [(one.id, one.version) for one in claimed] == [("old", 0), ("a", 0), ("b", 2)]
    assert claimed[2].input == large
    rows = await driver.instances.history(InstanceId("b"), after=0, limit=9)
    assert [(row.version, row.events) for row in rows] == [(1, "[1]"), (2, "[2]")]
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        assert connection.execute("SELECT count(*) FROM work").fetchone() == (1,)


async def test_a_rollback_leaves_no_instance(driver: SqliteDriver) -> None:
    with closing(sqlite3.connect(driver.paths.main, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await driver.instances.start_in([flow("a")], connection)
        connection.execute("ROLLBACK")
    assert await driver.instances.get(InstanceId("a")) is None


async def test_outside_a_transaction_or_for_an_owner_nothing_is_started(
    driver: SqliteDriver,
) -> None:
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        with pytest.raises(UsageError, match="start needs an open transaction"):
            await driver.instances.start_in([flow("a")], connection)
        connection.execute("INSERT INTO work VALUES ('x')")
        with pytest.raises(UsageError, match="cannot have an owner"):
            await driver.instances.start_in([owned("a")], connection)
        connection.rollback()
    assert await driver.instances.get(InstanceId("a")) is None


async def test_a_host_that_waits_sees_that_the_file_has_changed(driver: SqliteDriver) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    other = await open_store(driver.paths.main.parent, "host-2")
    await open_session(other, "host-2")
    other.wakeups.subscribe(lambda wakeup: _note(heard, wakeup))
    asked = ask_for(5, host="host-2", wait_us=TTL_US)
    for id_ in ("a", "b"):
        assert (await other.instances.claim(asked)).instances == ()
        async with plain(driver.paths.main) as tx:
            await driver.instances.start_in([flow(id_)], tx)
        assert await asyncio.wait_for(heard.get(), 5) == "instances/flow/order"
        assert len((await other.instances.claim(asked)).instances) == 1
    await other.close()


def _note(heard: asyncio.Queue[str], wakeup: Wakeup) -> None:
    heard.put_nowait(wakeup.topic)
