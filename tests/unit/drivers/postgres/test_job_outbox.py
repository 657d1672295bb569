"""Jobs enqueued inside the caller's transaction exist if and when it commits, on every library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from outlive.drivers.postgres import doubts
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import UsageError
from outlive.model.job import Completion, Entry, JobFilter, OnDuplicate, Settled
from tests.unit.drivers.postgres.jobs import job, jobs, open_host, wish

pytestmark = [pytest.mark.service, pytest.mark.whitebox]


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    opened = await open_host(postgres_url)
    yield opened
    await opened.close()


async def stored(driver: PostgresDriver) -> list[str]:
    return [found.payload for found in await driver.jobs.list(JobFilter(), after=None, limit=100)]


async def all_kinds(driver: PostgresDriver, tx: object) -> None:
    """Plain, scheduled, unique and ordered jobs, in two calls."""
    plain = await driver.jobs.enqueue_in([*jobs(2), job(delay_us=60_000_000)], tx)
    assert [one.entry for one in plain] == [Entry.CREATED] * 3
    unique = job(unique_key="u", headers='{"é": "%s $1"}')
    twin = job(unique_key="u", on_duplicate=OnDuplicate.RETURN)
    keyed = await driver.jobs.enqueue_in(
        [unique, twin, job(ordering_key="k"), job(ordering_key="k")], tx
    )
    assert [one.entry for one in keyed] == [
        Entry.CREATED,
        Entry.EXISTING,
        Entry.CREATED,
        Entry.CREATED,
    ]
    assert keyed[1].id == unique.id


async def commits(
    driver: PostgresDriver, tx: object, commit: Callable[[], Awaitable[object]]
) -> None:
    """Nothing is there before the commit, and everything after it."""
    await all_kinds(driver, tx)
    assert await stored(driver) == []
    assert (await driver.jobs.claim(wish(10))).jobs == ()
    await commit()
    assert len(await stored(driver)) == 6
    claimed = (await driver.jobs.claim(wish(10))).jobs
    # Not the one that is scheduled, and not the second of the ordering key.
    assert len(claimed) == 4


async def test_asyncpg(driver: PostgresDriver, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    with pytest.raises(UsageError, match="open transaction"):
        await driver.jobs.enqueue_in(jobs(1), connection)
    tx = connection.transaction()
    await tx.start()
    await all_kinds(driver, connection)
    await tx.rollback()
    assert await stored(driver) == []
    tx = connection.transaction()
    await tx.start()
    await commits(driver, connection, tx.commit)
    await connection.close()


async def test_psycopg(driver: PostgresDriver, postgres_url: str) -> None:
    connection = await asyncio.to_thread(psycopg.connect, postgres_url)
    connection.row_factory = psycopg.rows.dict_row
    await all_kinds(driver, connection)
    connection.rollback()
    assert await stored(driver) == []
    await commits(driver, connection, lambda: asyncio.to_thread(connection.commit))
    connection.close()


async def test_psycopg_async(driver: PostgresDriver, postgres_url: str) -> None:
    connection = await psycopg.AsyncConnection.connect(postgres_url)
    await all_kinds(driver, connection)
    await connection.rollback()
    assert await stored(driver) == []
    await commits(driver, connection, connection.commit)
    await connection.close()


def sqlalchemy_url(url: str, library: str) -> str:
    return url.replace("postgresql://", f"postgresql+{library}://")


async def test_sqlalchemy(driver: PostgresDriver, postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(postgres_url, "psycopg"))
    with orm.Session(engine) as session:
        session.begin()
        await all_kinds(driver, session)
        session.rollback()
    assert await stored(driver) == []
    with engine.connect() as connection:
        connection.begin()
        await commits(driver, connection, lambda: asyncio.to_thread(connection.commit))
    engine.dispose()


@pytest.mark.parametrize("library", ["asyncpg", "psycopg"])
async def test_sqlalchemy_async(driver: PostgresDriver, postgres_url: str, library: str) -> None:
    engine = sqlalchemy_asyncio.create_async_engine(sqlalchemy_url(postgres_url, library))
    async with engine.connect() as connection:
        await connection.begin()
        await all_kinds(driver, connection)
        await connection.rollback()
    assert await stored(driver) == []
    async with sqlalchemy_asyncio.AsyncSession(engine) as session:
        await session.begin()
        await commits(driver, session, session.commit)
    await engine.dispose()


async def test_django(driver: PostgresDriver, postgres_url: str) -> None:
    from django.conf import settings
    from django.db import ConnectionHandler, connections

    parts = postgres_url.rpartition("/")
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts[2],
        "USER": "postgres",
        "HOST": "127.0.0.1",
        "PORT": parts[0].rpartition(":")[2],
    }
    if not settings.configured:
        settings.configure()
    loop = asyncio.get_running_loop()

    def run(work: Awaitable[object]) -> object:
        return asyncio.run_coroutine_threadsafe(work, loop).result(10)

    def case() -> None:
        from django.db import transaction

        connection = ConnectionHandler({"default": database}).create_connection("default")
        connections["default"] = connection
        with transaction.atomic():
            run(all_kinds(driver, connection))
            transaction.set_rollback(True)
        assert run(stored(driver)) == []
        with transaction.atomic():
            run(all_kinds(driver, connection))
        assert len(run(stored(driver))) == 6
        connection.close()

    # Django warns about blocking calls on an event loop; the application's own threads are what
    # a user has here.
    await asyncio.to_thread(case)


async def test_a_transaction_of_another_database_is_refused_and_lives_on(
    driver: PostgresDriver, postgres_server
) -> None:
    other = postgres_server.create_database()
    connection = await asyncpg.connect(other)
    async with connection.transaction():
        with pytest.raises(UsageError, match="another database"):
            await driver.jobs.enqueue_in(jobs(1), connection)
        assert await connection.fetchval("SELECT 1") == 1
    await connection.close()
    postgres_server.drop_database(other)


async def test_a_stranger_is_refused(driver: PostgresDriver) -> None:
    with pytest.raises(UsageError, match="enqueue takes"):
        await driver.jobs.enqueue_in(jobs(1), object())


async def test_an_ordering_key_needs_snapshots_of_its_own(
    driver: PostgresDriver, postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction(isolation="repeatable_read"):
        with pytest.raises(UsageError, match="READ COMMITTED"):
            await driver.jobs.enqueue_in([job(ordering_key="k")], connection)
        await driver.jobs.enqueue_in(jobs(1), connection)
    assert len(await stored(driver)) == 1
    await connection.close()


async def test_a_read_only_transaction_is_refused(
    driver: PostgresDriver, postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    tx = connection.transaction(readonly=True)
    await tx.start()
    with pytest.raises(UsageError, match="read-only"):
        await driver.jobs.enqueue_in(jobs(1), connection)
    await tx.rollback()
    await connection.close()


async def test_an_open_transaction_with_a_key_delays_only_that_key(
    driver: PostgresDriver, postgres_url: str
) -> None:
    await driver.jobs.enqueue([job(ordering_key="a"), job(ordering_key="b"), job()])
    one, two, plain = (await driver.jobs.claim(wish(3))).jobs
    connection = await asyncpg.connect(postgres_url)
    tx = connection.transaction()
    await tx.start()
    await driver.jobs.enqueue_in([job(ordering_key="a", payload="next")], connection)
    done = await driver.jobs.complete([Completion(two.id, two.token)])
    done = [*done, *await driver.jobs.complete([Completion(plain.id, plain.token)])]
    assert done == [Settled.OK, Settled.OK]
    waiting = asyncio.ensure_future(driver.jobs.complete([Completion(one.id, one.token)]))
    await asyncio.wait({waiting}, timeout=0.2)
    assert not waiting.done()
    await tx.commit()
    assert await waiting == [Settled.OK]
    (following,) = (await driver.jobs.claim(wish(3))).jobs
    assert following.payload == "next"
    await connection.close()


async def test_a_user_who_only_enqueues_needs_no_more_than_the_page_says(
    driver: PostgresDriver, postgres_url: str
) -> None:
    admin = await asyncpg.connect(postgres_url)
    await admin.execute(
        "CREATE ROLE plain_sender LOGIN; GRANT USAGE ON SCHEMA outlive TO plain_sender; "
        "GRANT SELECT, INSERT, UPDATE, DELETE ON outlive.job, outlive.job_attempt "
        "TO plain_sender; "
        "GRANT SELECT, UPDATE, DELETE ON outlive.waiting TO plain_sender; "
        "GRANT SELECT ON outlive.queue, outlive.store TO plain_sender"
    )
    connection = await asyncpg.connect(postgres_url.replace("postgres@", "plain_sender@"))
    try:
        tx = connection.transaction()
        await tx.start()
        await commits(driver, connection, tx.commit)
        async with connection.transaction():
            replacing = job(unique_key="v", on_duplicate=OnDuplicate.REPLACE)
            await driver.jobs.enqueue_in([replacing], connection)
    finally:
        await connection.close()
        await admin.execute("DROP OWNED BY plain_sender; DROP ROLE plain_sender")
        await admin.close()


@pytest.mark.parametrize("key", [None, "k"])
async def test_hosts_that_wait_are_not_stalled_by_it_and_hear_of_it_when_it_commits(
    driver: PostgresDriver, postgres_url: str, key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = asyncio.Queue[str]()
    driver.wakeups.subscribe(lambda wakeup: heard.put_nowait(wakeup.topic))
    # A new note is doubted.
    first = await driver.jobs.claim(wish(1, wait_us=120_000_000))
    assert first.next_due_s == pytest.approx(0.25, abs=0.25)
    monkeypatch.setattr(doubts, "_LOOKS_S", ())
    connection = await asyncpg.connect(postgres_url)
    tx = connection.transaction()
    await tx.start()
    await driver.jobs.enqueue_in([job(ordering_key=key)], connection)
    # The user takes his time; whoever waits meanwhile may leave his note again, or leave it as it
    # is: the job has seen it, so that there is nothing to look for.
    again = await asyncio.wait_for(driver.jobs.claim(wish(1, wait_us=60_000_000)), 3)
    assert again.next_due_s is None
    longer = await asyncio.wait_for(driver.jobs.claim(wish(1, wait_us=600_000_000)), 3)
    assert longer.next_due_s is not None
    assert longer.next_due_s < 1
    await tx.commit()
    assert await asyncio.wait_for(heard.get(), 10) == "work/q"
    await connection.close()


async def test_who_begins_to_wait_while_a_job_is_on_its_way_looks_until_it_came(
    driver: PostgresDriver, postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_url)
    tx = connection.transaction()
    await tx.start()
    await driver.jobs.enqueue_in([job()], connection)
    # It could see no note; the second look must not trust the one that stands by then.
    for _ in range(3):
        answer = await driver.jobs.claim(wish(1, wait_us=60_000_000))
        assert answer.jobs == ()
        assert answer.next_due_s is not None
        assert answer.next_due_s < 1
    await tx.commit()
    assert len((await driver.jobs.claim(wish(1, wait_us=60_000_000))).jobs) == 1
    await connection.close()
