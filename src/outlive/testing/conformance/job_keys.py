"""Cases of keys: one live job per unique key, and jobs of an ordering key one at a time."""

from __future__ import annotations

from outlive.model.job import Changed, Enqueued, Entry, JobState, OnDuplicate, Want
from outlive.names import JobId
from outlive.testing.conformance.job_sessions import reclaim
from outlive.testing.conformance.job_worker import PAST_S, SOON_S, job, worker, workers
from outlive.testing.conformance.lab import LONG_S, SHORT_S, Lab, scenario


class UniqueCases:
    """A unique key is taken while a job that has it lives, and free afterwards."""

    @scenario
    async def test_a_second_job_of_a_live_key_is_rejected(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("first", unique_key="u")
        rejected = [Enqueued(JobId("first"), Entry.REJECTED)]
        assert await b.enqueue(job("second", unique_key="u")) == rejected
        await a.claim_one()
        assert await b.enqueue(job("third", unique_key="u")) == rejected
        assert await b.jobs.get(JobId("second")) is None

    @scenario
    async def test_a_key_is_live_while_its_job_waits(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("scheduled", unique_key="s", delay=LONG_S)
        await a.put("retrying", unique_key="r")
        await a.fail(await a.claim_one(), retry=LONG_S)
        outcomes = await a.enqueue(job("x", unique_key="s"), job("y", unique_key="r"))
        assert [outcome.entry for outcome in outcomes] == [Entry.REJECTED, Entry.REJECTED]

    @scenario
    async def test_a_key_is_free_after_every_end(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("done", unique_key="u")
        await a.complete(await a.claim_one())
        await a.put("dead", unique_key="u")
        await a.fail(await a.claim_one())
        await a.put("cancelled", unique_key="u")
        await a.cancel("cancelled")
        await a.put("live", unique_key="u")
        assert await a.list(unique_key="u") == ["done", "dead", "cancelled", "live"]

    @scenario
    async def test_a_key_of_an_expired_job_is_free(self, lab: Lab) -> None:
        a = await worker(lab)
        names = [choice.value for choice in OnDuplicate]
        for name in names:
            await a.put(f"old-{name}", unique_key=name, expires=SOON_S, delay=LONG_S)
        await a.put("kept", unique_key="kept", expires=LONG_S)
        await lab.advance(SOON_S + PAST_S)
        for name in names:
            await a.put(f"new-{name}", unique_key=name, on_duplicate=OnDuplicate(name))
            assert await a.state(f"old-{name}") is JobState.DEAD
            assert await a.outcomes(f"old-{name}") == ["expired"]
        (outcome,) = await a.enqueue(job("more", unique_key="kept"))
        assert outcome == Enqueued(JobId("kept"), Entry.REJECTED)
        assert sorted(await a.ids()) == sorted(["kept", *(f"new-{name}" for name in names)])

    @scenario
    async def test_a_key_of_a_job_that_runs_past_its_expiry_is_taken(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("runs", unique_key="u", expires=SHORT_S)
        await a.claim_one()
        await lab.advance(SHORT_S + PAST_S)
        (outcome,) = await a.enqueue(job("more", unique_key="u"))
        assert outcome == Enqueued(JobId("runs"), Entry.REJECTED)

    @scenario
    async def test_keys_belong_to_their_queue(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x", queue="one", unique_key="u")
        await a.put("y", queue="two", unique_key="u")
        await a.put("z", queue="one", unique_key="U")

    @scenario
    async def test_the_existing_job_is_returned_on_request(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("first", unique_key="u", payload="1")
        again = job("second", unique_key="u", payload="2", on_duplicate=OnDuplicate.RETURN)
        assert await a.enqueue(again) == [Enqueued(JobId("first"), Entry.EXISTING)]
        assert (await a.claim_one()).payload == "1"
        assert await a.enqueue(again) == [Enqueued(JobId("first"), Entry.EXISTING)]
        assert await a.jobs.get(JobId("second")) is None

    @scenario
    async def test_a_waiting_job_is_replaced_on_request(self, lab: Lab) -> None:
        a = await worker(lab)
        replace = {"unique_key": "u", "on_duplicate": OnDuplicate.REPLACE}
        outcomes = await a.enqueue(job("first", **replace))
        assert outcomes == [Enqueued(JobId("first"), Entry.CREATED)]
        outcomes = await a.enqueue(job("second", delay=LONG_S, **replace))
        assert outcomes == [Enqueued(JobId("second"), Entry.REPLACED)]
        outcomes = await a.enqueue(job("third", **replace))
        assert outcomes == [Enqueued(JobId("third"), Entry.REPLACED)]
        assert await a.ids() == ["third"]
        cancelled = JobState.CANCELLED
        assert [await a.state(name) for name in ("first", "second")] == [cancelled, cancelled]

    @scenario
    async def test_a_claimed_job_cannot_be_replaced(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("first", unique_key="u")
        claimed = await a.claim_one()
        new = job("second", unique_key="u", on_duplicate=OnDuplicate.REPLACE)
        assert await a.enqueue(new) == [Enqueued(JobId("first"), Entry.REJECTED)]
        assert await a.complete(claimed) == "ok"

    @scenario
    async def test_a_key_twice_in_one_batch_is_one_job(self, lab: Lab) -> None:
        a = await worker(lab)
        replace = OnDuplicate.REPLACE
        outcomes = await a.enqueue(
            job("x", unique_key="u"),
            job("y", unique_key="u"),
            job("z", unique_key="u", on_duplicate=OnDuplicate.RETURN),
            job("v", unique_key="w"),
            job("w", unique_key="w", on_duplicate=replace),
        )
        assert outcomes == [
            Enqueued(JobId("x"), Entry.CREATED),
            Enqueued(JobId("x"), Entry.REJECTED),
            Enqueued(JobId("x"), Entry.EXISTING),
            Enqueued(JobId("v"), Entry.CREATED),
            Enqueued(JobId("w"), Entry.REPLACED),
        ]
        assert await a.ids() == ["x", "w"]

    @scenario
    async def test_a_key_that_passed_on_is_not_taken_back_by_a_retry(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("old", unique_key="u")
        await a.fail(await a.claim_one())
        await a.put("new", unique_key="u")
        assert await a.retry("old") is Changed.REFUSED
        await a.complete(await a.claim_one())
        assert await a.retry("old") is Changed.CHANGED
        (outcome,) = await a.enqueue(job("third", unique_key="u"))
        assert outcome == Enqueued(JobId("old"), Entry.REJECTED)


class OrderingCases:
    """Jobs of one queue and ordering key run one at a time, in order of enqueueing."""

    @scenario
    async def test_one_job_of_a_key_is_claimed_at_a_time(self, lab: Lab) -> None:
        lab.require("ordering")
        a, b = await workers(lab, 2)
        await a.put("x1", "x2", "x3", ordering_key="x")
        await a.put("y1", ordering_key="y")
        await a.put("free")
        assert await a.ids() == ["x1", "y1", "free"]
        assert await b.ids() == []

    @scenario
    async def test_the_next_one_follows_every_end(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", "x3", "x4", ordering_key="x")
        await a.complete(await a.claim_one())
        assert await a.state("x2") is JobState.READY
        await a.fail(await a.claim_one())
        await a.cancel("x3")
        assert await a.ids() == ["x4"]

    @scenario
    async def test_a_job_behind_another_is_blocked(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", ordering_key="x")
        assert not (await a.record("x1")).blocked
        found = await a.record("x2")
        assert (found.state, found.blocked, found.ordering_key) == (JobState.READY, True, "x")
        assert await a.claim_by_id("x2") == []
        await a.complete(await a.claim_one())
        assert not (await a.record("x2")).blocked
        assert (await a.claim_one()).ordering_key == "x"

    @scenario
    async def test_a_priority_does_not_overtake_within_a_key(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x")
        await a.put("x2", ordering_key="x", priority=9)
        assert await a.ids() == ["x1"]

    @scenario
    async def test_a_retry_holds_up_those_behind(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", ordering_key="x")
        await a.fail(await a.claim_one(), retry=SOON_S)
        assert (await a.record("x2")).blocked
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["x1"]

    @scenario
    async def test_a_released_job_stays_before_those_behind(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", ordering_key="x")
        await a.release(await a.claim_one())
        assert await a.ids() == ["x1"]

    @scenario
    async def test_a_scheduled_job_holds_up_those_behind(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x", delay=SOON_S)
        await a.put("x2", ordering_key="x")
        await a.put("y1", ordering_key="y", delay=LONG_S)
        await a.put("y2", ordering_key="y")
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["x1"]

    @scenario
    async def test_a_blocked_job_keeps_its_own_due_time(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x")
        await a.put("x2", ordering_key="x", delay=LONG_S)
        await a.put("y1", ordering_key="y")
        await a.put("y2", ordering_key="y", delay=SOON_S)
        for claimed in await a.claim(5):
            await a.complete(claimed)
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["y2"]

    @scenario
    async def test_a_key_whose_claimant_is_gone_goes_on(self, lab: Lab) -> None:
        lab.require("ordering")
        a, gone = await workers(lab, 2)
        await a.put("x1", "x2", ordering_key="x")
        await a.put("y1", "y2", ordering_key="y", max_losses=0)
        await gone.claim(5)
        await gone.end()
        assert await reclaim(a) == ["x1", "y1"]
        assert await a.ids() == ["x1", "y2"]

    @scenario
    async def test_a_blocked_job_that_ends_lets_the_others_keep_their_order(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", "x3", ordering_key="x")
        await a.cancel("x2")
        (found,) = await a.claim(5)
        assert found.id == "x1"
        await a.complete(found)
        assert await a.ids() == ["x3"]

    @scenario
    async def test_a_retried_job_waits_for_the_live_one_of_its_key(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", ordering_key="x")
        await a.fail(await a.claim_one())
        second = await a.claim_one()
        assert await a.retry("x1") is Changed.CHANGED
        assert await a.ids() == []
        await a.complete(second)
        assert await a.ids() == ["x1"]

    @scenario
    async def test_an_end_behind_a_retried_job_gives_it_no_turn(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", "x3", ordering_key="x")
        await a.put("x4", ordering_key="x", unique_key="u")
        await a.put("x5", ordering_key="x", expires=SOON_S)
        await a.fail(await a.claim_one())
        second = await a.claim_one()
        await a.retry("x1")
        await a.cancel("x3")
        await a.enqueue(job("x6", unique_key="u", on_duplicate=OnDuplicate.REPLACE))
        await lab.advance(SOON_S + PAST_S)
        await a.jobs.tend(limit=10)
        assert await a.ids() == ["x6"]
        assert (await a.record("x1")).blocked
        await a.complete(second)
        assert await a.ids() == ["x1"]

    @scenario
    async def test_keys_belong_to_their_queue_and_to_their_case(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("one", queue="one", ordering_key="x")
        await a.put("two", queue="two", ordering_key="x")
        await a.put("TWO", queue="two", ordering_key="X")
        wants = (Want("one", 5), Want("two", 5))
        assert await a.ids(10, wants=wants) == ["one", "two", "TWO"]

    @scenario
    async def test_an_expired_head_makes_way_for_a_job_of_its_unique_key(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x", unique_key="u", expires=SOON_S)
        await a.put("x2", ordering_key="x")
        await lab.advance(SOON_S + PAST_S)
        await a.put("x3", ordering_key="y", unique_key="u")
        assert not (await a.record("x2")).blocked
        assert await a.ids() == ["x2", "x3"]

    @scenario
    async def test_a_replaced_head_passes_its_turn_on(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", ordering_key="x", unique_key="u")
        await a.put("x2", ordering_key="x")
        new = job("x3", ordering_key="x", unique_key="u", on_duplicate=OnDuplicate.REPLACE)
        await a.enqueue(new)
        assert await a.ids() == ["x2"]
