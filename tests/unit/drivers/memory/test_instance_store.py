"""What the memory store of instances shares with the rest of its driver."""

from __future__ import annotations

import random

import pytest

from outlive.drivers.memory import MemoryFactory
from outlive.errors import UnsupportedByDriver
from outlive.model.instance import InstanceClaimRequest, Message, NewInstance
from outlive.model.location import parse_url
from outlive.model.session import HostSession
from outlive.names import HostId, InstanceId
from outlive.ports.driver import DriverContext
from outlive.testing import ManualClock

HOST = HostId("h")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
async def driver(clock):
    context = DriverContext(
        clock=clock, random=random.Random(0), namespace="default", host=HOST, role="host"
    )
    driver = await MemoryFactory().open(parse_url("memory://"), context)
    await driver.hosts.open(HostSession(id=HOST, name="h", ttl_us=3600 * 10**6, metadata="{}"))
    yield driver
    await driver.close()


def new(id_: str, **fields) -> NewInstance:
    return NewInstance(
        id=InstanceId(id_), kind="flow", name="f", input="1", request=f"start {id_}", **fields
    )


def asking(limit: int = 10) -> InstanceClaimRequest:
    return InstanceClaimRequest(
        session=HOST, worker="h", request="q", kind="flow", names=("f",), limit=limit
    )


async def claim(driver) -> list[str]:
    return [found.id for found in (await driver.instances.claim(asking())).instances]


async def test_the_driver_offers_what_its_capabilities_say(driver):
    assert driver.capabilities.instances
    assert driver.capabilities.transact == ""
    with pytest.raises(UnsupportedByDriver, match="SQLite or Postgres"):
        await driver.instances.start_in([new("i")], object())
    with pytest.raises(UnsupportedByDriver, match="SQLite or Postgres"):
        await driver.instances.transact(InstanceId("i"), lambda _: None)


async def test_a_letter_wakes_after_the_wall_clock_went_back(driver, clock):
    await driver.instances.start([new("i", delay_us=10**12)])
    await driver.instances.send([Message(InstanceId("i"), "m", "cancel", "", "{}")])
    clock.jump_wall(-86_400)
    assert await claim(driver) == ["i"]


async def test_a_due_time_is_of_the_wall_clock_and_a_session_is_not(driver, clock):
    await driver.instances.start([new("i", delay_us=3600 * 10**6)])
    clock.jump_wall(3600)
    assert await claim(driver) == ["i"]


async def test_nothing_is_left_of_the_purged(driver):
    await driver.instances.start([new("i")])
    await driver.instances.terminate(InstanceId("i"), outcome="null")
    await driver.instances.purge([InstanceId("i")])
    table = driver.instances._space.instances
    assert not table.rows
    assert not table.owned
    assert len(table.kept) == 0
    assert list(table.roll.after(0)) == []
    assert all(len(one.due) + len(one.mailed) == 0 for one in table.definitions.values())


async def test_many_sleepers_cost_a_claim_nothing(driver):
    await driver.instances.start([new(f"i{number}", delay_us=10**12) for number in range(5000)])
    await driver.instances.start([new("due")])
    looked_at = []
    rows = driver.instances._space.instances.rows

    class Counting(dict):
        def __getitem__(self, key):
            looked_at.append(key)
            return super().__getitem__(key)

    driver.instances._space.instances.rows = Counting(rows)
    assert await claim(driver) == ["due"]
    assert set(looked_at) == {"due"}
