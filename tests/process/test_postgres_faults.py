"""The PostgreSQL driver on its bad days: crashes, black holes, lost replies, many rivals."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import asyncpg
import pytest

from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import OutcomeUnknown, OutliveError, StoreError, StoreUnavailable
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext
from tests.process.programs.speech import now
from tests.services.postgres import PostgresServer
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.service, pytest.mark.process]

Opener = Callable[..., asyncio.Future[PostgresDriver]]


def request(key: str, owner: str, ttl_s: float = 30.0) -> AcquireRequest:
    return AcquireRequest(key, Owner(owner), round(ttl_s * 1e6), "{}", HostId("h"))


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    drivers: list[PostgresDriver] = []

    async def open_driver(url: str, namespace: str = "default", **more: object) -> PostgresDriver:
        context = DriverContext(
            clock=SystemClock(),
            random=random.Random(1),
            namespace=namespace,
            host=HostId("h"),
            **more,
        )
        driver = await PostgresFactory().open(parse_url(url), context)
        drivers.append(driver)
        return driver

    yield open_driver
    for driver in drivers:
        await driver.close()


@pytest.fixture
def proxy(postgres_url):
    with FaultProxy.for_url(postgres_url) as running:
        yield running


async def test_a_lost_reply_is_unknown_and_the_repeat_has_the_same_token(
    opened, proxy, postgres_url
) -> None:
    driver = await opened(proxy.url_of(postgres_url), role="keeper")
    await driver.leases.acquire(request("warm", "a/0"))
    proxy.drop_reply_after(b"passed AS (")
    with pytest.raises(OutcomeUnknown):
        await driver.leases.acquire(request("k", "a/1"))
    again = await driver.leases.acquire(request("k", "a/1"))
    assert isinstance(again, Grant)
    assert (again.token, again.version) == (1, 2)


async def test_a_renewal_into_a_black_hole_ends_at_its_deadline(
    opened, proxy, postgres_url, lateness
) -> None:
    driver = await opened(proxy.url_of(postgres_url), role="keeper")
    granted = await driver.leases.acquire(request("k", "a/1"))
    proxy.black_hole()
    began = now()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await driver.leases.renew(granted, 30_000_000)
    assert now() - began < 1.0 + lateness.since(began)
    proxy.pass_through()
    renewed = await driver.leases.renew(granted, 30_000_000)
    assert renewed.token == granted.token


async def test_a_command_into_a_black_hole_ends_by_itself(opened, proxy, postgres_url) -> None:
    options = {"command_timeout": 0.5, "connect_timeout": 0.5}
    driver = await opened(proxy.url_of(postgres_url), options=options)
    granted = await driver.leases.acquire(request("k", "a/1"))
    proxy.black_hole()
    with pytest.raises(OutcomeUnknown):
        await driver.leases.renew(granted, 30_000_000)
    with pytest.raises(StoreError):
        await driver.leases.get("k")
    proxy.pass_through()
    await driver.leases.renew(granted, 30_000_000)


async def test_a_cancelled_acquire_is_over_before_the_key_is_asked_for_again(
    opened, proxy, postgres_url
) -> None:
    driver = await opened(proxy.url_of(postgres_url))
    for turn in range(3):
        # One after the other, so that the next goes out in its caller's own task.
        granted = await driver.leases.acquire(request("k", f"a/{turn}"))
        await driver.leases.release(granted)
    proxy.delay(0.4)
    asking = asyncio.create_task(driver.leases.acquire(request("k", "a/late")))
    # Until it is held on its way to the server.
    await asyncio.to_thread(proxy.wait_for, lambda counters: counters.delayed > 0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    # What is sent from now on would overtake it.
    proxy.pass_through()
    again = await driver.leases.acquire(request("k", "a/late"))
    await driver.leases.release(again)
    await asyncio.sleep(0.6)
    (record,) = await driver.leases.get("k")
    assert record.owner is None, "a cancelled acquire was carried out after its withdrawal"


async def test_a_refused_connection_is_unavailable_and_nothing_applied(
    opened, proxy, postgres_url
) -> None:
    driver = await opened(proxy.url_of(postgres_url))
    proxy.refuse()
    proxy.reset()
    with pytest.raises(StoreUnavailable):
        for _ in range(20):
            # A connection may learn of its reset only when it is used.
            try:
                await driver.leases.acquire(request("k", "a/1"))
            except OutcomeUnknown:
                continue
    proxy.pass_through()
    assert isinstance(await driver.leases.acquire(request("k", "a/1")), Grant)


async def test_a_crash_under_load_is_survived(opened, services) -> None:
    server = services.start(PostgresServer(durable=False))
    driver = await opened(server.url)
    tokens: dict[str, list[int]] = {}
    stop = asyncio.Event()
    failed = 0

    async def work(worker: int) -> None:
        nonlocal failed
        key, turn = f"k{worker % 7}", 0
        while not stop.is_set():
            turn += 1
            try:
                granted = await driver.leases.acquire(request(key, f"w/{worker}-{turn}", 1.0))
                if isinstance(granted, Held):
                    await asyncio.sleep(0.005)
                    continue
                tokens.setdefault(key, []).append(granted.token)
                await driver.leases.release(granted)
            except OutliveError:
                failed += 1
                await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        for worker in range(20):
            group.create_task(work(worker))
        for _ in range(2):
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.kill_immediate)
            await asyncio.to_thread(server.revive)
        before = sum(map(len, tokens.values()))
        async with asyncio.timeout(15):
            while sum(map(len, tokens.values())) < before + 200:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.05)
        async with asyncio.timeout(15):
            while driver.wakeups.deaf:  # noqa: ASYNC110 - there is no signal to wait for
                await asyncio.sleep(0.05)
        stop.set()
    assert failed > 0
    for granted_tokens in tokens.values():
        assert granted_tokens == sorted(set(granted_tokens))


async def test_five_clients_with_overlapping_batches_never_deadlock(opened, postgres_url) -> None:
    drivers = [await opened(postgres_url) for _ in range(5)]
    seen: dict[tuple[str, int], str] = {}
    owned: dict[str, str] = {}

    async def work(number: int, worker: int) -> None:
        chance = random.Random(number * 100 + worker)
        for turn in range(40):
            key, owner = f"k{chance.randrange(30)}", f"d{number}/{worker}-{turn}"
            granted = await drivers[number].leases.acquire(request(key, owner))
            if isinstance(granted, Held):
                continue
            assert (key, granted.token) not in seen
            assert key not in owned
            seen[key, granted.token] = owned[key] = owner
            if chance.random() < 0.3:
                await drivers[number].leases.renew(granted, 30_000_000)
            del owned[key]
            await drivers[number].leases.release(granted)

    await asyncio.gather(*(work(number, worker) for number in range(5) for worker in range(20)))
    assert len(seen) > 500
    connection = await asyncpg.connect(postgres_url)
    row = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert await connection.fetchval(row) == 0
    await connection.close()


RIVAL = """
import asyncio, random, sys
from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.ports.driver import DriverContext

