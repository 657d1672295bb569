"""Instances started in the caller's transaction exist if and when it commits, on every library."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from outlive.drivers.postgres import doubts
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import UsageError
from outlive.model.instance import Entry, InstanceFilter
from tests.unit.drivers.postgres.instances import ask, mine, new, news
from tests.unit.drivers.postgres.jobs import open_host
from tests.unit.drivers.postgres.test_job_outbox import sqlalchemy_url

pytestmark = [pytest.mark.service, pytest.mark.whitebox]


@dataclass
class Opened:
    """A user's connection inside a transaction, and how it ends."""

    tx: object
    commit: Callable[[], Awaitable[object]]
    rollback: Callable[[], Awaitable[object]]


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    opened = await open_host(postgres_url)
    yield opened
    await opened.close()


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Opened]:
    connection = await asyncpg.connect(url)
    tx = connection.transaction()
    await tx.start()
    yield Opened(connection, tx.commit, tx.rollback)
    await connection.close()


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Opened]:
    connection = await asyncio.to_thread(psycopg.connect, url)
    yield Opened(
        connection,
        lambda: asyncio.to_thread(connection.commit),
        lambda: asyncio.to_thread(connection.rollback),
    )
    connection.close()


@asynccontextmanager
async def by_psycopg_async(url: str) -> AsyncIterator[Opened]:
    connection = await psycopg.AsyncConnection.connect(url)
    yield Opened(connection, connection.commit, connection.rollback)
    await connection.close()


@asynccontextmanager
async def by_sqlalchemy(url: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy.create_engine(sqlalchemy_url(url, "psycopg"))
    with orm.Session(engine) as session:
        session.begin()
        yield Opened(
            session,
            lambda: asyncio.to_thread(session.commit),
            lambda: asyncio.to_thread(session.rollback),
        )
    engine.dispose()


@asynccontextmanager
async def by_sqlalchemy_async(url: str, library: str) -> AsyncIterator[Opened]:
    engine = sqlalchemy_asyncio.create_async_engine(sqlalchemy_url(url, library))
    async with engine.connect() as connection:
        await connection.begin()
        yield Opened(connection, connection.commit, connection.rollback)
    await engine.dispose()


KINDS = {
    "asyncpg": by_asyncpg,
    "psycopg": by_psycopg,
    "psycopg async": by_psycopg_async,
    "sqlalchemy": by_sqlalchemy,
    "sqlalchemy on asyncpg": lambda url: by_sqlalchemy_async(url, "asyncpg"),
    "sqlalchemy on psycopg": lambda url: by_sqlalchemy_async(url, "psycopg"),
}


async def stored(driver: PostgresDriver) -> int:
    return len(await driver.instances.list(InstanceFilter(), after=None, limit=100))


@pytest.mark.parametrize("kind", KINDS)
async def test_every_library(driver: PostgresDriver, postgres_url: str, kind: str) -> None:
    wanted = [*news(2), new(history=('["%s $1"]', "[]")), new(delay_us=60_000_000)]
    for ends in ("rollback", "commit"):
        async with KINDS[kind](postgres_url) as opened:
            started = await driver.instances.start_in(wanted, opened.tx)
            assert [one.entry for one in started] == [Entry.CREATED] * 4
            again = await driver.instances.start_in([wanted[0], new(wanted[1].id)], opened.tx)
            assert [one.entry for one in again] == [Entry.CREATED, Entry.EXISTING]
            assert await stored(driver) == 0
            await getattr(opened, ends)()
    assert await stored(driver) == 4
    assert len((await driver.instances.claim(ask())).instances) == 3


async def test_django(driver: PostgresDriver, postgres_url: str) -> None:
    from django.conf import settings
    from django.db import ConnectionHandler, connections

    server, _, name = postgres_url.rpartition("/")
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": "postgres",
        "HOST": "127.0.0.1",
        "PORT": server.rpartition(":")[2],
    }
    if not settings.configured:
        settings.configure()
    loop = asyncio.get_running_loop()

    def case() -> None:
        from django.db import transaction

        connection = ConnectionHandler({"default": database}).create_connection("default")
        connections["default"] = connection
        with transaction.atomic():
            work = driver.instances.start_in(news(2), connection)
            asyncio.run_coroutine_threadsafe(work, loop).result(10)
        connection.close()

    await asyncio.to_thread(case)
    assert await stored(driver) == 2


async def test_what_is_refused_leaves_the_transaction_alone(
    driver: PostgresDriver, postgres_url: str
) -> None:
    async with by_asyncpg(postgres_url) as opened:
        with pytest.raises(UsageError, match="cannot have an owner"):
            await driver.instances.start_in([mine()], opened.tx)
        await driver.instances.start_in(news(1), opened.tx)
        await opened.commit()
        with pytest.raises(UsageError, match="open transaction"):
            await driver.instances.start_in(news(1), opened.tx)
    with pytest.raises(UsageError, match="start takes"):
        await driver.instances.start_in(news(1), object())
    assert await stored(driver) == 1


async def test_hosts_that_wait_hear_of_it_when_it_commits(
    driver: PostgresDriver, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    driver.wakeups.subscribe(lambda wakeup: heard.put_nowait(wakeup.topic))
    # A new note is doubted.
    first = await driver.instances.claim(ask(wait_us=120_000_000))
    assert first.next_due_s == pytest.approx(0.25, abs=0.25)
    monkeypatch.setattr(doubts, "_LOOKS_S", ())
    async with by_asyncpg(postgres_url) as opened:
        await driver.instances.start_in(news(1), opened.tx)
        # It has seen the note that stands since: there is nothing to look for meanwhile.
        again = await driver.instances.claim(ask(wait_us=60_000_000))
        assert again.next_due_s is None
        await opened.commit()
    assert await asyncio.wait_for(heard.get(), 10) == "instances/flow/f"


async def test_who_begins_to_wait_while_something_is_on_its_way_looks_until_it_came(
    driver: PostgresDriver, postgres_url: str
) -> None:
    async with by_asyncpg(postgres_url) as opened:
        await driver.instances.start_in(news(1), opened.tx)
        # It could see no note; the second look must not trust the one that stands by then.
        for _ in range(3):
            answer = await driver.instances.claim(ask(wait_us=60_000_000))
            assert answer.instances == ()
            assert answer.next_due_s is not None
            assert answer.next_due_s < 1
        await opened.commit()
    assert len((await driver.instances.claim(ask(wait_us=60_000_000))).instances) == 1
