"""Cases of operating: cancel, retry, delete, and what the store tidies up by itself."""

from __future__ import annotations

from outlive.model.job import Changed, JobState, Settled, Tended, Want
from outlive.names import JobId
from outlive.testing.conformance.job_sessions import reclaim
from outlive.testing.conformance.job_worker import ERROR, PAST_S, SOON_S, Worker, worker, workers
from outlive.testing.conformance.lab import LONG_S, SHORT_S, Lab, scenario


async def one_of_each(a: Worker) -> None:
    """A job in each state, named for it."""
    await a.put("done", "dead", "retrying", "claimed")
    done, dead, retrying, _ = await a.claim(4)
    await a.complete(done)
    await a.fail(dead)
    await a.fail(retrying, retry=LONG_S)
    await a.put("scheduled", delay=LONG_S)
    await a.put("cancelled")
    await a.cancel("cancelled")
    await a.put("ready")


class CancelCases:
    """A job nobody wants any more ends at once, or by way of who runs it."""

    @scenario
    async def test_what_waits_is_cancelled_at_once(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        for name in ("ready", "scheduled", "retrying"):
            assert await a.cancel(name, "wrong address") is Changed.CHANGED
            found = await a.record(name)
            assert found.state is JobState.CANCELLED
            assert found.ended_at is not None
            assert "wrong address" in (found.error or "")
        assert await a.ids() == []

    @scenario
    async def test_what_has_ended_cannot_be_cancelled(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        outcomes = await a.jobs.cancel(
            [JobId("done"), JobId("never-was"), JobId("dead"), JobId("ready")], reason="late"
        )
        refused = Changed.REFUSED
        assert list(outcomes) == [refused, Changed.NOT_FOUND, refused, Changed.CHANGED]
        assert await a.state("done") is JobState.DONE

    @scenario
    async def test_a_claimant_hears_that_its_job_is_to_be_cancelled(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        claimed = await a.claim_one()
        assert await b.cancel("j") is Changed.REQUESTED
        found = await b.record("j")
        assert (found.state, found.cancel_requested) == (JobState.CLAIMED, True)
        assert await a.extend(claimed, "0.5") is Settled.CANCEL
        assert (await b.record("j")).progress == "0.5"

    @scenario
    async def test_a_claimant_that_gives_up_ends_a_cancelled_job(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("failed", "released", "later", "lost")
        failed, released, later, _ = await gone.claim(4)
        for name in ("failed", "released", "later", "lost"):
            await a.cancel(name)
        assert await gone.fail(failed, retry=0) is Settled.OK
        assert await gone.release(released) is Settled.OK
        assert await gone.release(later, LONG_S) is Settled.OK
        await gone.end()
        assert await reclaim(a) == ["lost"]
        for name in ("failed", "released", "later", "lost"):
            found = await a.record(name)
            assert found.state is JobState.CANCELLED
            assert found.ended_at is not None
        assert await a.outcomes("failed") == ["failed"]
        assert await a.ids() == []

    @scenario
    async def test_a_cancelled_job_may_still_be_completed(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        await a.cancel("j")
        assert await a.complete(claimed, "1") is Settled.OK
        found = await a.record("j")
        assert (found.state, found.result) == (JobState.DONE, "1")


class RetryCases:
    """Somebody wants a job run now, whatever it waits for."""

    @scenario
    async def test_what_waits_is_ready_now(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        for name in ("scheduled", "retrying", "ready"):
            assert await a.retry(name) is Changed.CHANGED
            assert await a.state(name) is JobState.READY
        assert (await a.record("retrying")).attempts == 1
        assert sorted(await a.ids()) == ["ready", "retrying", "scheduled"]

    @scenario
    async def test_the_dead_begin_again(self, lab: Lab) -> None:
        a, gone = await workers(lab, 2)
        await a.put("j")
        await gone.claim_one()
        await gone.end()
        await reclaim(a)
        old = await a.claim_one()
        await a.fail(old)
        assert await a.retry("j") is Changed.CHANGED
        found = await a.record("j")
        assert (found.state, found.attempts, found.losses) == (JobState.READY, 0, 0)
        assert found.ended_at is None
        new = await a.claim_one()
        assert new.token > old.token
        assert (new.attempts, new.losses) == (0, 0)

    @scenario
    async def test_the_cancelled_begin_again(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("waiting", "claimed")
        await a.cancel("waiting")
        claimed = await a.claim_one()
        await a.cancel("claimed")
        await a.fail(claimed)
        for name in ("waiting", "claimed"):
            assert await a.retry(name) is Changed.CHANGED
            assert not (await a.record(name)).cancel_requested
        for claimed in await a.claim(5):
            assert await a.extend(claimed) is Settled.OK
            assert await a.fail(claimed) is Settled.OK
        assert await a.state("claimed") is JobState.DEAD

    @scenario
    async def test_what_runs_or_is_done_cannot_be_retried(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        outcomes = await a.jobs.retry(
            [JobId("done"), JobId("dead"), JobId("never-was"), JobId("claimed")]
        )
        refused = Changed.REFUSED
        assert list(outcomes) == [refused, Changed.CHANGED, Changed.NOT_FOUND, refused]
        assert await a.state("claimed") is JobState.CLAIMED

    @scenario
    async def test_an_expired_job_that_is_retried_can_be_claimed(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", expires=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        await a.jobs.tend(limit=10)
        assert await a.retry("j") is Changed.CHANGED
        assert await a.ids() == ["j"]


class DeleteCases:
    """What has ended may be forgotten."""

    @scenario
    async def test_only_the_ended_are_deleted(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        ended, live = ("done", "dead", "cancelled"), ("ready", "scheduled", "retrying", "claimed")
        for name in ended:
            assert await a.purge(name) is Changed.CHANGED
            assert await a.jobs.get(JobId(name)) is None
            assert list(await a.jobs.attempts(JobId(name))) == []
        for name in live:
            assert await a.purge(name) is Changed.REFUSED
        assert await a.purge("never-was") is Changed.NOT_FOUND
        assert sorted(await a.list()) == sorted(live)

    @scenario
    async def test_a_deleted_id_may_be_used_again(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", unique_key="u", payload="1")
        await a.fail(await a.claim_one())
        await a.purge("j")
        await a.put("j", unique_key="u", payload="2")
        found = await a.claim_one()
        assert (found.payload, found.attempts) == ("2", 0)
        assert await a.outcomes("j") == []


class TendCases:
    """Expiry and retention, by the store's clock and in bounded steps."""

    @scenario
    async def test_an_expired_job_is_never_claimed(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("expired", "by-id", expires=SOON_S)
        await a.put("fresh", expires=LONG_S)
        await lab.advance(SOON_S + PAST_S)
        assert await a.claim_by_id("by-id") == []
        assert await a.ids() == ["fresh"]

    @scenario
    async def test_an_expired_job_is_dead(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("ready", expires=SOON_S)
        await a.put("scheduled", expires=SOON_S, delay=LONG_S)
        await a.put("retrying", expires=SHORT_S)
        await a.fail((await a.claim_by_id("retrying"))[0], retry=LONG_S)
        await lab.advance(SHORT_S + PAST_S)
        assert await a.jobs.tend(limit=10) == Tended(3, 0)
        for name in ("ready", "scheduled", "retrying"):
            found = await a.record(name)
            assert found.state is JobState.DEAD
            assert found.ended_at is not None
            assert (await a.outcomes(name))[0] == "expired"
            expired = f'"expired: not claimed within {SOON_S:g} s"'
            assert found.error == (ERROR if name == "retrying" else expired)
        assert await a.jobs.tend(limit=10) == Tended(0, 0)

    @scenario
    async def test_a_claimed_job_does_not_expire(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", expires=SHORT_S)
        claimed = await a.claim_one()
        await lab.advance(SHORT_S + PAST_S)
        assert await a.jobs.tend(limit=10) == Tended(0, 0)
        assert await a.complete(claimed) is Settled.OK

    @scenario
    async def test_an_expired_head_passes_its_turn_on(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x", expires=SOON_S, unique_key="u")
        await a.put("x2", ordering_key="x")
        await lab.advance(SOON_S + PAST_S)
        await a.jobs.tend(limit=10)
        await a.put("x3", ordering_key="x", unique_key="u")
        assert await a.ids() == ["x2"]

    @scenario
    async def test_an_expired_head_passes_its_turn_at_the_next_claim(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x", expires=SOON_S)
        await a.put("x2", ordering_key="x")
        await a.put("y1", ordering_key="y", expires=SOON_S, delay=LONG_S)
        await a.put("y2", ordering_key="y")
        await a.put("other", queue="other")
        await lab.advance(SOON_S + PAST_S)
        wants = (Want("q", 2), Want("other", 5))
        assert sorted(await a.ids(3, wants=wants, wait=LONG_S)) == ["other", "x2", "y2"]
        assert await a.outcomes("x1") == ["expired"]

    @scenario
    async def test_a_claim_that_ends_the_expired_keeps_to_its_limits(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("first")
        await a.put("x1", ordering_key="x", expires=SOON_S)
        await a.put("x2", ordering_key="x")
        await lab.advance(SOON_S + PAST_S)
        wants = (Want("q", 1), Want("other", 5))
        assert await a.ids(5, wants=wants) == ["first"]
        assert await a.ids(5, wants=wants) == ["x2"]

    @scenario
    async def test_an_ended_job_is_kept_for_its_retention(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("done", "dead", "cancelled", retention=SOON_S)
        done, dead = await a.claim(2)
        await a.complete(done)
        await a.fail(dead)
        await a.cancel("cancelled")
        await a.put("longer", retention=LONG_S)
        await a.complete(await a.claim_one())
        await a.put("live", retention=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        assert await a.jobs.tend(limit=10) == Tended(0, 3)
        assert await a.list() == ["longer", "live"]

    @scenario
    async def test_a_job_without_retention_is_gone_when_it_ends(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("done", "dead", "cancelled", retention=0)
        done, dead = await a.claim(2)
        assert await a.complete(done, "1") is Settled.OK
        assert await a.fail(dead) is Settled.OK
        assert await a.cancel("cancelled") is Changed.CHANGED
        assert await a.list() == []
        assert await a.jobs.tend(limit=10) == Tended(0, 0)

    @scenario
    async def test_a_retried_job_is_not_pruned(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", retention=SOON_S)
        await a.fail(await a.claim_one())
        await a.retry("j")
        await lab.advance(SOON_S + PAST_S)
        assert await a.jobs.tend(limit=10) == Tended(0, 0)
        assert await a.ids() == ["j"]

    @scenario
    async def test_tending_keeps_to_its_limit(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put(*(f"e{number}" for number in range(5)), expires=SOON_S)
        await a.put(*(f"r{number}" for number in range(5)), retention=SOON_S, priority=1)
        for claimed in await a.claim(5):
            await a.complete(claimed)
        await lab.advance(SOON_S + PAST_S)
        tended = [await a.jobs.tend(limit=3) for _ in range(3)]
        assert tended == [Tended(3, 3), Tended(2, 2), Tended(0, 0)]
