"""Cases of repeats: a call whose reply was lost is made again, and means the same."""

from __future__ import annotations

from outlive.model.job import Changed, Enqueued, Entry, JobState, OnDuplicate, QueueMode, Settled
from outlive.names import JobId
from outlive.testing.conformance.job_worker import job, worker, workers
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class RepeatCases:
    """Whatever was applied is not applied twice, and the answer is the first one."""

    @scenario
    async def test_a_batch_enqueued_again_adds_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("holder", unique_key="u")
        jobs = [job("x"), job("y", unique_key="v"), job("z", unique_key="u")]
        await a.enqueue(*jobs)
        again = [outcome.entry for outcome in await a.enqueue(*jobs)]
        assert again == [Entry.EXISTING, Entry.EXISTING, Entry.REJECTED]
        assert await a.list() == ["holder", "x", "y"]

    @scenario
    async def test_a_replacement_enqueued_again_replaces_nothing_more(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("old", unique_key="u")
        new = job("new", unique_key="u", on_duplicate=OnDuplicate.REPLACE)
        assert await a.enqueue(new) == [Enqueued(JobId("new"), Entry.REPLACED)]
        (again,) = await a.enqueue(new)
        assert again.id == "new"
        assert await a.ids() == ["new"]

    @scenario
    async def test_an_enqueue_again_into_a_queue_that_drains_by_now_is_known(
        self, lab: Lab
    ) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.set_queue(QueueMode.DRAINING)
        assert await a.enqueue(job("j")) == [Enqueued(JobId("j"), Entry.EXISTING)]

    @scenario
    async def test_a_claim_asked_again_returns_the_same_claims(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put(*(f"j{number}" for number in range(5)))
        request = a.request(3)
        first = await a.jobs.claim(request)
        again = await a.ask(3, request=request.request, again=True)
        assert sorted(again.jobs, key=lambda found: found.id) == sorted(
            first.jobs, key=lambda found: found.id
        )
        assert await a.ids() == ["j3", "j4"]

    @scenario
    async def test_a_claim_asked_again_that_had_too_little_takes_no_more(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        request = a.request(3)
        first = await a.jobs.claim(request)
        await a.put("k")
        again = await a.ask(3, request=request.request, again=True)
        assert again.jobs == first.jobs
        assert await a.state("k") is JobState.READY

    @scenario
    async def test_only_what_is_still_claimed_comes_back(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("done", "returned", "kept", "new")
        request = a.request(3)
        done, returned, kept = (await a.jobs.claim(request)).jobs
        await a.complete(done)
        await a.release(returned)
        assert [found.id for found in await b.claim(1)] == ["returned"]
        again = await a.ask(3, request=request.request, again=True)
        assert again.jobs == (kept,)

    @scenario
    async def test_a_claim_asked_again_that_never_arrived_is_a_claim(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x", "y")
        assert await a.ids(1, again=True) == ["x"]
        assert (await a.record("x")).session == a.id

    @scenario
    async def test_nobody_gets_the_claims_of_another_by_asking_again(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("x", "y")
        request = a.request(1)
        await a.jobs.claim(request)
        assert await b.ids(1, request=request.request, again=True) == ["y"]

    @scenario
    async def test_a_targeted_claim_asked_again_is_the_same(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x", "y")
        request = a.request(1, queues=(), job=JobId("y"))
        first = await a.jobs.claim(request)
        again = await a.ask(1, queues=(), job=JobId("y"), request=request.request, again=True)
        assert again.jobs == first.jobs
        assert await a.state("x") is JobState.READY

    @scenario
    async def test_completing_again_is_ok_and_changes_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        claimed = await a.claim_one()
        await a.complete(claimed, '"first"')
        before = await a.record("j")
        assert await a.complete(claimed, '"second"') is Settled.OK
        assert await a.record("j") == before

    @scenario
    async def test_failing_again_is_ok_and_counts_once(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("retrying", "dead")
        retrying, dead = await a.claim(2)
        for _ in range(2):
            assert await a.fail(retrying, retry=LONG_S) is Settled.OK
            assert await a.fail(dead) is Settled.OK
        for name, state in (("retrying", JobState.RETRYING), ("dead", JobState.DEAD)):
            found = await a.record(name)
            assert (found.state, found.attempts) == (state, 1)
            assert await a.outcomes(name) == ["failed"]

    @scenario
    async def test_failing_again_after_a_new_claim_is_lost(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        old = await a.claim_one()
        await a.fail(old, retry=0)
        new = await b.claim_one()
        assert await a.fail(old, retry=0) is Settled.LOST
        assert await b.extend(new) is Settled.OK
        assert (await b.record("j")).attempts == 1

    @scenario
    async def test_releasing_again_is_ok_until_somebody_claims_it(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        old = await a.claim_one()
        assert await a.release(old) is Settled.OK
        assert await a.release(old) is Settled.OK
        new = await b.claim_one()
        assert await a.release(old) is Settled.LOST
        assert await b.extend(new) is Settled.OK

    @scenario
    async def test_a_settled_claim_is_not_settled_in_another_way(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("released", "failed")
        released, failed = await a.claim(2)
        await a.release(released, LONG_S)
        await a.fail(failed, retry=LONG_S)
        assert await a.complete(released) is Settled.LOST
        assert await a.fail(released) is Settled.LOST
        assert await a.complete(failed) is Settled.LOST
        assert await a.release(failed) is Settled.LOST
        assert await a.state("released") is JobState.SCHEDULED
        assert await a.state("failed") is JobState.RETRYING

    @scenario
    async def test_cancelling_again_says_the_same(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("claimed", "waiting")
        await a.claim_one()
        for _ in range(2):
            assert await a.cancel("waiting") is Changed.CHANGED
            assert await a.cancel("claimed") is Changed.REQUESTED

    @scenario
    async def test_retrying_again_says_the_same(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("dead", "scheduled")
        dead, scheduled = await a.claim(2)
        await a.fail(dead)
        await a.release(scheduled, LONG_S)
        for _ in range(2):
            assert await a.retry("dead") is Changed.CHANGED
            assert await a.retry("scheduled") is Changed.CHANGED
        assert sorted(await a.ids()) == ["dead", "scheduled"]

    @scenario
    async def test_settings_put_again_are_the_same(self, lab: Lab) -> None:
        a = await worker(lab)
        for _ in range(2):
            await a.set_queue(QueueMode.PAUSED)
        (found,) = await a.jobs.queues()
        assert found.settings.mode is QueueMode.PAUSED
