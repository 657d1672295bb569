"""Sessions of hosts on Redis: what becomes of them when the server forgets, and their keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

import outlive
from outlive.errors import Fenced
from tests.process.redis_drivers import Drivers
from tests.process.redis_workers import RedisWorker
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]

KEYS = "outlive:{default}:"


@pytest.fixture
async def drivers() -> AsyncIterator[Drivers]:
    found = Drivers()
    yield found
    await found.close()


async def test_a_host_whose_session_was_forgotten_opens_a_new_one(services, drivers) -> None:
    server = services.start(RedisServer())
    looker = (await drivers.open(server.url)).hosts
    async with outlive.connect(server.url, name="web", session_ttl=1.0):
        (before,) = await looker.list(limit=10)
        server.command("FLUSHALL")
        async with asyncio.timeout(10):
            while not (after := await looker.list(limit=10)):  # noqa: ASYNC110 - no signal
                await asyncio.sleep(0.05)
        assert [session.name for session in after] == ["web"]
        assert after[0].id != before.id
        with pytest.raises(Fenced):
            await looker.renew(before.id, 1_000_000)


async def test_a_session_outlives_a_restart_of_the_server(services, drivers) -> None:
    server = services.start(RedisServer())
    looker = (await drivers.open(server.url)).hosts
    async with outlive.connect(server.url, name="web", session_ttl=5.0):
        (before,) = await looker.list(limit=10)
        await asyncio.to_thread(server.crash)
        await asyncio.to_thread(server.revive)
        looker = (await drivers.open(server.url)).hosts
        (seen,) = (after,) = await looker.list(limit=10)
        async with asyncio.timeout(10):
            # It grows from one look to the next when a heartbeat has come through meanwhile.
            while after.remaining_s <= seen.remaining_s:
                seen = after
                await asyncio.sleep(0.05)
                (after,) = await looker.list(limit=10)
        assert (after.id, after.alive) == (before.id, True)


async def test_an_ended_session_leaves_only_the_proof_that_its_id_was_used(
    drivers, redis_server, redis_url
) -> None:
    worker = RedisWorker(await drivers.open(redis_url))
    before = redis_server.command("DBSIZE")
    await worker.open()
    await worker.hosts.close(worker.session)
    assert worker.session in redis_server.command("ZRANGE", f"{KEYS}hosts:ended", "0", "-1")
    redis_server.command("DEL", f"{KEYS}hosts:ended")
    assert redis_server.command("DBSIZE") == before


async def test_the_proof_is_forgotten_after_a_week(drivers, redis_server, redis_url) -> None:
    worker = await RedisWorker(await drivers.open(redis_url)).open()
    redis_server.command("ZADD", f"{KEYS}hosts:ended", "1", "long-ago")
    await worker.hosts.close(worker.session)
    kept = redis_server.command("ZRANGE", f"{KEYS}hosts:ended", "0", "-1")
    assert worker.session in kept
    assert "long-ago" not in kept
