"""The keeper, the watchdog and the heartbeat: what keeps a host alive beside its event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import replace

import pytest

import outlive
from outlive.errors import StoreUnavailable
from outlive.names import HostId
from outlive.runtime.keeper import Keeper
from outlive.runtime.runtime import Runtime
from outlive.runtime.watchdog import Watchdog


class FakeDriver:
    """Stands in for a driver that no chore of these tests asks for anything."""

    closed = False

    async def close(self) -> None:
        self.closed = True


class Recorder:
    """A chore that remembers in which thread it ran."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.ran = threading.Event()
        self.stopped = False

    def tick(self, now: float, driver: object) -> float:
        self.threads.add(threading.get_ident())
        self.ran.set()
        return now + 0.01

    async def stop(self) -> None:
        self.stopped = True


class Broken(Recorder):
    def tick(self, now: float, driver: object) -> float:
        raise RuntimeError("a chore's own mistake")


async def test_chores_run_in_a_thread_of_their_own_and_are_stopped():
    driver = FakeDriver()

    async def opened() -> FakeDriver:
        return driver

    keeper, chore = Keeper(Runtime(), opened), Recorder()
    keeper.add(chore)
    await keeper.start()
    assert await asyncio.to_thread(chore.ran.wait, 5)
    await keeper.stop()
    await keeper.stop()
    assert chore.stopped
    assert driver.closed
    assert threading.get_ident() not in chore.threads


async def test_one_chores_mistake_does_not_stop_the_others(caplog):
    async def opened() -> FakeDriver:
        return FakeDriver()

    keeper, chore = Keeper(Runtime(), opened), Recorder()
    keeper.add(Broken())
    keeper.add(chore)
    await keeper.start()
    assert await asyncio.to_thread(chore.ran.wait, 5)
    await keeper.stop()
    assert "a chore's own mistake" in caplog.text


async def test_a_keeper_that_cannot_open_the_store_says_so():
    async def opened() -> FakeDriver:
        raise StoreUnavailable("no such server")

    keeper = Keeper(Runtime(), opened)
    with pytest.raises(StoreUnavailable, match="no such server"):
        await keeper.start()
    await keeper.stop()


async def test_a_keeper_stopped_before_its_start_never_starts():
    async def opened() -> FakeDriver:
        raise AssertionError("must not open")

    keeper = Keeper(Runtime(), opened)
    await keeper.stop()
    await keeper.start()


def block_the_loop_on_purpose(seconds: float) -> None:
    """What the watchdog's log must name."""
    time.sleep(seconds)


async def test_the_watchdog_logs_the_stack_that_blocks_the_loop(caplog):
    async def opened() -> FakeDriver:
        return FakeDriver()

    runtime = Runtime()
    keeper, watchdog = Keeper(runtime, opened), Watchdog(runtime)
    keeper.add(watchdog)
    await keeper.start()
    with caplog.at_level(logging.WARNING, "outlive.host"):
        block_the_loop_on_purpose(2.6)
    assert watchdog.stalled_s(runtime.clock.monotonic()) > 1
    await asyncio.sleep(0.01)
    assert watchdog.stalled_s(runtime.clock.monotonic()) < 1
    await keeper.stop()
    assert "block_the_loop_on_purpose" in caplog.text


async def test_a_host_that_lost_its_session_opens_a_new_one(caplog):
    async with outlive.connect("memory://session", name="a", session_ttl=0.3) as a:
        old = a.id
        hosts = a._driver.hosts
        await hosts.close(old)
        for _ in range(500):
            alive = [s for s in await hosts.list(limit=10) if s.alive]
            if alive and alive[0].id != old:
                break
            await asyncio.sleep(0.01)
        assert [s.name for s in alive] == ["a"]
        assert alive[0].id != old
    assert "lost its session" in caplog.text


async def test_a_healthy_host_ends_the_sessions_of_the_dead():
    async with outlive.connect("memory://reaping", name="a", session_ttl=0.3) as a:
        hosts = a._driver.hosts
        await hosts.open(replace(a._heartbeat.session, id=HostId("dead"), name="b", ttl_us=50_000))
        for _ in range(500):
            if [s.name for s in await hosts.list(limit=10)] == ["a"]:
                break
            await asyncio.sleep(0.01)
        assert [s.name for s in await hosts.list(limit=10)] == ["a"]


async def test_health_speaks_of_the_store_and_of_the_host():
    async with outlive.connect("memory://health", name="a") as a:
        lease = await a.leases.acquire("k")
        health = await a.health()
        assert health.ok
        assert (health.host, health.owned) == ("a", 1)
        assert health.heartbeat_age_s is not None
        await lease.release()
