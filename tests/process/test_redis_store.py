"""What is special about leases on Redis: the keys in the database, the limits, the doctor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from outlive.errors import UsageError
from outlive.model.lease import Grant
from tests.process.redis_drivers import Drivers, request
from tests.services.redis import FORGETFUL, RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    found = Drivers()
    yield found
    await found.close()


async def findings(driver) -> dict[str, str]:
    return {finding.what: finding.level for finding in await driver.check()}


async def test_raw_shows_the_fields_of_each_slot(drivers, redis_url) -> None:
    driver = await drivers.open(redis_url)
    assert await driver.leases.raw("k") == []
    one = await driver.leases.acquire(request("k", "a/1", limit=2))
    await driver.leases.acquire(request("k", "b/1", limit=2))
    first, second = await driver.leases.raw("k")
    assert (first["owner:0"], first["token:0"]) == ("a/1", str(one.token))
    assert (second["owner:1"], second["limit"]) == ("b/1", "2")
    assert "owner:1" not in first


async def test_no_key_of_a_lease_ever_expires(drivers, redis_server, redis_url) -> None:
    driver = await drivers.open(redis_url)
    granted = await driver.leases.acquire(request("k", "a/1"))
    await driver.leases.acquire(request("k", "b/1", queue_us=1_000_000))
    await driver.leases.release(granted)
    keyspace = redis_server.command("INFO", "keyspace")
    assert "expires=0" in keyspace
    assert "keys=8" in keyspace


async def test_a_queue_that_ends_leaves_no_keys(drivers, redis_server, redis_url) -> None:
    driver = await drivers.open(redis_url)
    await driver.leases.acquire(request("k", "a/1"))
    held = await driver.leases.acquire(request("k", "b/1", queue_us=1_000_000))
    await driver.leases.leave("k", held.waiter, "b/1")
    for name in ("queue", "until", "places"):
        assert ":0" in redis_server.command("EXISTS", f"outlive:{{default}}:{name}:k")


async def test_prefixes_and_databases_are_different_stores(drivers, redis_url) -> None:
    urls = [redis_url, f"{redis_url}?prefix=other", redis_url.replace("/0", "/1")]
    for url in urls:
        driver = await drivers.open(url)
        assert isinstance(await driver.leases.acquire(request("k", f"a/{url}")), Grant)


async def test_text_that_is_not_unicode_is_refused(drivers, redis_url) -> None:
    leases = (await drivers.open(redis_url)).leases
    with pytest.raises(UsageError, match="Unicode"):
        await leases.list(prefix="\udcff", owner=None, active=False, after=None, limit=10)
    with pytest.raises(UsageError, match="Unicode"):
        await leases.get("\udcff")


async def test_a_limit_that_shrinks_and_grows_forgets_no_token(drivers, redis_url) -> None:
    driver = await drivers.open(redis_url)
    newest = 0
    for limit in (3, 1, 5, 2):
        for number in range(limit):
            granted = await driver.leases.acquire(request("k", f"a/{limit}-{number}", limit=limit))
            assert isinstance(granted, Grant)
            assert granted.token > newest
            newest = granted.token
        await driver.leases.break_lease("k", reason="next")
        newest = max(record.token for record in await driver.leases.get("k"))


async def test_rivals_on_several_connections_never_own_together(drivers, redis_url) -> None:
    rivals = [await drivers.open(redis_url) for _ in range(4)]
    owned: dict[str, str] = {}
    tokens: set[tuple[str, int]] = set()

    async def work(number: int, worker: int) -> None:
        leases = rivals[number].leases
        for turn in range(25):
            key, owner = f"k{turn % 5}", f"d{number}/{worker}-{turn}"
            granted = await leases.acquire(request(key, owner))
            if isinstance(granted, Grant):
                assert key not in owned
                assert (key, granted.token) not in tokens
                owned[key] = owner
                tokens.add((key, granted.token))
                await leases.renew(granted, 30_000_000)
                del owned[key]
                await leases.release(granted)

    await asyncio.gather(*(work(number, worker) for number in range(4) for worker in range(10)))
    assert len(tokens) > 20


async def test_the_doctor_is_content_with_a_durable_server(drivers, services) -> None:
    server = services.start(RedisServer(durable=True))
    driver = await drivers.open(server.url)
    said = await findings(driver)
    assert set(said.values()) == {"ok"}
    assert f"Redis {server.version} at {server.url}" in said


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"appendfsync": "everysec"}, "appendfsync is 'everysec'"),
        ({"appendfsync": "everysec"}, "acknowledged jobs, claims and results"),
        (FORGETFUL, "does not persist"),
        ({"appendonly": "no", "save": "60 1000"}, "has no append-only log"),
        ({"maxmemory-policy": "allkeys-lru"}, "may evict leases and jobs"),
    ],
)
async def test_the_doctor_warns_of_a_server_that_may_forget(
    drivers, services, caplog, settings, says
) -> None:
    caplog.set_level(logging.WARNING)
    server = services.start(RedisServer(durable=True, settings=settings))
    driver = await drivers.open(server.url)
    warned = [what for what, level in (await findings(driver)).items() if level == "warning"]
    assert any(says in what for what in warned), warned
    assert ("may evict leases" in caplog.text) == ("maxmemory-policy" in settings)


async def test_the_doctor_tells_of_the_quiet_time(drivers, services) -> None:
    server = services.start(RedisServer())
    driver = await drivers.open(server.url)
    await driver.leases.acquire(request("k", "a/1", 20))
    assert "after a restart, no lease is granted for 20 s" in await findings(driver)
    await asyncio.to_thread(server.crash)
    said = await findings(driver)
    assert list(said.values()) == ["error"]
    await asyncio.to_thread(server.revive)
    said = await findings(driver)
    assert any("no lease is granted for another" in what for what in said)


async def test_a_keeper_does_not_listen(drivers, redis_url) -> None:
    keeper = await drivers.open(redis_url, role="keeper")
    assert keeper.wakeups.deaf
    assert "notifications" not in " ".join(await findings(keeper))
