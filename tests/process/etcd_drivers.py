"""Drivers on etcd for tests of their bad days: opened with few words, closed at the end."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable

from outlive.clock import SystemClock
from outlive.drivers.etcd import EtcdFactory
from outlive.drivers.etcd.driver import EtcdDriver
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext
from outlive.ports.wakeups import Wakeup

# Calls to a server that does not answer end soon enough for a test.
IMPATIENT = {"command_timeout": 0.5, "connect_timeout": 0.5}
# How long a test waits for what must happen.
LIMIT_S = 15.0

_numbers = itertools.count(1)


def fresh_namespace() -> str:
    """A namespace that no other test of this run uses."""
    return f"p{next(_numbers)}"


def request(key: str, owner: str, ttl_s: float = 30.0, **more: object) -> AcquireRequest:
    """One attempt; the host of an owner is what stands before its slash."""
    host = HostId(owner.partition("/")[0])
    return AcquireRequest(key, Owner(owner), round(ttl_s * 1e6), "{}", host, **more)


class Drivers:
    """Opens drivers of one namespace and closes them all."""

    def __init__(self) -> None:
        self.namespace = fresh_namespace()
        self._open: list[EtcdDriver] = []

    async def open(self, url: str, host: str = "a", **more: object) -> EtcdDriver:
        """Open one more, as ``host``."""
        context = DriverContext(
            clock=SystemClock(),
            random=random.Random(host),
            namespace=self.namespace,
            host=HostId(host),
            **more,
        )
        driver = await EtcdFactory().open(parse_url(url), context)
        self._open.append(driver)
        return driver

    async def close(self) -> None:
        """Close all, the newest first."""
        while self._open:
            await self._open.pop().close()


class Bell:
    """Collects the hints that reach one driver."""

    def __init__(self, driver: EtcdDriver) -> None:
        self._heard: asyncio.Queue[Wakeup] = asyncio.Queue()
        driver.wakeups.subscribe(self._heard.put_nowait)

    async def next(self) -> Wakeup:
        """The next hint; the test fails if none arrives."""
        async with asyncio.timeout(LIMIT_S):
            return await self._heard.get()


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return once ``condition`` holds; the test fails if it never does."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            holds = condition()
            if holds if isinstance(holds, bool) else await holds:
                return
            await asyncio.sleep(0.01)


async def owned(driver: EtcdDriver, key: str, owner: str, ttl_s: float = 30.0) -> Grant:
    """Own ``key``; the test fails if it is refused."""
    granted = await driver.leases.acquire(request(key, owner, ttl_s))
    assert isinstance(granted, Grant), granted
    return granted
