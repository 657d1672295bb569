"""Cases of sessions: ownership hangs on them, and only who is gone loses what it owned."""

from __future__ import annotations

import asyncio

import pytest

from outlive.errors import Fenced, LeaseExpired
from outlive.model.instance import InstanceStatus, ReclaimedInstance
from outlive.names import HostId, InstanceId
from outlive.testing.conformance.instance_runner import message, runner, runners
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class SessionCases:
    """Only a living session claims."""

    @scenario
    async def test_a_session_that_never_was_claims_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        with pytest.raises(Fenced):
            await a.claim(session=HostId("never-was"))
        assert await a.status("i") is InstanceStatus.PENDING

    @scenario
    async def test_a_session_that_ended_claims_nothing(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i")
        await b.end()
        for limit in (0, 1):
            with pytest.raises(Fenced):
                await b.claim(limit)
        assert await a.status("i") is InstanceStatus.PENDING

    @scenario
    async def test_a_session_whose_time_ran_out_claims_nothing(self, lab: Lab) -> None:
        a, late = await runner(lab, "a"), await runner(lab, "late", ttl=lab.short_s)
        await a.put("i")
        await lab.expire()
        with pytest.raises(LeaseExpired):
            await late.claim()
        assert await a.status("i") is InstanceStatus.PENDING
        await a.reap()
        with pytest.raises(Fenced):
            await late.claim()
        assert await a.ids() == ["i"]

    @scenario
    async def test_an_ended_session_is_refused_a_repeat_too(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        request = a.request()
        await a.instances.claim(request)
        await a.end()
        with pytest.raises(Fenced):
            await a.ask(request=request.request, again=True)

    @scenario
    async def test_a_renewed_session_claims_on(self, lab: Lab) -> None:
        a = await runner(lab, ttl=lab.short_s)
        await a.put("i")
        await a.hosts.renew(a.id, round(LONG_S * 1e6))
        await lab.expire()
        assert await a.ids() == ["i"]

    @scenario
    async def test_a_host_claims_for_sessions_of_others(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        guest = await a.open_session(HostId("guest-of-a"))
        await a.put("x")
        mine = await a.own("y")
        held = await a.claim_one(session=guest)
        assert (await a.record("x")).owner == guest
        await b.hosts.close(guest)
        assert await b.reclaim() == ["x"]
        assert (await a.commit(mine)).ok
        assert not (await a.commit(held)).ok


class ReclaimCases:
    """What the gone had can be claimed again; nobody else loses anything."""

    @scenario
    async def test_the_living_lose_nothing(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        assert await b.reclaim() == []
        assert (await a.commit(held)).ok

    @scenario
    async def test_an_expired_session_keeps_what_it_has_until_it_is_reaped(self, lab: Lab) -> None:
        a = await runner(lab, "a")
        late = await runner(lab, "late", ttl=lab.short_s)
        x, y = await late.own("x"), await late.own("y")
        await lab.expire()
        assert await a.reclaim() == []
        assert (await a.record("x")).owner == late.id
        await a.reap()
        assert await a.reclaim() == ["x", "y"]
        for held in (x, y):
            assert not (await late.commit(held)).ok
        assert sorted(await a.ids()) == ["x", "y"]

    @scenario
    async def test_between_the_end_of_a_session_and_the_reclaim_one_of_both_wins(
        self, lab: Lab
    ) -> None:
        a, gone = await runners(lab, 2)
        held = await gone.own("i")
        await gone.end()
        assert await a.ids() == []
        # Whether the token alone decides or the session as well is the driver's choice.
        done = (await gone.commit(held)).ok
        assert await a.reclaim() == ["i"]
        assert (await a.claim_one()).version == (1 if done else 0)

    @scenario
    async def test_what_was_taken_can_be_claimed_at_once(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        held = await gone.own("i", "f", kind="chart")
        far_us = await a.now_us() + round(LONG_S * 1e6)
        held = await gone.advance(held, due_at_us=far_us, custom='"c"')
        await gone.end()
        assert list(await a.instances.reclaim(limit=10)) == [
            ReclaimedInstance(InstanceId("i"), "chart", "f")
        ]
        found = await a.record("i")
        assert (found.owner, found.owned_by) == (None, None)
        assert found.status is InstanceStatus.RUNNING
        claimed = await a.claim_one(kind="chart")
        assert (claimed.version, claimed.custom) == (1, '"c"')
        assert await a.versions("i") == [1]

    @scenario
    async def test_each_reclaim_makes_the_token_greater(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        held = await gone.own("i")
        await gone.end()
        await a.reclaim()
        assert (await a.record("i")).token > held.token
        assert (await a.claim_one()).token > held.token + 1

    @scenario
    async def test_who_lost_it_can_do_nothing_more(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        await a.put("other")
        held = await gone.own("i")
        await gone.end()
        await a.reclaim()
        for _ in ("nobody has it", "somebody has it"):
            before = await a.record("i")
            for commit in (
                gone.next(held),
                gone.next(held, release=True, sends=(message("other", "m"),)),
                gone.next(held, status=InstanceStatus.COMPLETED, outcome="1"),
            ):
                assert not (await gone.send_commit(commit)).ok
            assert not await gone.release(held)
            assert await a.record("i") == before
            if before.owner is None:
                await a.claim(2)
        assert await a.mail("other") == []

    @scenario
    async def test_what_the_gone_had_given_up_or_ended_is_left_alone(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        await gone.park("parked")
        await gone.put_ended("ended")
        await gone.own("terminated")
        await a.terminate("terminated")
        await gone.own("held")
        await gone.end()
        assert await a.reclaim() == ["held"]
        assert await a.ids() == ["held"]

    @scenario
    async def test_a_suspended_one_is_taken_and_stays_suspended(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        held = await gone.own("i")
        await a.suspend("i")
        await gone.end()
        assert await a.reclaim() == ["i"]
        assert await a.ids() == []
        assert not (await gone.commit(held)).ok
        await a.resume("i")
        assert await a.ids() == ["i"]

    @scenario
    async def test_reclaiming_keeps_to_its_limit(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        await a.put(*(f"i{number}" for number in range(7)))
        await gone.claim(7)
        await gone.end()
        counts = [len(await a.instances.reclaim(limit=3)) for _ in range(4)]
        assert counts == [3, 3, 1, 0]
        assert len(await a.ids()) == 7

    @scenario
    async def test_two_reclaimers_never_take_the_same(self, lab: Lab) -> None:
        *peers, gone = await runners(lab, 5)
        names = sorted(f"i{number}" for number in range(40))
        await gone.put(*names)
        tokens = {found.id: found.token for found in await gone.claim(40)}
        await gone.end()
        found = await asyncio.gather(*(peer.reclaim(15) for peer in peers for _ in range(3)))
        assert sorted(id_ for ids in found for id_ in ids) == names
        for name in names:
            assert (await gone.record(name)).token == tokens[InstanceId(name)] + 1


class ReleaseCases:
    """An owner gives an instance up."""

    @scenario
    async def test_what_is_given_up_waits_for_what_it_waited_for(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        far_us = await a.now_us() + round(LONG_S * 1e6)
        for id_, due_at_us in (("timed", far_us), ("never", None)):
            held = await a.advance(await a.own(id_), due_at_us=due_at_us)
            assert await a.release(held)
            found = await a.record(id_)
            assert (found.owner, found.status) == (None, InstanceStatus.RUNNING)
        assert await b.ids() == []
        await a.send("never", "m")
        assert await b.ids() == ["never"]

    @scenario
    async def test_what_is_given_up_as_due_can_be_claimed_at_once(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.advance(await a.own("i"))
        assert await a.release(held, due=True)
        claimed = await b.claim_one()
        assert (claimed.version, claimed.token) == (1, held.token + 1)

    @scenario
    async def test_only_its_owner_gives_it_up(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        old = await a.own("i")
        assert await a.release(old, due=True)
        assert not await a.release(old, due=True)
        new = await b.claim_one()
        assert not await a.release(old)
        assert (await b.record("i")).owner == b.id
        assert await b.release(new)

    @scenario
    async def test_each_is_answered_for_itself(self, lab: Lab) -> None:
        a = await runner(lab)
        x, y = await a.own("x"), await a.own("y")
        await a.finish(y)
        assert await a.release(x)
        assert not await a.release(y)
        assert await a.status("y") is InstanceStatus.COMPLETED
