"""A guard works in every kind of transaction it accepts, and says no to all else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio

from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import Fenced, UsageError
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext
from tests.services.postgres import PostgresServer

pytestmark = [pytest.mark.service, pytest.mark.whitebox]


def request(owner: str, ttl_s: float = 30.0) -> AcquireRequest:
    return AcquireRequest("k", Owner(owner), round(ttl_s * 1e6), "{}", HostId("h"))


async def open_driver(url: str) -> PostgresDriver:
    context = DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="default", host=HostId("h")
    )
    return await PostgresFactory().open(parse_url(url), context)


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    driver = await open_driver(postgres_url)
    yield driver
    await driver.close()


@pytest.fixture
async def grant(driver: PostgresDriver) -> Grant:
    granted = await driver.leases.acquire(request("a/1"))
    assert isinstance(granted, Grant)
    return granted


async def is_fenced_after_break(driver: PostgresDriver, grant: Grant, tx: object) -> None:
    await driver.leases.break_lease("k", reason="test")
    with pytest.raises(Fenced):
        await driver.leases.guard(grant, tx)


async def test_asyncpg(driver: PostgresDriver, grant: Grant, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    with pytest.raises(UsageError):
        await driver.leases.guard(grant, connection)
    async with connection.transaction():
        await driver.leases.guard(grant, connection)
    async with connection.transaction():
        await is_fenced_after_break(driver, grant, connection)
        assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_asyncpg_from_a_pool(driver: PostgresDriver, grant: Grant, postgres_url: str) -> None:
    async with asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:
        async with pool.acquire() as connection, connection.transaction():
            await driver.leases.guard(grant, connection)
        with pytest.raises(UsageError):
            await driver.leases.guard(grant, pool)


async def test_psycopg(driver: PostgresDriver, grant: Grant, postgres_url: str) -> None:
    connection = await asyncio.to_thread(psycopg.connect, postgres_url)
    with connection.transaction():
        await driver.leases.guard(grant, connection)
    connection.rollback()
    connection.row_factory = psycopg.rows.dict_row
    connection.execute("SELECT 1")
    await driver.leases.guard(grant, connection)
    connection.rollback()
    connection.autocommit = True
    with pytest.raises(UsageError):
        await driver.leases.guard(grant, connection)
    with connection.transaction():
        await is_fenced_after_break(driver, grant, connection)
        assert connection.execute("SELECT 1 AS one").fetchone() == {"one": 1}
    connection.close()


async def test_psycopg_async(driver: PostgresDriver, grant: Grant, postgres_url: str) -> None:
    connection = await psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
    with pytest.raises(UsageError):
        await driver.leases.guard(grant, connection)
    async with connection.transaction():
        await driver.leases.guard(grant, connection)
    async with connection.transaction():
        await is_fenced_after_break(driver, grant, connection)
    await connection.close()


async def test_a_failed_transaction_is_not_open(
    driver: PostgresDriver, grant: Grant, postgres_url: str
) -> None:
    connection = await psycopg.AsyncConnection.connect(postgres_url)
    with pytest.raises(psycopg.Error):
        await connection.execute("SELECT 1 / 0")
    with pytest.raises(UsageError):
        await driver.leases.guard(grant, connection)
    await connection.close()


def sqlalchemy_url(url: str, library: str) -> str:
    return url.replace("postgresql://", f"postgresql+{library}://")


async def test_sqlalchemy(driver: PostgresDriver, grant: Grant, postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(sqlalchemy_url(postgres_url, "psycopg"))
    with engine.connect() as connection:
        with pytest.raises(UsageError):
            await driver.leases.guard(grant, connection)
        with connection.begin():
            await driver.leases.guard(grant, connection)
    with orm.Session(engine) as session, session.begin():
        await driver.leases.guard(grant, session)
    with engine.begin() as connection:
        await is_fenced_after_break(driver, grant, connection)
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
    engine.dispose()


async def test_sqlalchemy_in_autocommit_is_not_open(
    driver: PostgresDriver, grant: Grant, postgres_url: str
) -> None:
    url = sqlalchemy_url(postgres_url, "psycopg")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.begin() as connection, pytest.raises(UsageError):
        await driver.leases.guard(grant, connection)
    engine.dispose()


@pytest.mark.parametrize("library", ["asyncpg", "psycopg"])
async def test_sqlalchemy_async(
    driver: PostgresDriver, grant: Grant, postgres_url: str, library: str
) -> None:
    engine = sqlalchemy_asyncio.create_async_engine(sqlalchemy_url(postgres_url, library))
    async with engine.connect() as connection:
        with pytest.raises(UsageError):
            await driver.leases.guard(grant, connection)
    async with engine.begin() as connection:
        await driver.leases.guard(grant, connection)
    async with sqlalchemy_asyncio.AsyncSession(engine) as session, session.begin():
        await driver.leases.guard(grant, session)
    async with engine.begin() as connection:
        await is_fenced_after_break(driver, grant, connection)
    await engine.dispose()


async def test_django(driver: PostgresDriver, grant: Grant, postgres_url: str) -> None:
    from django.conf import settings
    from django.db import connections, transaction

    parts = postgres_url.rpartition("/")
    port = parts[0].rpartition(":")[2]
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts[2],
        "USER": "postgres",
        "HOST": "127.0.0.1",
        "PORT": port,
    }
    if not settings.configured:
        settings.configure()
    # Django warns about blocking calls on an event loop; the application's own threads are what
    # a user has here, so the transaction is driven from one.
    await asyncio.to_thread(_django_case, connections, transaction, database, (driver, grant))


def _django_case(
    connections: object, transaction: object, database: dict[str, str], subject: object
) -> None:
    from django.db import ConnectionHandler

    driver, grant = subject
    connection = ConnectionHandler({"default": database}).create_connection("default")
    run = _on_the_loop_of(driver)
    with pytest.raises(UsageError):
        run(driver.leases.guard(grant, connection))
    connections["default"] = connection
    with transaction.atomic():
        run(driver.leases.guard(grant, connection))
    with transaction.atomic():
        run(is_fenced_after_break(driver, grant, connection))
    connection.close()


def _on_the_loop_of(driver: PostgresDriver) -> Callable[..., object]:
    loop = driver.wakeups._task.get_loop()
    return lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(10)


async def test_a_takeover_waits_for_the_guard_and_renewals_do_not(
    driver: PostgresDriver, postgres_url: str
) -> None:
    granted = await driver.leases.acquire(request("a/1", ttl_s=0.3))
    assert isinstance(granted, Grant)
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        await driver.leases.guard(granted, connection)
        await driver.leases.renew(granted, 300_000)
        await asyncio.sleep(0.4)
        refused = await driver.leases.acquire(request("b/1"))
        assert isinstance(refused, Held)
        assert refused.owner == "a/1"
        # Others of the batch are not held up by the locked row.
        other = AcquireRequest("other", Owner("b/2"), 30_000_000, "{}", HostId("h"))
        assert isinstance(await driver.leases.acquire(other), Grant)
    taken = await driver.leases.acquire(request("b/1"))
    assert isinstance(taken, Grant)
    assert taken.token > granted.token
    await connection.close()


async def test_another_database_is_refused(
    driver: PostgresDriver, grant: Grant, postgres_server: PostgresServer
) -> None:
    empty = postgres_server.create_database()
    connection = await asyncpg.connect(empty)
    async with connection.transaction():
        with pytest.raises(UsageError, match="another database"):
            await driver.leases.guard(grant, connection)
        assert await connection.fetchval("SELECT 1") == 1
    twin = await open_driver(empty)
    await twin.leases.acquire(request("a/1"))
    async with connection.transaction():
        with pytest.raises(UsageError, match="another database"):
            await driver.leases.guard(grant, connection)
    await twin.close()
    await connection.close()
    postgres_server.drop_database(empty)


@pytest.mark.parametrize("stranger", [None, object(), "tx", 7])
async def test_strangers_are_refused(
    driver: PostgresDriver, grant: Grant, stranger: object
) -> None:
    with pytest.raises(UsageError, match="guard takes"):
        await driver.leases.guard(grant, stranger)
