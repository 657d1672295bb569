"""Cases of semaphores: a key with several slots, each a grant of its own.

All of them ask for the promise ``semaphore``.
"""

from __future__ import annotations

import pytest

from outlive.errors import Fenced, LeaseExpired
from outlive.model.lease import Grant, Held
from outlive.model.turns import PASS_AFTER_US
from outlive.testing.conformance.lab import BEYOND_S, Lab, scenario


class SemaphoreCases:
    """Slots, and what happens when two programs disagree about their number."""

    @scenario
    async def test_as_many_slots_as_the_limit_are_granted(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        grants = [await a.own("k", str(number), limit=3) for number in range(3)]
        assert sorted(grant.slot for grant in grants) == [0, 1, 2]
        tokens = [grant.token for grant in grants]
        assert tokens == sorted(set(tokens))
        held = await b.is_refused("k", limit=3)
        assert held.owner in {grant.owner for grant in grants}
        assert held.limit == 3
        assert held.retry_in_s > 0

    @scenario
    async def test_a_released_slot_is_granted_again(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        grants = [await a.own("k", str(number), limit=2) for number in range(2)]
        await b.is_refused("k", limit=2)
        await a.leases.release(grants[0])
        new = await b.own("k", limit=2)
        assert new.slot == grants[0].slot
        assert new.token > max(grant.token for grant in grants)

    @scenario
    async def test_an_expired_slot_is_taken_over(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        dying = await a.own_briefly("k", "1", limit=2)
        living = await a.own("k", "2", limit=2)
        await lab.expire()
        new = await b.own("k", limit=2)
        assert new.slot == dying.slot
        assert new.previous_owner == dying.owner
        with pytest.raises(Fenced):
            await a.renew(dying)
        await a.renew(living)

    @scenario
    async def test_slots_are_renewed_and_released_independently(self, lab: Lab) -> None:
        lab.require("semaphore")
        a = await lab.host("a")
        first = await a.own_briefly("k", "1", limit=2)
        second = await a.own_briefly("k", "2", limit=2)
        second = await a.renew(second)
        await lab.expire()
        with pytest.raises(LeaseExpired):
            await a.renew(first)
        second = await a.renew(second)
        await a.leases.release(first)
        await a.renew(second)
        await a.leases.release(second)
        with pytest.raises(Fenced):
            await a.leases.release(second)

    @scenario
    async def test_a_lost_reply_does_not_take_a_second_slot(self, lab: Lab) -> None:
        lab.require("semaphore")
        a = await lab.host("a")
        first = await a.own("k", "1", limit=2)
        again = await a.own("k", "1", limit=2)
        assert (again.slot, again.token) == (first.slot, first.token)
        await a.own("k", "2", limit=2)
        await a.is_refused("k", "3", limit=2)

    @scenario
    async def test_one_slot_cannot_be_used_to_end_another(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        first, second = await a.own("k", limit=2), await b.own("k", limit=2)
        forged = Grant("k", second.slot, first.owner, first.token, first.version, first.ttl_us)
        with pytest.raises(Fenced):
            await a.leases.release(forged)
        with pytest.raises(Fenced):
            await a.renew(forged)
        await b.renew(second)

    @scenario
    async def test_another_limit_is_refused_while_slots_are_owned(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k", limit=3)
        for asked in (2, 4, 1):
            assert (await b.is_refused("k", limit=asked)).limit == 3
        await b.own("k", limit=3)

    @scenario
    async def test_a_semaphore_is_refused_while_a_lock_is_owned(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        await a.own("k")
        assert (await b.is_refused("k", limit=5)).limit == 1

    @scenario
    async def test_the_limit_may_change_when_nobody_owns_a_slot(self, lab: Lab) -> None:
        lab.require("semaphore")
        a = await lab.host("a")
        wide = [await a.own("k", f"w{number}", limit=3) for number in range(3)]
        for grant in wide:
            await a.leases.release(grant)
        lock = await a.own("k", "lock", limit=1)
        assert lock.token > max(grant.token for grant in wide)
        assert (await a.is_refused("k", "other")).limit == 1
        await a.leases.release(lock)
        again = [await a.own("k", f"x{number}", limit=2) for number in range(2)]
        assert min(grant.token for grant in again) > lock.token
        await a.is_refused("k", "x2", limit=2)

    @scenario
    async def test_the_limit_may_change_after_expiry(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        old = [await a.own_briefly("k", str(number), limit=2) for number in range(2)]
        await lab.expire()
        lock = await b.own("k")
        assert lock.token > max(grant.token for grant in old)
        for grant in old:
            with pytest.raises((Fenced, LeaseExpired)):
                await a.renew(grant)

    @scenario
    async def test_a_break_ends_all_slots(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        grants = [await a.own("k", str(number), limit=3) for number in range(3)]
        broken = await b.leases.break_lease("k", reason="stuck")
        assert {record.token for record in broken} == {grant.token for grant in grants}
        for grant in grants:
            with pytest.raises(Fenced):
                await a.renew(grant)
        assert not any(record.active for record in await b.leases.get("k"))
        assert await b.token("k") > max(grant.token for grant in grants)

    @scenario
    async def test_records_show_each_owned_slot(self, lab: Lab) -> None:
        lab.require("semaphore")
        a, b = await lab.host("a"), await lab.host("b")
        mine, yours = await a.own("k", limit=4), await b.own("k", limit=4)
        records = [record for record in await a.leases.get("k") if record.active]
        assert [record.slot for record in records] == sorted((mine.slot, yours.slot))
        assert {record.owner for record in records} == {a.owner(), b.owner()}
        assert {record.limit for record in records} == {4}

    @scenario
    async def test_a_queued_waiter_gets_the_next_free_slot(self, lab: Lab) -> None:
        lab.require("semaphore", "fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grants = [await a.own("k", str(number), limit=2) for number in range(2)]
        place = await b.queue("k", limit=2)
        start = lab.clock.monotonic()
        await a.leases.release(grants[0])
        outcome = await c.attempt("k", limit=2)
        lab.judge_within(PASS_AFTER_US / 1e6, since=start)
        assert isinstance(outcome, Held)
        assert outcome.owner is None
        assert isinstance(await b.attempt("k", limit=2, waiter=place, queue=15), Grant)

    @scenario
    async def test_a_newcomer_may_take_a_slot_that_no_waiter_needs(self, lab: Lab) -> None:
        lab.require("semaphore", "fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grants = [await a.own("k", str(number), limit=2) for number in range(2)]
        place = await b.queue("k", limit=2)
        for grant in grants:
            await a.leases.release(grant)
        await c.own("k", limit=2)
        assert isinstance(await b.attempt("k", limit=2, waiter=place, queue=15), Grant)

    @scenario
    async def test_a_dead_waiter_is_passed_on_a_semaphore_too(self, lab: Lab) -> None:
        lab.require("semaphore", "fifo")
        a, b, c = await lab.host("a"), await lab.host("b"), await lab.host("c")
        grants = [await a.own("k", str(number), limit=2) for number in range(2)]
        await b.queue("k", limit=2)
        await a.leases.release(grants[1])
        await lab.advance(PASS_AFTER_US / 1e6 + BEYOND_S)
        await c.own("k", limit=2)
