"""Cases of claiming: who gets which job, in which order, and what the answer says."""

from __future__ import annotations

from outlive.model.job import PRIORITY_MAX, JobState, QueueMode, Want
from outlive.names import JobId
from outlive.testing.conformance.job_worker import PAST_S, SOON_S, job, worker, workers
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class ClaimCases:
    """One claimant at a time, the most urgent first, then in order."""

    @scenario
    async def test_a_claim_carries_what_was_enqueued(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", payload="[1]", headers='{"h":1}', priority=2, retry='{"f":2}')
        found = await a.claim_one()
        assert (found.id, found.queue, found.payload) == ("j", "q", "[1]")
        assert (found.headers, found.priority, found.retry) == ('{"h":1}', 2, '{"f":2}')
        assert (found.attempts, found.losses, found.max_attempts) == (0, 0, 25)
        assert (found.unique_key, found.ordering_key) == (None, None)
        record = await a.record("j")
        assert found.enqueued_at_us == round(record.enqueued_at.timestamp() * 1e6)

    @scenario
    async def test_a_claim_is_on_record(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        found = await a.claim_one(worker="mailer-1")
        record = await a.record("j")
        assert record.state is JobState.CLAIMED
        assert (record.claimed_by, record.session, record.token) == ("mailer-1", a.id, found.token)
        assert record.claimed_at is not None
        assert record.claimed_at >= record.enqueued_at

    @scenario
    async def test_a_claimed_job_is_not_claimed_by_others(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        await a.claim_one()
        assert await b.ids() == []
        assert await a.ids() == []
        assert await b.claim_by_id("j") == []

    @scenario
    async def test_jobs_are_claimed_in_order_of_enqueueing(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("c", "a")
        await b.put("b")
        await a.put("d")
        assert await a.ids(1) == ["c"]
        assert await b.ids(2) == ["a", "b"]
        assert await a.ids(5) == ["d"]

    @scenario
    async def test_a_higher_priority_goes_first(self, lab: Lab) -> None:
        a = await worker(lab)
        priorities = [0, -PRIORITY_MAX, PRIORITY_MAX, 5, -5, 5]
        await a.enqueue(
            *(job(f"j{index}", priority=value) for index, value in enumerate(priorities))
        )
        assert await a.ids() == ["j2", "j3", "j5", "j0", "j4", "j1"]

    @scenario
    async def test_no_more_than_the_limit_is_claimed(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put(*(f"j{number}" for number in range(5)))
        assert len(await a.claim(3)) == 3
        assert len(await a.claim(3)) == 2
        assert await a.claim(3) == []

    @scenario
    async def test_a_limit_of_zero_claims_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        assert await a.claim(0) == []
        assert await a.state("j") is JobState.READY

    @scenario
    async def test_queues_are_served_in_the_order_of_the_wants(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x1", "x2", queue="x", priority=9)
        await a.put("y1", "y2", queue="y")
        assert await a.ids(3, queues=("y", "x")) == ["y1", "y2", "x1"]

    @scenario
    async def test_each_queue_has_a_limit_of_its_own(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x1", "x2", "x3", queue="x")
        await a.put("y1", "y2", queue="y")
        wants = (Want("x", 1), Want("y", 5), Want("z", 5))
        assert await a.ids(10, wants=wants) == ["x1", "y1", "y2"]

    @scenario
    async def test_only_the_wanted_queues_are_served(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("x1", queue="x")
        assert await a.ids(queues=("y", "never-was", "X")) == []
        assert await a.ids(queues=()) == []
        assert await a.state("x1") is JobState.READY

    @scenario
    async def test_tokens_grow_with_each_claim(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        first = await a.claim_one()
        await a.release(first)
        second = await b.claim_one()
        await b.fail(second, retry=0)
        third = await a.claim_one()
        assert 0 < first.token < second.token < third.token

    @scenario
    async def test_tokens_grow_for_an_id_that_is_used_again(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("j")
        first = await a.claim_one()
        await a.complete(first)
        await a.purge("j")
        await a.put("j")
        second = await b.claim_one()
        assert second.token > first.token
        assert await a.extend(first) == "lost"
        assert await b.extend(second) == "ok"


class TargetCases:
    """One job may be claimed by its id, if anybody might claim it."""

    @scenario
    async def test_a_job_is_claimed_by_its_id_past_the_others(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("first", "second", "third")
        (found,) = await a.claim_by_id("second")
        assert found.id == "second"
        assert await a.ids() == ["first", "third"]

    @scenario
    async def test_a_job_of_another_queue_is_not_claimed_by_its_id(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.put("due", delay=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        for name in ("j", "due"):
            for queues in (("r",), ("qq", "r")):
                assert await a.claim(1, queues=queues, job=JobId(name)) == []
            (found,) = await a.claim(1, queues=("r", "q"), job=JobId(name))
            assert (found.id, found.queue) == (name, "q")

    @scenario
    async def test_a_due_job_is_claimed_by_its_id(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", delay=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        (found,) = await a.claim_by_id("j")
        await a.release(found)
        assert await a.ids() == ["j"]

    @scenario
    async def test_an_id_that_cannot_be_claimed_gives_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("done", "dead")
        await a.complete((await a.claim_by_id("done"))[0])
        await a.fail((await a.claim_by_id("dead"))[0])
        await a.put("scheduled", delay=LONG_S)
        await a.put("other")
        for name in ("done", "dead", "scheduled", "never-was"):
            assert await a.claim_by_id(name) == []
        assert await a.state("other") is JobState.READY

    @scenario
    async def test_a_paused_queue_gives_no_job_by_its_id(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.set_queue(QueueMode.PAUSED)
        assert await a.claim_by_id("j") == []

    @scenario
    async def test_a_job_claimed_by_its_id_keeps_its_place(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("first", "second", "third")
        (found,) = await a.claim_by_id("second")
        await a.release(found)
        assert await a.ids() == ["first", "second", "third"]


class NextDueCases:
    """Who gets too little hears when to come back."""

    @scenario
    async def test_the_next_due_time_is_told(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("late", delay=LONG_S, queue="other")
        await a.put("later", delay=2 * LONG_S)
        answer = await a.ask(queues=("q", "other"))
        assert answer.next_due_s is not None
        assert 0 < answer.next_due_s <= LONG_S
        answer = await a.ask()
        assert answer.next_due_s is not None
        assert LONG_S < answer.next_due_s <= 2 * LONG_S

    @scenario
    async def test_the_due_time_of_a_retry_is_told(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.fail(await a.claim_one(), retry=LONG_S)
        answer = await a.ask()
        assert answer.next_due_s is not None
        assert 0 < answer.next_due_s <= LONG_S

    @scenario
    async def test_nothing_is_told_where_nothing_comes_due(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("elsewhere", queue="other", delay=LONG_S)
        await a.put("cancelled", delay=LONG_S)
        await a.cancel("cancelled")
        assert (await a.ask()).next_due_s is None

    @scenario
    async def test_who_had_enough_is_told_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("late", delay=LONG_S)
        await a.put("now")
        answer = await a.ask(1)
        assert [found.id for found in answer.jobs] == ["now"]
        assert answer.next_due_s is None
