"""Cases of enqueueing: what is added, what is not, and when it may be claimed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.job import ENQUEUE_MAX, Enqueued, Entry, JobState, QueueMode
from outlive.names import JobId
from outlive.serialization import PAYLOAD_BYTES_MAX
from outlive.testing.conformance.job_worker import PAST_S, SOON_S, Worker, job, worker
from outlive.testing.conformance.lab import LONG_S, Lab, scenario

_STRANGE = '{"it\'s":"\\u0000 %s $1 {q} \\" \U0001f511 \N{SNOWMAN}"}'


async def store_now_us(one: Worker) -> int:
    """The store's wall clock, read from a job that is enqueued for it."""
    await one.put("probe", queue="probe")
    at = (await one.record("probe")).enqueued_at
    return round(at.timestamp() * 1e6)


class EnqueueCases:
    """An acknowledged job is there, once, as it was given."""

    @scenario
    async def test_an_enqueued_job_can_be_read(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put(
            "j",
            payload='{"to":"x"}',
            headers='{"trace":"1"}',
            unique_key="u",
            priority=3,
            max_attempts=7,
            max_losses=2,
            retry='{"first":1}',
        )
        found = await a.record("j")
        assert (found.id, found.queue, found.state) == ("j", "q", JobState.READY)
        assert (found.payload, found.headers, found.retry) == (
            '{"to":"x"}',
            '{"trace":"1"}',
            '{"first":1}',
        )
        assert (found.priority, found.max_attempts, found.max_losses) == (3, 7, 2)
        assert (found.unique_key, found.ordering_key, found.blocked) == ("u", None, False)
        assert (found.attempts, found.losses, found.cancel_requested) == (0, 0, False)
        assert found.token == 0
        assert (found.claimed_by, found.session, found.claimed_at) == (None, None, None)
        assert (found.ended_at, found.result, found.error, found.progress) == (None,) * 4
        assert found.due_at - found.enqueued_at < timedelta(seconds=1)
        assert found.enqueued_at.utcoffset() == timedelta(0)

    @scenario
    async def test_a_job_that_never_was_is_not_found(self, lab: Lab) -> None:
        a = await worker(lab)
        assert await a.jobs.get(JobId("j")) is None
        assert list(await a.jobs.attempts(JobId("j"))) == []

    @scenario
    async def test_a_batch_is_answered_in_its_order(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("b", unique_key="taken")
        outcomes = await a.enqueue(
            job("c"), job("b"), job("d", unique_key="taken"), job("a", "other")
        )
        assert outcomes == [
            Enqueued(JobId("c"), Entry.CREATED),
            Enqueued(JobId("b"), Entry.EXISTING),
            Enqueued(JobId("b"), Entry.REJECTED),
            Enqueued(JobId("a"), Entry.CREATED),
        ]
        assert await a.list() == ["b", "c", "a"]

    @scenario
    async def test_an_empty_batch_is_fine(self, lab: Lab) -> None:
        a = await worker(lab)
        assert list(await a.jobs.enqueue([])) == []
        assert list(await a.jobs.complete([])) == []
        assert list(await a.jobs.fail([])) == []
        assert list(await a.jobs.release([])) == []
        assert list(await a.jobs.extend([])) == []
        assert list(await a.jobs.cancel([], reason="none")) == []

    @scenario
    async def test_the_largest_batch_is_taken_whole(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put(*(f"j{number}" for number in range(ENQUEUE_MAX)))
        assert (await a.queue()).counts[JobState.READY] == ENQUEUE_MAX
        assert await a.ids(3) == ["j0", "j1", "j2"]

    @scenario
    async def test_an_id_that_is_there_changes_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        for new in (job("j", payload='"new"', priority=9), job("j", unique_key="u")):
            assert await a.enqueue(new) == [Enqueued(JobId("j"), Entry.EXISTING)]
        found = await a.record("j")
        assert (found.queue, found.payload, found.priority) == ("q", '{"n":1}', 0)
        assert await a.ids() == ["j"]

    @scenario
    async def test_an_id_of_another_queue_is_a_conflict(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", "k")
        await a.complete(await a.claim_one())
        conflict = [Enqueued(JobId("j"), Entry.CONFLICT)]
        assert await a.enqueue(job("j", "other", payload='"new"')) == conflict
        assert await a.enqueue(job("j", "other", unique_key="u")) == conflict
        await a.set_queue(QueueMode.DRAINING, name="other")
        assert await a.enqueue(job("j", "other")) == conflict
        found = await a.record("j")
        assert (found.queue, found.payload, found.state) == ("q", '{"n":1}', JobState.DONE)
        assert await a.ids(queues=("q", "other")) == ["k"]

    @scenario
    async def test_a_conflict_is_that_of_its_job_alone(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", "k")
        for keyed in (None, "u"):
            outcomes = await a.enqueue(
                job("j", "other"),
                job("k"),
                job(f"l-{keyed}", "other", unique_key=keyed),
                job(f"l-{keyed}", "third"),
            )
            assert [outcome.entry for outcome in outcomes] == [
                Entry.CONFLICT,
                Entry.EXISTING,
                Entry.CREATED,
                Entry.CONFLICT,
            ]
        assert await a.ids(9, queues=("other", "third")) == ["l-None", "l-u"]

    @scenario
    async def test_an_id_that_has_ended_does_not_live_again(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j")
        await a.complete(await a.claim_one())
        assert await a.enqueue(job("j")) == [Enqueued(JobId("j"), Entry.EXISTING)]
        assert await a.state("j") is JobState.DONE
        assert await a.ids() == []

    @scenario
    async def test_an_id_twice_in_one_batch_is_one_job(self, lab: Lab) -> None:
        a = await worker(lab)
        outcomes = await a.enqueue(job("j", payload="1"), job("j", payload="2"))
        assert [outcome.entry for outcome in outcomes] == [Entry.CREATED, Entry.EXISTING]
        assert [found.payload for found in await a.claim(10)] == ["1"]

    @scenario
    async def test_texts_come_back_as_they_were_given(self, lab: Lab) -> None:
        a = await worker(lab)
        names = ["a/b", "it's; --", "x:y,z|{w}", "%_*?", "\U0001f511 \N{SNOWMAN}", "n" * 512]
        for name in names:
            await a.put(name, queue=name, payload=_STRANGE, unique_key=name)
        for name in names:
            (found,) = await a.claim(queues=(name,))
            assert (found.id, found.queue, found.payload) == (name, name, _STRANGE)
            assert found.unique_key == name
        assert sorted(record.settings.name for record in await a.jobs.queues()) == sorted(names)

    @scenario
    async def test_the_largest_payload_comes_back(self, lab: Lab) -> None:
        a = await worker(lab)
        payload = '"' + "x" * (PAYLOAD_BYTES_MAX - 2) + '"'
        await a.put("j", payload=payload)
        assert (await a.claim_one()).payload == payload

    @scenario
    async def test_namespaces_do_not_see_each_other(self, lab: Lab) -> None:
        one, two = await worker(lab, "a", "one"), await worker(lab, "b", "two")
        await one.put("j", unique_key="u")
        assert await two.ids() == []
        assert await two.claim_by_id("j") == []
        assert await two.jobs.get(JobId("j")) is None
        assert await two.list() == []
        assert list(await two.jobs.queues()) == []
        await two.put("j", unique_key="u")
        assert await two.ids() == ["j"]
        assert await one.state("j") is JobState.READY

    @scenario
    async def test_joining_what_is_no_transaction_is_refused(self, lab: Lab) -> None:
        a = await worker(lab)
        with pytest.raises(UsageError):
            await a.jobs.enqueue_in([job("j")], object())
        assert await a.list() == []

    @scenario
    async def test_an_ordering_key_is_refused_where_none_is_promised(self, lab: Lab) -> None:
        if lab.capabilities.ordering:
            pytest.skip("the backend keeps ordering keys")
        a = await worker(lab)
        with pytest.raises(UnsupportedByDriver):
            await a.enqueue(job("i"), job("j", ordering_key="k"))
        assert await a.list() == []


class DueCases:
    """Nothing is claimed before its time, and everything may be after it."""

    @scenario
    async def test_a_delayed_job_is_scheduled(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", delay=LONG_S)
        found = await a.record("j")
        assert found.state is JobState.SCHEDULED
        assert abs((found.due_at - found.enqueued_at).total_seconds() - LONG_S) < 1
        assert await a.ids() == []
        assert await a.claim_by_id("j") == []

    @scenario
    async def test_a_delayed_job_is_claimed_when_due(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", delay=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["j"]

    @scenario
    async def test_a_delayed_job_is_not_claimed_early(self, lab: Lab) -> None:
        a = await worker(lab)
        start = lab.clock.monotonic()
        await a.put("j", delay=2 * SOON_S)
        await lab.advance(SOON_S)
        found = await a.ids()
        # What was elapsed is an upper bound for what passed on the store's clock.
        assert found == [] or lab.elapsed_since(start) >= 2 * SOON_S

    @scenario
    async def test_an_absolute_time_is_kept(self, lab: Lab) -> None:
        a = await worker(lab)
        now_us = await store_now_us(a)
        await a.put("soon", due_at_us=now_us + round(SOON_S * 1e6))
        await a.put("late", due_at_us=now_us + round(LONG_S * 1e6))
        assert await a.state("late") is JobState.SCHEDULED
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["soon"]

    @scenario
    async def test_a_time_that_has_passed_is_ready_at_once(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("j", due_at_us=await store_now_us(a) - 5_000_000)
        assert await a.state("j") is JobState.READY
        assert await a.ids() == ["j"]

    @scenario
    async def test_a_job_that_comes_due_stands_behind_those_that_were_ready(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("late", delay=SOON_S)
        await a.put("early")
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["early", "late"]

    @scenario
    async def test_a_due_job_of_higher_priority_goes_first(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("urgent", delay=SOON_S, priority=5)
        await a.put("plain")
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids(1) == ["urgent"]

    @scenario
    async def test_many_that_come_due_together_are_all_claimed(self, lab: Lab) -> None:
        a = await worker(lab)
        expected = {f"j{number}" for number in range(2500)}
        await a.put(*expected, delay=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        found: list[str] = []
        while page := await a.ids(500):
            found.extend(page)
        assert len(found) == len(expected)
        assert set(found) == expected
