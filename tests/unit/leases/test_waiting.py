"""Waiters of this process: no ring is lost between two steps of the one who waits."""

from __future__ import annotations

import asyncio

from outlive.leases.waiting import Waiters
from outlive.ports.wakeups import Wakeup


class Bells:
    """Rings by hand."""

    deaf = False

    def subscribe(self, listener):
        self.ring = listener
        return lambda: None


def listening() -> tuple[Waiters, Bells]:
    bells = Bells()
    waiters = Waiters(bells)
    waiters.listen()
    return waiters, bells


async def test_call_of_the_head_in_the_same_turn_as_an_earlier_call_is_heard():
    waiters, bells = listening()
    waiters.expect(7)
    waiting = asyncio.create_task(waiters.wait(7, 60))
    await asyncio.sleep(0)
    bells.ring(Wakeup("lease/k", 7, 1))
    bells.ring(Wakeup("lease/k", 7, 0))
    async with asyncio.timeout(0.1):
        assert await waiting


async def test_ring_that_overtakes_the_reply_naming_the_place_is_heard():
    waiters, bells = listening()
    bells.ring(Wakeup("lease/k", 7, 0))
    waiters.expect(7)
    async with asyncio.timeout(0.1):
        assert await waiters.wait(7, 60)


async def test_later_call_from_behind_does_not_hide_the_call_of_the_head():
    waiters, bells = listening()
    waiters.expect(7)
    bells.ring(Wakeup("lease/k", 7, 0))
    bells.ring(Wakeup("lease/k", 7, 1))
    async with asyncio.timeout(0.1):
        assert await waiters.wait(7, 60)


async def test_rings_for_strangers_are_forgotten_in_the_end():
    waiters, bells = listening()
    for place in range(10_000):
        bells.ring(Wakeup("lease/k", place, 0))
    assert len(waiters._strangers) < 1_000
