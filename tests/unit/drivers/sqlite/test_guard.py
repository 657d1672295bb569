"""Guarding the user's own transaction, with each kind of connection that is accepted."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.errors import Fenced, StoreUnavailable, UsageError
from outlive.model.lease import Grant
from tests.unit.drivers.sqlite.openers import (
    OPENERS,
    Opener,
    django_wrapper,
    plain,
    store_with_work,
)
from tests.unit.drivers.sqlite.support import ask

pytestmark = pytest.mark.whitebox


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncGenerator[SqliteDriver, None]:
    async with store_with_work(tmp_path) as opened:
        yield opened


async def owned(driver: SqliteDriver, owner: str = "web/1") -> Grant:
    grant = await driver.leases.acquire(ask("key", owner))
    assert isinstance(grant, Grant)
    return grant


@pytest.mark.parametrize("opener", OPENERS)
async def test_the_newest_grant_passes_and_keeps_others_out(
    driver: SqliteDriver, opener: Opener
) -> None:
    grant = await owned(driver)
    async with opener(driver.paths.main) as tx:
        await driver.leases.guard(grant, tx)
        # Nobody can take the key, or even break it, until the transaction has ended.
        other = asyncio.create_task(driver.leases.break_lease("key", reason="impatience"))
        with pytest.raises(StoreUnavailable):
            await other
    await driver.leases.break_lease("key", reason="now it works")
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        assert connection.execute("SELECT count(*) FROM work").fetchone() == (1,)


@pytest.mark.parametrize("opener", OPENERS)
async def test_an_ended_grant_is_fenced(driver: SqliteDriver, opener: Opener) -> None:
    grant = await owned(driver)
    await driver.leases.release(grant)
    await owned(driver, "web/2")
    async with opener(driver.paths.main) as tx:
        with pytest.raises(Fenced) as caught:
            await driver.leases.guard(grant, tx)
    assert caught.value.reason == "fenced"


async def test_a_broken_grant_says_so(driver: SqliteDriver) -> None:
    grant = await owned(driver)
    await driver.leases.break_lease("key", reason="stuck")
    async with plain(driver.paths.main) as tx:
        with pytest.raises(Fenced) as caught:
            await driver.leases.guard(grant, tx)
    assert caught.value.reason == "broken"


async def test_a_rollback_leaves_the_grant_as_it_was(driver: SqliteDriver) -> None:
    grant = await owned(driver)
    with closing(sqlite3.connect(driver.paths.main, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await driver.leases.guard(grant, connection)
        connection.execute("ROLLBACK")
    assert (await driver.leases.renew(grant, 1_000_000)).token == grant.token


async def test_outside_a_transaction_is_refused(driver: SqliteDriver) -> None:
    grant = await owned(driver)
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        connection.execute("SELECT * FROM work").fetchall()
        with pytest.raises(UsageError, match="open transaction"):
            await driver.leases.guard(grant, connection)


async def test_autocommit_of_sqlalchemy_is_refused(driver: SqliteDriver) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    grant = await owned(driver)
    engine = sqlalchemy.create_engine(f"sqlite:///{driver.paths.main}")
    with engine.connect() as connection:
        with pytest.raises(UsageError, match="open transaction"):
            await driver.leases.guard(grant, connection)
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sqlalchemy.text("SELECT 1"))
        with pytest.raises(UsageError, match="autocommit"):
            await driver.leases.guard(grant, connection)
    engine.dispose()


async def test_django_outside_atomic_is_refused(driver: SqliteDriver) -> None:
    grant = await owned(driver)
    with django_wrapper(driver.paths.main) as wrapper:
        wrapper.connect()
        with pytest.raises(UsageError, match="atomic"):
            await driver.leases.guard(grant, wrapper)


async def test_another_database_is_refused(driver: SqliteDriver, tmp_path: Path) -> None:
    grant = await owned(driver)
    for name in (":memory:", str(tmp_path / "other.db")):
        with closing(sqlite3.connect(name, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            with pytest.raises(UsageError, match="another database"):
                await driver.leases.guard(grant, connection)


@pytest.mark.parametrize("tx", [None, object(), "BEGIN", 7])
async def test_what_is_no_transaction_is_refused(driver: SqliteDriver, tx: object) -> None:
    with pytest.raises(UsageError, match="guard cannot use"):
        await driver.leases.guard(await owned(driver), tx)


async def test_a_closed_connection_is_refused(driver: SqliteDriver) -> None:
    connection = sqlite3.connect(driver.paths.main)
    connection.close()
    with pytest.raises(UsageError):
        await driver.leases.guard(await owned(driver), connection)


async def test_a_lock_of_somebody_else_is_unavailable(driver: SqliteDriver) -> None:
    grant = await owned(driver)
    path = driver.paths.main
    with (
        closing(sqlite3.connect(path, isolation_level=None)) as other,
        closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as mine,
    ):
        other.execute("BEGIN IMMEDIATE")
        mine.execute("BEGIN")
        with pytest.raises(StoreUnavailable, match="locked"):
            await driver.leases.guard(grant, mine)


async def test_awaiting_the_store_inside_ones_own_guarded_transaction_is_refused_at_once(
    driver: SqliteDriver,
) -> None:
    grant = await owned(driver)
    async with plain(driver.paths.main) as tx:
        await driver.leases.guard(grant, tx)
        with pytest.raises(UsageError, match="wait for itself"):
            await driver.leases.renew(grant, 1_000_000)
    # With the transaction over, the same task may go on.
    await driver.leases.renew(grant, 1_000_000)


async def test_awaiting_the_store_inside_an_unknown_transaction_ends_with_advice(
    driver: SqliteDriver,
) -> None:
    grant = await owned(driver)
    async with plain(driver.paths.main):
        with pytest.raises(StoreUnavailable, match="this same task"):
            await driver.leases.renew(grant, 1_000_000)


async def test_a_guard_can_be_driven_without_an_event_loop(driver: SqliteDriver) -> None:
    grant = await owned(driver)

    def on_its_own_thread() -> None:
        with closing(sqlite3.connect(driver.paths.main)) as connection:
            connection.execute("INSERT INTO work VALUES ('x')")
            with pytest.raises(StopIteration):
                driver.leases.guard(grant, connection).send(None)
            connection.commit()

    await asyncio.to_thread(on_its_own_thread)


async def test_a_connection_in_other_hands_does_not_stop_its_last_guard(
    driver: SqliteDriver,
) -> None:
    grant = await owned(driver)
    with closing(sqlite3.connect(driver.paths.main, isolation_level=None)) as pooled:
        pooled.execute("BEGIN IMMEDIATE")
        await driver.leases.guard(grant, pooled)
        pooled.execute("COMMIT")
        # As if a pool had given the connection to another task, which reads and then writes.
        pooled.execute("BEGIN")
        pooled.execute("SELECT * FROM work").fetchall()
        await driver.leases.renew(grant, 1_000_000)
        pooled.execute("COMMIT")
        await driver.leases.renew(grant, 1_000_000)
