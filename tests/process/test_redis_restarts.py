"""Redis that comes back: what it kept, what it forgot, and that nobody owns twice meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from outlive.errors import Fenced, LeaseLost, OutliveError
from outlive.model.lease import Grant, Held
from tests.process.redis_drivers import Drivers, request
from tests.services.redis import FORGETFUL, RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]

TTL_S = 0.8


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    found = Drivers()
    yield found
    await found.close()


def restart(server: RedisServer) -> None:
    server.crash()
    server.revive()


async def retry(call):
    """The first answer of ``call`` from a server that comes back."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await call()
            except LeaseLost:
                raise
            except OutliveError:
                await asyncio.sleep(0.01)


async def take_over(driver, key: str, owner: str) -> Grant:
    """Attempt as often as it makes sense until the key is granted."""
    async with asyncio.timeout(10):
        while True:
            outcome = await driver.leases.acquire(request(key, owner))
            if isinstance(outcome, Grant):
                return outcome
            await asyncio.sleep(min(0.05, outcome.retry_in_s))


async def test_a_fresh_store_does_not_wait(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    assert isinstance(await driver.leases.acquire(request("k", "a/1")), Grant)


async def test_a_log_keeps_the_record_and_the_owner_goes_on(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    granted = await driver.leases.acquire(request("k", "a/1", 10))
    await driver.leases.renew(granted, 10_000_000, state="kept")
    await asyncio.to_thread(restart, server)
    renewed = await retry(lambda: driver.leases.renew(granted, 10_000_000))
    assert (renewed.token, renewed.version, renewed.state) == (granted.token, 3, "kept")
    assert (await driver.leases.acquire(request("k", "a/1", 10))).token == granted.token


async def test_after_a_restart_nothing_is_granted_for_the_largest_ttl(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    await driver.leases.acquire(request("long", "a/1", TTL_S))
    released = await driver.leases.acquire(request("k", "a/2", TTL_S / 4))
    await driver.leases.release(released)
    await asyncio.to_thread(restart, server)
    newcomer = await drivers.open(server.url)
    held = await newcomer.leases.acquire(request("k", "b/1", queue_us=5_000_000))
    assert isinstance(held, Held)
    assert held.owner is None
    assert held.waiter is not None
    assert 0 < held.retry_in_s <= TTL_S
    same = await retry(lambda: driver.leases.acquire(request("k", "c/1")))
    assert isinstance(same, Held)
    granted = await take_over(newcomer, "k", "b/1")
    assert granted.token > released.token


async def test_a_renewal_with_a_longer_ttl_counts_too(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    granted = await driver.leases.acquire(request("k", "a/1", 0.2))
    await driver.leases.renew(granted, 20_000_000)
    await asyncio.to_thread(restart, server)
    held = await (await drivers.open(server.url)).leases.acquire(request("x", "b/1", 0.2))
    assert isinstance(held, Held)
    assert 15 < held.retry_in_s <= 20


async def test_a_renewal_that_reconnects_tells_its_ttl_to_the_new_run(drivers, services) -> None:
    server = services.start(RedisServer())
    host = await drivers.open(server.url)
    keeper = await drivers.open(server.url, role="keeper")
    granted = await keeper.leases.renew(
        await host.leases.acquire(request("k", "a/1", 20)), 20_000_000
    )
    await host.close()
    await asyncio.to_thread(restart, server)
    await retry(lambda: keeper.leases.renew(granted, 20_000_000))
    await _let_start_pass(keeper)
    await keeper.close()
    # Nobody is left who remembers, and the second restart loses the record.
    await asyncio.to_thread(restart, server)
    server.command("DEL", "outlive:{default}:lease:k")
    held = await (await drivers.open(server.url)).leases.acquire(request("k", "b/1", 0.2))
    assert isinstance(held, Held)
    assert 15 < held.retry_in_s <= 20


async def test_restart_wait_can_be_turned_off(drivers, services) -> None:
    server = services.start(RedisServer())
    url = f"{server.url}?restart_wait=false"
    driver = await drivers.open(url)
    await driver.leases.acquire(request("long", "a/1"))
    await asyncio.to_thread(restart, server)
    again = await retry(lambda: driver.leases.acquire(request("k", "a/2")))
    assert isinstance(again, Grant)


async def test_who_remembers_tells_a_server_that_forgot(drivers, services) -> None:
    server = services.start(RedisServer(settings=FORGETFUL))
    owner = await drivers.open(server.url)
    await _let_start_pass(owner)
    granted = await owner.leases.acquire(request("k", "a/1", 40))
    await asyncio.to_thread(restart, server)
    # The listener of the owner's host tells the store, without anybody calling.
    async with asyncio.timeout(10):
        while owner.wakeups.deaf:  # noqa: ASYNC110 - there is no signal to wait for
            await asyncio.sleep(0.005)
    with pytest.raises(Fenced):
        await owner.leases.renew(granted, 40_000_000)
    held = await (await drivers.open(server.url)).leases.acquire(request("k", "b/1"))
    assert isinstance(held, Held)
    assert 35 < held.retry_in_s <= 40
    await _let_start_pass(owner)
    assert (await take_over(owner, "k", "b/1")).token > granted.token


async def _let_start_pass(driver) -> None:
    """Go past the quiet time, without waiting for it."""
    await driver._link.call("HSET", "outlive:{default}:epoch", "until", "0", write=True)


async def test_a_newcomer_waits_for_what_a_forgetful_server_may_have_granted(
    drivers, services
) -> None:
    server = services.start(RedisServer(settings=FORGETFUL))
    await asyncio.to_thread(restart, server)
    newcomer = await drivers.open(server.url)
    held = await newcomer.leases.acquire(request("k", "b/1", TTL_S))
    assert isinstance(held, Held)
    assert 25 < held.retry_in_s <= 30


@pytest.mark.parametrize("how", ["restart", "flush"])
async def test_who_remembers_little_waits_for_those_who_remember_more(
    drivers, services, how
) -> None:
    server = services.start(RedisServer(settings=FORGETFUL))
    brief = await drivers.open(server.url)
    await _let_start_pass(brief)
    await brief.leases.acquire(request("x", "a/1", TTL_S))
    owner = await drivers.open(server.url)
    await owner.leases.acquire(request("k", "b/1", 20))
    # The owner's host is cut off, and cannot say what it knows.
    await owner.close()
    if how == "restart":
        await asyncio.to_thread(restart, server)
    else:
        server.command("FLUSHALL")
    held = await retry(lambda: brief.leases.acquire(request("k", "a/2", TTL_S)))
    assert isinstance(held, Held)
    assert 20 < held.retry_in_s <= 30


def is_known(server: RedisServer, owner: str) -> bool:
    return owner in server.command("HGETALL", "outlive:{default}:lease:k")


async def test_a_promoted_replica_grants_nothing_for_the_largest_ttl(drivers, services) -> None:
    primary = services.start(RedisServer(settings={"repl-diskless-sync-delay": "0"}))
    settings = {"replicaof": f"127.0.0.1 {primary.port}"}
    replica = services.start(RedisServer(settings=settings))
    owner = await drivers.open(primary.url)
    granted = await owner.leases.acquire(request("k", "a/1"))
    async with asyncio.timeout(10):
        while not is_known(replica, "a/1"):  # noqa: ASYNC110 - there is no signal to wait for
            await asyncio.sleep(0.01)
    primary.crash()
    replica.command("REPLICAOF", "NO", "ONE")
    newcomer = await drivers.open(replica.url)
    held = await newcomer.leases.acquire(request("other", "b/1"))
    assert isinstance(held, Held)
    assert 20 < held.retry_in_s <= 30
    # The record came along, so that its owner may go on.
    renewed = await newcomer.leases.renew(granted, 30_000_000)
    assert renewed.token == granted.token


async def test_crashes_under_load_are_survived(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    tokens: dict[str, list[int]] = {}
    stop = asyncio.Event()
    failed = refused = 0

    async def work(worker: int) -> None:
        nonlocal failed, refused
        key, turn = f"k{worker % 7}", 0
        while not stop.is_set():
            turn += 1
            try:
                outcome = await driver.leases.acquire(request(key, f"w/{worker}-{turn}", 0.3))
                if isinstance(outcome, Held):
                    refused += 1
                    await asyncio.sleep(0.005)
                    continue
                tokens.setdefault(key, []).append(outcome.token)
                await driver.leases.release(outcome)
            except OutliveError:
                failed += 1
                await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for worker in range(20):
            group.create_task(work(worker))
        for _ in range(2):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(restart, server)
        before = sum(map(len, tokens.values()))
        async with asyncio.timeout(15):
            while sum(map(len, tokens.values())) < before + 200:  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.02)
            while driver.wakeups.deaf:  # noqa: ASYNC110 - there is no signal to wait for
                await asyncio.sleep(0.02)
        stop.set()
    assert failed > 0
    assert refused > 0
    for granted in tokens.values():
        assert granted == sorted(set(granted))
