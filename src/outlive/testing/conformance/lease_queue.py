"""Cases of queueing: first come, first served, and nobody waits long for the dead.

All of them ask for the promise ``fifo``; a backend without it grants whoever asks first.
"""

from __future__ import annotations

from outlive.model.lease import Grant, Held
from outlive.model.turns import PASS_AFTER_US
from outlive.names import WaiterId
from outlive.testing.conformance.lab import BEYOND_S, Lab, Member, scenario

PASS_AFTER_S = PASS_AFTER_US / 1e6
PLACE_S = 15.0


async def keep_place(member: Member, waiter: WaiterId, nonce: str = "1") -> Grant | Held:
    """Attempt again from a place in the queue of ``k``."""
    return await member.attempt("k", nonce, waiter=waiter, queue=PLACE_S)


class QueueCases:
    """Places in the queue of one key."""

    @scenario
    async def test_a_refused_attempt_gets_the_next_place(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        await a.own("k")
        first = await b.is_refused("k", queue=PLACE_S)
        second = await c.is_refused("k", queue=PLACE_S)
        assert first.waiter is not None
        assert second.waiter is not None
        assert first.waiter < second.waiter
        assert (first.ahead, second.ahead) == (0, 1)
        assert (await a.record("k")).waiters == 2

    @scenario
    async def test_no_place_is_given_that_was_not_asked_for(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        assert (await b.is_refused("k")).waiter is None
        assert (await a.record("k")).waiters == 0

    @scenario
    async def test_attempting_again_keeps_the_place(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        await a.own("k")
        place = await b.queue("k")
        await c.queue("k")
        again = await b.is_refused("k", waiter=place, queue=PLACE_S)
        assert (again.waiter, again.ahead) == (place, 0)

    @scenario
    async def test_a_lost_refusal_does_not_queue_twice(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        await a.own("k")
        place = await b.queue("k")
        await c.queue("k")
        again = await b.is_refused("k", queue=PLACE_S)
        assert (again.waiter, again.ahead) == (place, 0)
        assert (await a.record("k")).waiters == 2

    @scenario
    async def test_a_foreign_place_is_worth_nothing(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        await a.own("k")
        place = await b.queue("k")
        forged = await c.is_refused("k", waiter=place, queue=PLACE_S)
        assert forged.waiter != place
        assert forged.ahead == 1

    @scenario
    async def test_the_head_gets_a_released_key_at_once(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        head = await b.queue("k")
        await c.queue("k")
        await a.leases.release(grant)
        assert isinstance(await keep_place(b, head), Grant)
        assert (await a.record("k")).waiters == 1

    @scenario
    async def test_a_newcomer_does_not_overtake_those_who_wait(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        head = await b.queue("k")
        start = lab.clock.monotonic()
        await a.leases.release(grant)
        held = await c.attempt("k")
        lab.judge_within(PASS_AFTER_S, since=start)
        assert isinstance(held, Held)
        assert held.owner is None
        assert held.ahead == 1
        assert 0 < held.retry_in_s <= PASS_AFTER_S
        assert isinstance(await keep_place(b, head), Grant)

    @scenario
    async def test_the_former_owner_does_not_overtake_those_who_wait(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b = await lab.host("a"), await lab.host("b")
        grant = await a.own("k")
        head = await b.queue("k")
        start = lab.clock.monotonic()
        await a.leases.release(grant)
        held = await a.attempt("k", "2")
        lab.judge_within(PASS_AFTER_S, since=start)
        assert isinstance(held, Held)
        assert isinstance(await keep_place(b, head), Grant)

    @scenario
    async def test_the_queue_holds_after_expiry_too(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        start = lab.clock.monotonic()
        await a.own_briefly("k")
        head = await b.queue("k")
        await lab.expire(beyond_s=0.05)
        held = await c.attempt("k")
        lab.judge_within(lab.short_s + PASS_AFTER_S, since=start)
        assert isinstance(held, Held)
        assert held.owner is None
        assert isinstance(await keep_place(b, head), Grant)

    @scenario
    async def test_five_waiters_are_served_in_order_of_arrival(self, lab: Lab) -> None:
        lab.require("fifo")
        grant: Grant = await (await lab.host("a")).own("k")
        owner = await lab.host("a2")
        waiters = [await lab.host(f"w{number}") for number in range(5)]
        places = [await waiter.queue("k") for waiter in waiters]
        assert places == sorted(set(places))
        for number, waiter in enumerate(waiters):
            start = lab.clock.monotonic()
            await owner.leases.release(grant)
            if number < len(waiters) - 1:
                last = await keep_place(waiters[-1], places[-1])
                lab.judge_within(PASS_AFTER_S, since=start)
                assert isinstance(last, Held)
                assert last.waiter == places[-1]
            taken = await keep_place(waiter, places[number])
            assert isinstance(taken, Grant)
            assert taken.token > grant.token
            grant, owner = taken, waiter


class PassingCases:
    """An unresponsive head is passed, and costs its delay once."""

    @scenario
    async def test_the_second_waits_for_the_head_and_then_passes_it(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        await b.queue("k")
        second = await c.queue("k")
        start = lab.clock.monotonic()
        await a.leases.release(grant)
        held = await keep_place(c, second)
        lab.judge_within(PASS_AFTER_S, since=start)
        assert isinstance(held, Held)
        assert held.owner is None
        assert 0 < held.retry_in_s <= PASS_AFTER_S
        await lab.advance(held.retry_in_s + BEYOND_S)
        assert isinstance(await keep_place(c, second), Grant)

    @scenario
    async def test_a_newcomer_passes_a_dead_queue_in_time(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        await b.queue("k", "1")
        await b.queue("k", "2")
        start = lab.clock.monotonic()
        await a.leases.release(grant)
        await lab.advance(PASS_AFTER_S + 0.05)
        held = await c.attempt("k")
        lab.judge_within(2 * PASS_AFTER_S, since=start)
        assert isinstance(held, Held)
        await lab.advance(PASS_AFTER_S + BEYOND_S)
        await c.own("k")

    @scenario
    async def test_a_passed_head_costs_nothing_at_the_next_hand_over(self, lab: Lab) -> None:
        lab.require("fifo")
        a, dead, c, d = [await lab.host(name) for name in "abcd"]
        grant = await a.own("k")
        await dead.queue("k")
        second, third = await c.queue("k"), await d.queue("k")
        await a.leases.release(grant)
        await lab.advance(PASS_AFTER_S + BEYOND_S)
        taken = await keep_place(c, second)
        assert isinstance(taken, Grant)
        await c.leases.release(taken)
        assert isinstance(await keep_place(d, third), Grant)

    @scenario
    async def test_a_passed_head_counts_again_once_it_attempts(self, lab: Lab) -> None:
        lab.require("fifo")
        a, slow, c, d = [await lab.host(name) for name in "abcd"]
        grant = await a.own("k")
        head = await slow.queue("k")
        second, third = await c.queue("k"), await d.queue("k")
        await a.leases.release(grant)
        await lab.advance(PASS_AFTER_S + BEYOND_S)
        taken = await keep_place(c, second)
        assert isinstance(taken, Grant)
        back = await keep_place(slow, head)
        assert isinstance(back, Held)
        assert (back.waiter, back.ahead) == (head, 0)
        start = lab.clock.monotonic()
        await c.leases.release(taken)
        outcome = await keep_place(d, third)
        lab.judge_within(PASS_AFTER_S, since=start)
        assert isinstance(outcome, Held)
        assert isinstance(await keep_place(slow, head), Grant)

    @scenario
    async def test_a_place_that_ran_out_is_ignored(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        await b.queue("k", queue=lab.short_s)
        await lab.expire()
        assert (await a.record("k")).waiters == 0
        await a.leases.release(grant)
        await c.own("k")

    @scenario
    async def test_attempting_again_refreshes_the_place(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        place = await b.queue("k", queue=lab.short_s)
        start = lab.clock.monotonic()
        await b.is_refused("k", waiter=place, queue=PLACE_S)
        lab.judge_within(lab.short_s, since=start)
        await lab.expire()
        start = lab.clock.monotonic()
        await a.leases.release(grant)
        outcome = await c.attempt("k")
        lab.judge_within(PASS_AFTER_S, since=start)
        assert isinstance(outcome, Held)
        assert isinstance(await keep_place(b, place), Grant)


class LeaveCases:
    """Giving up a place."""

    @scenario
    async def test_who_leaves_is_not_waited_for(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grant = await a.own("k")
        place = await b.queue("k")
        await b.leases.leave("k", place, b.owner())
        assert (await a.record("k")).waiters == 0
        await a.leases.release(grant)
        await c.own("k")

    @scenario
    async def test_leaving_twice_or_from_nowhere_is_fine(self, lab: Lab) -> None:
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        await b.leases.leave("k", WaiterId(987_654_321), b.owner())
        await b.leases.leave("never granted", WaiterId(1), b.owner())
        if lab.capabilities.fifo:
            place = await b.queue("k")
            await b.leases.leave("k", place, b.owner())
            await b.leases.leave("k", place, b.owner())

    @scenario
    async def test_an_owner_that_never_learned_its_place_can_leave(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        await b.queue("k")
        await b.leases.leave("k", WaiterId(0), b.owner())
        assert (await a.record("k")).waiters == 0

    @scenario
    async def test_nobody_leaves_for_somebody_else(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        await a.own("k")
        place = await b.queue("k")
        await c.leases.leave("k", place, c.owner())
        assert (await a.record("k")).waiters == 1

    @scenario
    async def test_a_queue_belongs_to_one_key(self, lab: Lab) -> None:
        lab.require("fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        await a.own("k")
        place = await b.queue("k")
        await c.own("other")
        await b.leases.leave("other", place, b.owner())
        assert (await a.record("k")).waiters == 1
