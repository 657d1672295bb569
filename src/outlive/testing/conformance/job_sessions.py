"""Cases of sessions: claims hang on them, and only who is gone loses what it claimed."""

from __future__ import annotations

import asyncio

import pytest

from outlive.errors import Fenced, LeaseExpired
from outlive.model.job import (
    MAX_LOSSES,
    SUSPECT_LOSSES,
    JobState,
    Reclaimed,
    Settled,
    Want,
)
from outlive.names import HostId, JobId
from outlive.testing.conformance.job_settle import settle_in_every_way
from outlive.testing.conformance.job_worker import Worker, job, worker, workers
from outlive.testing.conformance.lab import Lab, scenario


async def reap(one: Worker) -> None:
    """End what has expired, as a peer's heartbeat does."""
    await one.hosts.reap(limit=100)


async def reclaim(one: Worker, limit: int = 100) -> list[str]:
    """Take back the claims of the gone, and return their ids in order of name."""
    return sorted(found.id for found in await one.jobs.reclaim(limit=limit))


class SessionCases:
    """Only a living session claims."""

    @scenario
    async def test_a_session_that_never_was_claims_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        with pytest.raises(Fenced):
            await a.claim(session=HostId("never-was"))
        assert await a.state("j") is JobState.READY

    @scenario
    async def test_a_session_that_ended_claims_nothing(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        await b.end()
        with pytest.raises(Fenced):
            await b.claim()
        with pytest.raises(Fenced):
            await b.claim_by_id("j")
        assert await a.state("j") is JobState.READY

    @scenario
    async def test_a_session_whose_time_ran_out_claims_nothing(self, lab: Lab) -> None:
        a, late = await worker(lab, "a"), await worker(lab, "late", ttl=lab.short_s)
        await a.put("j")
        await lab.expire()
        with pytest.raises(LeaseExpired):
            await late.claim()
        assert await a.state("j") is JobState.READY
        await reap(a)
        with pytest.raises(Fenced):
            await late.claim()
        assert await a.ids() == ["j"]

    @scenario
    async def test_a_renewed_session_claims_on(self, lab: Lab) -> None:
        a = await worker(lab, ttl=lab.short_s)
        await a.put("j")
        await a.hosts.renew(a.id, 60_000_000)
        await lab.expire()
        assert await a.ids() == ["j"]

    @scenario
    async def test_a_host_claims_for_sessions_of_others(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("x", "y", "z")
        guest = await a.open_session(HostId("guest-of-a"))
        await a.claim(1)
        (mine,) = await a.claim(1, session=guest)
        assert (await a.record("y")).session == guest
        await b.hosts.close(guest)
        assert await reclaim(b) == ["y"]
        assert await a.state("x") is JobState.CLAIMED
        assert await a.extend(mine) is Settled.LOST

    @scenario
    async def test_an_unknown_session_is_refused_a_repeat_too(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        request = a.request()
        await a.jobs.claim(request)
        await a.end()
        with pytest.raises(Fenced):
            await a.ask(request=request.request, again=True)


class ReclaimCases:
    """What the gone had claimed is ready again; nobody else loses anything."""

    @scenario
    async def test_the_living_lose_nothing(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j", "k")
        claimed = await a.claim_one()
        assert await reclaim(b) == []
        assert await a.extend(claimed) is Settled.OK
        assert (await a.record("j")).losses == 0

    @scenario
    async def test_an_expired_session_keeps_its_claims_until_it_is_reaped(self, lab: Lab) -> None:
        a = await worker(lab, "a")
        await a.put("x", "y")
        late = await worker(lab, "late", ttl=lab.short_s)
        x, y = await late.claim(2)
        await lab.expire()
        assert await reclaim(a) == []
        assert await late.complete(x) is Settled.OK
        await reap(a)
        assert await reclaim(a) == ["y"]
        assert await late.complete(y) is Settled.LOST
        assert await a.state("x") is JobState.DONE

    @scenario
    async def test_between_the_end_of_a_session_and_the_reclaim_one_of_both_wins(
        self, lab: Lab
    ) -> None:
        a, gone = await workers(lab, 2)
        await a.put("j")
        claimed = await gone.claim_one()
        await gone.end()
        assert await a.ids() == []
        # Whether the token alone decides or the session as well is the driver's choice.
        outcome = await gone.complete(claimed)
        done = outcome is Settled.OK
        assert await reclaim(a) == ([] if done else ["j"])
        assert await a.state("j") is (JobState.DONE if done else JobState.READY)

    @scenario
    async def test_what_was_taken_is_ready_at_its_old_place(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("first", "second", "third")
        await gone.claim(2)
        await gone.end()
        outcome = sorted(await a.jobs.reclaim(limit=100), key=lambda found: found.id)
        assert outcome == [
            Reclaimed(JobId("first"), "q", JobState.READY),
            Reclaimed(JobId("second"), "q", JobState.READY),
        ]
        assert await a.ids() == ["first", "second", "third"]

    @scenario
    async def test_a_loss_is_kept_and_counted_apart(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("j")
        lost = await gone.claim_one(worker="gone-1")
        await gone.end()
        await reclaim(a)
        found = await a.record("j")
        assert (found.state, found.attempts, found.losses) == (JobState.READY, 0, 1)
        (attempt,) = await a.jobs.attempts(JobId("j"))
        assert (attempt.outcome, attempt.token, attempt.worker) == ("lost", lost.token, "gone-1")
        again = await a.claim_one()
        assert (again.attempts, again.losses) == (0, 1)
        assert again.token > lost.token

    @scenario
    async def test_who_lost_its_claim_can_do_nothing_more(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("j")
        lost = await gone.claim_one()
        await gone.end()
        await reclaim(a)
        before = await a.record("j")
        assert set(await settle_in_every_way(gone, lost)) == {Settled.LOST}
        assert await a.record("j") == before
        await a.claim_one()
        before = await a.record("j")
        assert set(await settle_in_every_way(gone, lost)) == {Settled.LOST}
        assert await a.record("j") == before

    @scenario
    async def test_too_many_losses_are_the_end(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", max_losses=1)
        for state in (JobState.READY, JobState.DEAD):
            victim = await worker(lab, "victim")
            await victim.claim_one()
            await victim.end()
            assert list(await a.jobs.reclaim(limit=10)) == [Reclaimed(JobId("j"), "q", state)]
        found = await a.record("j")
        assert (found.losses, found.attempts) == (2, 0)
        assert found.ended_at is not None
        assert await a.outcomes("j") == ["lost", "lost"]
        assert found.error == '"lost too often: losses 2, max_losses 1, last host victim"'
        assert await a.ids() == []

    @scenario
    async def test_the_claim_says_how_often_a_job_may_be_lost(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", "other")
        for state in (JobState.READY, JobState.DEAD):
            victim = await worker(lab, "victim")
            await victim.claim_one(wants=(Want("q", 1, max_losses=1),))
            await victim.end()
            assert list(await a.jobs.reclaim(limit=10)) == [Reclaimed(JobId("j"), "q", state)]
        assert (await a.record("j")).max_losses == 1
        assert (await a.record("other")).max_losses == MAX_LOSSES

    @scenario
    async def test_a_claim_brings_one_suspect_at_most(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("poison", "x", "y", "z")
        await a.put("elsewhere", queue="r")
        names = ["elsewhere", "poison", "x", "y", "z"]
        for _ in range(SUSPECT_LOSSES):
            victim = await worker(lab, "victim")
            assert sorted(await victim.ids(queues=("q", "r"))) == names
            await victim.end()
            assert sorted(await reclaim(a)) == names
        await a.put("fresh", "later")
        assert await a.ids(suspects=False) == ["fresh", "later"]
        # The one lost least often comes first, so that the innocent ones need not wait.
        victim = await worker(lab, "victim")
        (suspect,) = await victim.claim_by_id("poison")
        await victim.end()
        await reclaim(a)
        await a.put("beside")
        found: list[str] = []
        for _ in range(5):
            ids = await a.ids(queues=("q", "r"))
            found += [id_ for id_ in ids if id_ != "beside"]
            assert ids.count("beside") == (len(found) == 1)
        assert (sorted(found[:3]), found[3:]) == (["x", "y", "z"], [suspect.id, "elsewhere"])

    @scenario
    async def test_a_job_that_may_not_be_lost_dies_at_once(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("j", max_losses=0)
        await gone.claim_one()
        await gone.end()
        await reclaim(a)
        assert await a.state("j") is JobState.DEAD

    @scenario
    async def test_reclaiming_keeps_to_its_limit(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put(*(f"j{number}" for number in range(7)))
        await gone.claim(7)
        await gone.end()
        counts = [len(await a.jobs.reclaim(limit=3)) for _ in range(4)]
        assert counts == [3, 3, 1, 0]

    @scenario
    async def test_claims_with_ordering_keys_are_taken_up_to_the_limit_too(self, lab: Lab) -> None:
        lab.require("ordering")
        a, gone = await workers(lab, 2)
        await a.enqueue(*(job(f"j{number}", ordering_key=f"k{number}") for number in range(450)))
        await gone.claim(450)
        await gone.end()
        counts = [len(await a.jobs.reclaim(limit=400)) for _ in range(3)]
        assert counts == [400, 50, 0]

    @scenario
    async def test_what_the_gone_had_settled_is_left_alone(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("done", "dead", "back", "held")
        done, dead, back, _ = await gone.claim(4)
        await gone.complete(done)
        await gone.fail(dead)
        await gone.release(back)
        await gone.end()
        assert await reclaim(a) == ["held"]
        assert (await a.record("back")).losses == 0

    @scenario
    async def test_two_reclaimers_never_take_the_same(self, lab: Lab) -> None:
        *peers, gone = await workers(lab, 5)
        names = sorted(f"j{number}" for number in range(40))
        await gone.put(*names)
        await gone.claim(40)
        await gone.end()
        found = await asyncio.gather(*(reclaim(peer, 15) for peer in peers for _ in range(3)))
        assert sorted(id_ for ids in found for id_ in ids) == names
        assert {(await gone.record(name)).losses for name in names} == {1}
