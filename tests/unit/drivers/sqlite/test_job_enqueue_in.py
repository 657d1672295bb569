"""Jobs enqueued in the user's own transaction exist if and when it commits."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.errors import StoreUnavailable, UsageError
from outlive.model.job import Enqueued, Entry, JobState, OnDuplicate
from outlive.names import JobId
from outlive.ports.wakeups import Wakeup
from tests.unit.drivers.sqlite.openers import OPENERS, Opener, plain, store_with_work
from tests.unit.drivers.sqlite.support import job, open_session, open_store, want

pytestmark = pytest.mark.whitebox


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncGenerator[SqliteDriver, None]:
    async with store_with_work(tmp_path) as opened:
        await open_session(opened)
        yield opened


@pytest.mark.parametrize("opener", OPENERS)
async def test_jobs_and_the_users_rows_commit_together(
    driver: SqliteDriver, opener: Opener
) -> None:
    await driver.jobs.enqueue([job("old", unique_key="u"), job("other", unique_key="v")])
    async with opener(driver.paths.main) as tx:
        outcome = await driver.jobs.enqueue_in(
            [
                job("a"),
                job("b", ordering_key="k"),
                job("c", ordering_key="k"),
                job("new", unique_key="u", on_duplicate=OnDuplicate.REPLACE),
                job("twice", unique_key="v"),
                job("later", delay_us=60_000_000),
            ],
            tx,
        )
        assert await driver.jobs.get(JobId("a")) is None
    assert [(entry.id, entry.entry) for entry in outcome] == [
        ("a", Entry.CREATED),
        ("b", Entry.CREATED),
        ("c", Entry.CREATED),
        ("new", Entry.REPLACED),
        ("other", Entry.REJECTED),
        ("later", Entry.CREATED),
    ]
    found = await driver.jobs.claim(want(10))
    assert [claimed.id for claimed in found.jobs] == ["other", "a", "b", "new"]
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        assert connection.execute("SELECT count(*) FROM work").fetchone() == (1,)


async def test_a_rollback_leaves_no_job(driver: SqliteDriver) -> None:
    with closing(sqlite3.connect(driver.paths.main, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        await driver.jobs.enqueue_in([job("a")], connection)
        connection.execute("ROLLBACK")
    assert await driver.jobs.get(JobId("a")) is None
    assert await driver.jobs.enqueue([job("a")]) == [Enqueued(JobId("a"), Entry.CREATED)]


async def test_outside_a_transaction_nothing_is_enqueued(driver: SqliteDriver) -> None:
    with (
        closing(sqlite3.connect(driver.paths.main)) as connection,
        pytest.raises(UsageError, match="enqueue needs an open transaction"),
    ):
        await driver.jobs.enqueue_in([job("a")], connection)
    assert await driver.jobs.get(JobId("a")) is None


async def test_with_autocommit_nothing_is_enqueued(driver: SqliteDriver) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine(f"sqlite:///{driver.paths.main}")
    with engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(sqlalchemy.text("SELECT 1"))
        with pytest.raises(UsageError, match="autocommit"):
            await driver.jobs.enqueue_in([job("a")], connection)
    engine.dispose()
    assert await driver.jobs.get(JobId("a")) is None


async def test_another_file_is_refused(driver: SqliteDriver, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        with pytest.raises(UsageError, match="another database"):
            await driver.jobs.enqueue_in([job("a")], connection)


async def test_a_failure_half_way_leaves_nothing_of_it_in_the_transaction(
    driver: SqliteDriver,
) -> None:
    with closing(sqlite3.connect(driver.paths.main, isolation_level=None)) as connection:
        connection.execute(
            "CREATE TEMP TRIGGER trap BEFORE INSERT ON main.outlive_job WHEN NEW.id = 'b' "
            "BEGIN SELECT RAISE(ABORT, 'trapped'); END"
        )
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO work VALUES ('x')")
        with pytest.raises(StoreUnavailable, match="trapped"):
            await driver.jobs.enqueue_in([job("a"), job("b")], connection)
        connection.execute("COMMIT")
        assert connection.execute("SELECT count(*) FROM work").fetchone() == (1,)
    assert await driver.jobs.get(JobId("a")) is None


async def test_waiting_for_the_store_inside_that_transaction_is_refused(
    driver: SqliteDriver,
) -> None:
    async with plain(driver.paths.main) as tx:
        await driver.jobs.enqueue_in([job("a")], tx)
        with pytest.raises(UsageError, match="wait for itself"):
            await driver.jobs.enqueue([job("b")])
    await driver.jobs.enqueue([job("b")])


async def test_a_waiting_host_hears_of_it_after_the_commit(driver: SqliteDriver) -> None:
    heard: asyncio.Queue[Wakeup] = asyncio.Queue()
    driver.wakeups.subscribe(heard.put_nowait)
    assert (await driver.jobs.claim(want(wait_us=30_000_000))).jobs == ()
    async with plain(driver.paths.main) as tx:
        await driver.jobs.enqueue_in([job("a")], tx)
    async with asyncio.timeout(10):
        assert await heard.get() == Wakeup("work/mail")
    assert len((await driver.jobs.claim(want())).jobs) == 1


async def test_a_waiting_host_hears_when_a_job_comes_due(driver: SqliteDriver) -> None:
    heard: asyncio.Queue[Wakeup] = asyncio.Queue()
    driver.wakeups.subscribe(heard.put_nowait)
    assert (await driver.jobs.claim(want(wait_us=30_000_000))).jobs == ()
    await driver.jobs.enqueue([job("soon", delay_us=200_000)])
    async with asyncio.timeout(10):
        assert await heard.get() == Wakeup("work/mail")
    (claimed,) = (await driver.jobs.claim(want())).jobs
    assert claimed.id == "soon"
    record = await driver.jobs.get(claimed.id)
    assert record is not None
    assert record.state is JobState.CLAIMED


async def test_no_more_hosts_are_called_than_there_are_jobs_and_one(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    others = [await open_store(tmp_path, f"host-{n}") for n in (2, 3)]
    await driver.jobs.claim(want(wait_us=30_000_000))
    for number, other in enumerate(others, 2):
        await open_session(other, f"host-{number}")
        await other.jobs.claim(want(host=f"host-{number}", wait_us=30_000_000))
    async with plain(driver.paths.main) as tx:
        await driver.jobs.enqueue_in([job("a")], tx)
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        called = "SELECT host FROM outlive_job_waiter WHERE called > 0 ORDER BY note"
        assert connection.execute(called).fetchall() == [("host-1",), ("host-3",)]
    # Those who were called need no bell; the next job rings the one who was not.
    await driver.jobs.enqueue([job("b")])
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        left = connection.execute("SELECT host FROM outlive_job_waiter ORDER BY note").fetchall()
        assert left == [("host-1",), ("host-3",)]
    for other in others:
        await other.close()


async def test_it_can_be_driven_without_an_event_loop(driver: SqliteDriver) -> None:
    def on_its_own_thread() -> None:
        with closing(sqlite3.connect(driver.paths.main)) as connection:
            connection.execute("INSERT INTO work VALUES ('x')")
            with pytest.raises(StopIteration) as ended:
                driver.jobs.enqueue_in([job("a")], connection).send(None)
            assert ended.value.value == [Enqueued(JobId("a"), Entry.CREATED)]
            connection.commit()

    await asyncio.to_thread(on_its_own_thread)
    assert await driver.jobs.get(JobId("a")) is not None
