"""Settling in batches: one that hangs in the store holds up nobody else."""

from __future__ import annotations

import asyncio
import logging

import pytest

from outlive.clock import SystemClock
from outlive.model.job import Completion, Settled
from outlive.names import HostId, JobId, Token
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession
from outlive.work.settling import SLOW_MAX, Lane

pytestmark = pytest.mark.whitebox


class Store:
    """Takes every batch, and keeps those that hold a stuck job waiting."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.stuck = 0

    async def complete(self, batch):
        if any(member.id.startswith("stuck") for member in batch):
            self.stuck += 1
            await self.free.wait()
        return [Settled.OK] * len(batch)


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr("outlive.work.settling._SLOW_S", 0.01)
    return Store()


def lane_of(store):
    clock = SystemClock()
    session = LiveSession(HostId("a"), clock, 60.0)
    session.accept(clock.monotonic())
    lane = Lane(Runtime(clock=clock), store.complete, logging.getLogger("test"))
    return lambda name: lane.put(Completion(JobId(name), Token(1)), session), lane


async def test_a_batch_that_hangs_holds_up_no_other(store):
    put, lane = lane_of(store)
    stuck = put("stuck")
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await put("a") is Settled.OK
        assert await put("b") is Settled.OK
    assert not stuck.done()
    flushing = asyncio.ensure_future(lane.flushed())
    await asyncio.sleep(0.03)
    assert not flushing.done()
    store.free.set()
    await flushing
    assert await stuck is Settled.OK


async def test_no_more_batches_hang_than_a_store_can_bear(store):
    put, lane = lane_of(store)
    stuck = []
    for number in range(SLOW_MAX + 3):
        stuck.append(put(f"stuck {number}"))
        await asyncio.sleep(0.03)
    assert store.stuck == SLOW_MAX
    store.free.set()
    await lane.flushed()
    assert {future.result() for future in stuck} == {Settled.OK}
