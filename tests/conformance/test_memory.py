"""The memory driver keeps its promises, and shares its stores between hosts and threads."""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import threading

import pytest

from outlive.clock import SystemClock
from outlive.drivers.memory import MemoryFactory
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.model.location import parse_url
from outlive.ports.driver import DriverContext
from outlive.ports.wakeups import Wakeup
from outlive.testing import ManualClock
from outlive.testing.conformance import (
    HostStoreSuite,
    InstanceStoreSuite,
    JobStoreSuite,
    Lab,
    LeaseStoreSuite,
    WakeupsSuite,
)

_numbers = itertools.count()


def memory_lab(clock: ManualClock | None = None) -> Lab:
    return Lab(factory=MemoryFactory(), url=f"memory://suite-{next(_numbers)}", clock=clock)


class TestMemoryLeases(LeaseStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return memory_lab(ManualClock())


class TestMemoryHosts(HostStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return memory_lab(ManualClock())


class TestMemoryJobs(JobStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return memory_lab(ManualClock())


class TestMemoryInstances(InstanceStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return memory_lab(ManualClock())


class TestMemoryInstancesInRealTime(InstanceStoreSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return memory_lab()


class TestMemoryWakeups(WakeupsSuite):
    @pytest.fixture
    def lab(self) -> Lab:
        return memory_lab()


async def open_memory(url: str, host: str, role: str = "host"):
    context = DriverContext(
        clock=SystemClock(), random=random.Random(0), namespace="default", host=host, role=role
    )
    return await MemoryFactory().open(parse_url(url), context)


def request(owner: str, key: str = "k", host: str = "h") -> AcquireRequest:
    return AcquireRequest(key, owner, 60_000_000, "{}", host)


async def test_a_named_store_is_shared_in_the_process():
    one, two = await open_memory("memory://shared", "a"), await open_memory("memory://shared", "b")
    assert isinstance(await one.leases.acquire(request("a/1")), Grant)
    assert isinstance(await two.leases.acquire(request("b/1")), Held)


async def test_names_of_stores_respect_case():
    one, two = await open_memory("memory://Case", "a"), await open_memory("memory://case", "b")
    assert isinstance(await one.leases.acquire(request("a/1")), Grant)
    assert isinstance(await two.leases.acquire(request("b/1")), Grant)


async def test_a_nameless_store_belongs_to_one_host():
    host = await open_memory("memory://", "a")
    keeper = await open_memory("memory://", "a", "keeper")
    stranger = await open_memory("memory://", "b")
    grant = await host.leases.acquire(request("a/1"))
    assert isinstance(grant, Grant)
    assert (await keeper.leases.renew(grant, 60_000_000)).token == grant.token
    assert isinstance(await stranger.leases.acquire(request("b/1")), Grant)


async def test_nothing_survives_the_last_driver():
    driver = await open_memory("memory://gone", "a")
    await driver.leases.acquire(request("a/1"))
    await driver.close()
    gc.collect()
    again = await open_memory("memory://gone", "b")
    assert len(await again.leases.get("k")) == 0
    await again.close()


async def test_a_ring_from_another_thread_arrives_on_the_loop_that_opened_the_driver():
    driver = await open_memory("memory://threads", "a")
    loop, heard = asyncio.get_running_loop(), asyncio.Queue[tuple[Wakeup, bool]]()
    driver.wakeups.subscribe(
        lambda wakeup: heard.put_nowait((wakeup, asyncio.get_running_loop() is loop))
    )

    async def ring() -> None:
        other = await open_memory("memory://threads", "b")
        await other.wakeups.ring(Wakeup("t"), host="a")
        await other.close()

    thread = threading.Thread(target=lambda: asyncio.run(ring()))
    thread.start()
    async with asyncio.timeout(10):
        assert await heard.get() == (Wakeup("t"), True)
    thread.join()
    await driver.close()


def test_threads_never_share_a_lock():
    granted: list[int] = []

    async def work(worker: int) -> None:
        driver = await open_memory("memory://storm", f"h{worker}")
        for turn in range(200):
            outcome = await driver.leases.acquire(request(f"h{worker}/{turn}"))
            if isinstance(outcome, Grant):
                granted.append(outcome.token)
                await driver.leases.release(outcome)

    keep = asyncio.run(open_memory("memory://storm", "keep"))
    threads = [threading.Thread(target=lambda n=n: asyncio.run(work(n))) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == len(set(granted))
    assert keep.capabilities.backend == "memory"
