"""Opens Redis drivers for tests that look at one closely, without a host around it."""

from __future__ import annotations

import random
from typing import Any

from outlive.clock import SystemClock
from outlive.drivers.redis import RedisFactory
from outlive.drivers.redis.driver import RedisDriver
from outlive.model.lease import AcquireRequest
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext


def request(key: str, owner: str, ttl_s: float = 30.0, **more: Any) -> AcquireRequest:
    """An attempt of ``owner``."""
    return AcquireRequest(key, Owner(owner), round(ttl_s * 1e6), "{}", HostId("h"), **more)


class Drivers:
    """The drivers of one test."""

    def __init__(self) -> None:
        self._open: list[RedisDriver] = []

    async def open(self, url: str, *, namespace: str = "default", **more: Any) -> RedisDriver:
        """Open one; it is closed with the test."""
        context = DriverContext(
            clock=SystemClock(),
            random=random.Random(1),
            namespace=namespace,
            host=HostId(f"h{len(self._open)}"),
            **more,
        )
        driver = await RedisFactory().open(parse_url(url), context)
        self._open.append(driver)
        return driver

    async def close(self) -> None:
        for driver in self._open:
            await driver.close()
