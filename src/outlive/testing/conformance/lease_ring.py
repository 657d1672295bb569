"""Cases of wake-ups that follow from leases: who is told that a key became free.

All of them ask for the promises ``fifo`` and ``push``.
"""

from __future__ import annotations

from outlive.model.turns import RING_DEPTH
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.lab import Lab, scenario
from outlive.testing.conformance.wakeups import Bell


class RingCases:
    """A freed key rings toward the head of its queue."""

    @scenario
    async def test_a_release_rings_for_the_head_on_its_host(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        bell_b, bell_c = Bell(b), Bell(c)
        grant = await a.own("k")
        place = await b.queue("k")
        await a.leases.release(grant)
        assert await bell_b.next() == Wakeup("lease/k", place, 0)
        await bell_c.stays_silent()
        await bell_b.stays_silent()

    @scenario
    async def test_the_first_few_are_told_their_position(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a = await lab.host("a")
        waiters = [await lab.host(f"w{number}") for number in range(RING_DEPTH + 1)]
        bells = [Bell(waiter) for waiter in waiters]
        grant = await a.own("k")
        places = [await waiter.queue("k") for waiter in waiters]
        await a.leases.release(grant)
        for position in range(RING_DEPTH):
            expected = Wakeup("lease/k", places[position], position)
            assert await bells[position].next() == expected
        await bells[RING_DEPTH].stays_silent()

    @scenario
    async def test_waiters_of_one_host_are_each_told(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a, b = await lab.host("a"), await lab.host("b")
        bell = Bell(b)
        grant = await a.own("k")
        first, second = await b.queue("k", "1"), await b.queue("k", "2")
        await a.leases.release(grant)
        heard = {await bell.next(), await bell.next()}
        assert heard == {Wakeup("lease/k", first, 0), Wakeup("lease/k", second, 1)}

    @scenario
    async def test_a_break_rings_too(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        bell = Bell(b)
        await a.own("k")
        place = await b.queue("k")
        await c.leases.break_lease("k", reason="stuck")
        assert await bell.next() == Wakeup("lease/k", place, 0)

    @scenario
    async def test_a_head_that_leaves_a_free_key_rings_for_the_next(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        bell = Bell(c)
        grant = await a.own("k")
        head, second = await b.queue("k"), await c.queue("k")
        await a.leases.release(grant)
        assert await bell.next() == Wakeup("lease/k", second, 1)
        await b.leases.leave("k", head, b.owner())
        assert await bell.next() == Wakeup("lease/k", second, 0)

    @scenario
    async def test_nobody_is_rung_who_has_left(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a, b = await lab.host("a"), await lab.host("b")
        bell = Bell(b)
        grant = await a.own("k")
        place = await b.queue("k")
        await b.leases.leave("k", place, b.owner())
        await a.leases.release(grant)
        await bell.stays_silent()

    @scenario
    async def test_the_key_of_a_ring_is_exact(self, lab: Lab) -> None:
        lab.require("fifo", "push")
        a, b = await lab.host("a"), await lab.host("b")
        bell = Bell(b)
        for key in ("a/b", "lease/x", "x:y,z", "it's", "\U0001f511 \N{SNOWMAN}", "k" * 512):
            grant = await a.own(key)
            place = await b.queue(key)
            await a.leases.release(grant)
            assert await bell.next() == Wakeup(f"lease/{key}", place, 0)
