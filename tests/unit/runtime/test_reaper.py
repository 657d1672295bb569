"""The reaper: finds the dead however many live beside them."""

from __future__ import annotations

import asyncio
import random

from holdfast.drivers.memory import MemoryFactory
from holdfast.model.location import parse_url
from holdfast.model.session import HostSession
from holdfast.names import HostId
from holdfast.ports.driver import DriverContext
from holdfast.runtime.heartbeat import Heartbeat
from holdfast.runtime.reaper import SESSIONS_MAX, Reaper
from holdfast.runtime.runtime import Runtime
from holdfast.testing import ManualClock

OWN_TTL_S = 10.0


def session(name: str, ttl_s: float) -> HostSession:
    return HostSession(id=HostId(name), name=name, ttl_us=round(ttl_s * 1e6), metadata="{}")


async def test_a_dead_host_behind_more_living_ones_than_a_look_shows_is_reaped():
    clock = ManualClock()
    context = DriverContext(
        clock=clock, random=random.Random(1), namespace="n", host=HostId("me"), options={}
    )
    driver = await MemoryFactory().open(parse_url("memory://reaper"), context)
    mine = session("me", OWN_TTL_S)
    heartbeat = Heartbeat(Runtime(clock=clock), mine, drift=0.005)
    reaper = Reaper(Runtime(clock=clock), heartbeat)
    await driver.hosts.open(mine)
    heartbeat.opened(clock.monotonic())
    for number in range(SESSIONS_MAX):
        await driver.hosts.open(session(f"lives-{number}", 1000.0))
    clock.advance(1.0)
    await driver.hosts.open(session("dies", 1.0))
    for _ in range(4):
        clock.advance(OWN_TTL_S / 2)
        await driver.hosts.renew(mine.id, mine.ttl_us)
        heartbeat.live.accept(clock.monotonic())
        reaper.tick(clock.monotonic(), driver)
        for _ in range(10):
            await asyncio.sleep(0)
    clock.advance(OWN_TTL_S / 2)
    assert await driver.hosts.reap(limit=10) == []
    await driver.close()
