"""Rules of PostgreSQL on worse days: locked rows, victims, a moved clock, lost notifications."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

import outlive
from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.errors import Fenced, StoreUnavailable
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, Owner
from outlive.ports.driver import Driver, DriverContext
from tests.conformance.moved_time import server_time
from tests.services.postgres import PostgresServer
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.service, pytest.mark.process]

HOUR_S = 3600
DEAF = "notifications do not arrive"


def request(key: str, owner: str) -> AcquireRequest:
    return AcquireRequest(key, Owner(owner), 30_000_000, "{}", HostId("h"))


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Awaitable[Driver]]]:
    drivers: list[Driver] = []

    async def open_driver(url: str, namespace: str = "default") -> Driver:
        context = DriverContext(
            clock=SystemClock(), random=random.Random(1), namespace=namespace, host=HostId("h")
        )
        drivers.append(await PostgresFactory().open(parse_url(url), context))
        return drivers[-1]

    yield open_driver
    for driver in drivers:
        await driver.close()


# A sequence counts on when a transaction is rolled back.
VICTIMS = """
CREATE SEQUENCE public.tries;
CREATE FUNCTION public.fall() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.tries') <= {victims} THEN
        RAISE EXCEPTION 'chosen as a victim' USING ERRCODE = '{code}';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fall BEFORE INSERT ON outlive.lease FOR EACH ROW EXECUTE FUNCTION public.fall();
"""


@pytest.mark.parametrize("code", ["40P01", "40001"])
async def test_a_victim_of_a_deadlock_or_a_conflict_is_run_again(opened, postgres_url, code):
    driver = await opened(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(VICTIMS.format(victims=2, code=code))
    granted = await driver.leases.acquire(request("k", "a/1"))
    assert isinstance(granted, Grant)
    assert granted.token == 1
    assert await connection.fetchval("SELECT last_value FROM public.tries") == 3
    await connection.close()


async def test_a_statement_that_is_always_a_victim_was_not_applied(opened, postgres_url):
    driver = await opened(postgres_url)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(VICTIMS.format(victims=10**6, code="40P01"))
    with pytest.raises(StoreUnavailable, match="victim"):
        await driver.leases.acquire(request("k", "a/1"))
    await connection.execute("DROP TRIGGER fall ON outlive.lease")
    assert isinstance(await driver.leases.acquire(request("k", "b/1")), Grant)
    await connection.close()


async def test_claims_and_reaping_skip_locked_rows(opened, postgres_url):
    user = await asyncpg.connect(postgres_url)
    # A namespace in which no host looks after the dead.
    driver = await opened(postgres_url, "apart")
    async with outlive.connect(postgres_url) as host:
        locked, free = [await host.work.enqueue("q", number) for number in range(2)]
        for name in ("locked", "free"):
            gone = HostSession(id=HostId(name), name=name, ttl_us=1, metadata="{}")
            await driver.hosts.open(gone)
        async with user.transaction():
            await user.execute("SELECT FROM outlive.job WHERE id = $1 FOR UPDATE", locked.id)
            await user.execute("SELECT FROM outlive.host WHERE id = 'locked' FOR UPDATE")
            assert [claim.id for claim in await host.work.claim("q", limit=2)] == [free.id]
            assert [found.id for found in await driver.hosts.reap(limit=2)] == ["free"]
        assert [claim.id for claim in await host.work.claim("q", limit=2)] == [locked.id]
        assert [found.id for found in await driver.hosts.reap(limit=2)] == ["locked"]
    await user.close()


async def test_a_jump_of_the_servers_clock_never_breaks_fencing(opened, services, compiler):
    with server_time() as clock:
        server = services.start(PostgresServer(durable=False, environment=clock.environment))
        leases = (await opened(server.url)).leases
        first = await leases.acquire(request("k", "a/1"))
        clock.skip(HOUR_S)
        # Forward, it ends a lease before its owner knows; the token still tells them apart.
        second = await leases.acquire(request("k", "b/1"))
        assert (first.token, second.token) == (1, 2)
        for late in (leases.renew(first, 30_000_000), leases.release(first)):
            with pytest.raises(Fenced):
                await late
        clock.skip(-2 * HOUR_S)
        # Backward, it delays the end; the owner goes on, and tokens grow.
        assert isinstance(await leases.acquire(request("k", "c/1")), Held)
        second = await leases.renew(second, 30_000_000)
        await leases.release(second)
        third = await leases.acquire(request("k", "c/1"))
        assert isinstance(third, Grant)
        assert third.token == 3
        for late in (leases.renew(second, 30_000_000), leases.release(second)):
            with pytest.raises(Fenced):
                await late


async def test_a_host_without_notifications_says_so_and_works_on(postgres_url):
    with FaultProxy.for_url(postgres_url) as proxy:
        # Like a pooler that keeps notifications for itself: nothing arrives where it listens.
        proxy.black_hole()
        options = {"listen_url": proxy.url_of(postgres_url)}
        async with (
            outlive.connect(postgres_url, name="deaf", options=options) as deaf,
            outlive.connect(postgres_url, name="b") as host,
        ):
            assert [found.level for found in await deaf.driver.check() if DEAF in found.what]
            waiting = asyncio.create_task(deaf.work.claim("q", wait=60))
            await host.work.enqueue("q", 1)
            (claim,) = await waiting
            await claim.complete()