async def main(url, name):
    context = DriverContext(clock=SystemClock(), random=random.Random(name), namespace="default",
                            host=name)
    driver = await PostgresFactory().open(parse_url(url), context)
    async def work(worker):
        chance = random.Random(f"{name}{worker}")
        for turn in range(60):
            key = f"k{chance.randrange(5)}"
            got = await driver.leases.acquire(
                AcquireRequest(key, f"{name}/{worker}-{turn}", 20_000, "{}", name))
            if isinstance(got, Grant):
                print(key, got.token, got.owner, flush=False)
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.random() * 0.04)
                try:
                    await driver.leases.release(got)
                except Exception:
                    pass
    await asyncio.gather(*(work(worker) for worker in range(10)))
    await driver.close()

asyncio.run(main(*sys.argv[1:]))
"""


def test_rival_processes_never_get_the_same_token(postgres_url) -> None:
    rivals = [
        subprocess.Popen(
            [sys.executable, "-c", RIVAL, postgres_url, f"p{number}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    lines = [line for rival in rivals for line in rival.communicate(timeout=60)[0].splitlines()]
    assert [rival.returncode for rival in rivals] == [0] * 4
    grants = [tuple(line.split()[:2]) for line in lines]
    assert len(grants) == len(set(grants))
    assert len(grants) > 100


async def test_namespaces_do_not_see_each_other(opened, postgres_url) -> None:
    one, two = await opened(postgres_url, "one"), await opened(postgres_url, "two")
    granted = await one.leases.acquire(request("k", "a/1"))
    assert isinstance(await two.leases.acquire(request("k", "b/1")), Grant)
    assert [record.owner for record in await one.leases.get("k")] == ["a/1"]
    await two.leases.break_lease("k", reason="test")
    await one.leases.renew(granted, 30_000_000)


async def test_no_message_shows_the_password(services, postgres_url, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    canary = "c4nary-s3cret"
    secret = postgres_url.replace("postgres@", f"nobody:{canary}@")
    bad = [
        secret,
        secret.replace("127.0.0.1", "127.0.0.1:1/x?y="),
        secret + "?sslmode=nonsense",
        secret + "?pool_size=many",
        secret.rpartition(":")[0] + ":1/none",
    ]
    for url in bad:
        context = DriverContext(
            clock=SystemClock(),
            random=random.Random(1),
            namespace="n",
            host=HostId("h"),
            options={"connect_timeout": 2},
        )
        with pytest.raises(OutliveError) as raised:
            await PostgresFactory().open(parse_url(url), context)
        shown: BaseException | None = raised.value
        while shown is not None:
            assert canary not in f"{shown!r} {shown}"
            shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
    assert canary not in caplog.text
