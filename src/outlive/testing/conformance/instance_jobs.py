"""Cases of jobs: those that a commit enqueues, and those that answer an instance when they end."""

from __future__ import annotations

import json
from typing import Any

from outlive.model.instance import Letter
from outlive.model.job import JobState, NewJob, OnDuplicate, QueueMode
from outlive.names import InstanceId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.instance_mailbox import fill
from outlive.testing.conformance.instance_runner import Runner, runner
from outlive.testing.conformance.instance_waiting import RING, wait
from outlive.testing.conformance.job_worker import PAST_S, SOON_S, Worker, job
from outlive.testing.conformance.lab import LONG_S, Lab, scenario
from outlive.testing.conformance.wakeups import Bell


def remote(id: str, to: str = "i", **fields: Any) -> NewJob:  # noqa: A002 - it is one
    """A job that answers an instance."""
    return job(id, instance=InstanceId(to), step=f"{id}#0", **fields)


async def pair(lab: Lab, name: str = "a") -> tuple[Runner, Worker]:
    """One host that runs instances and works on jobs."""
    lab.require("jobs")
    one = await runner(lab, name)
    return one, Worker(one.member)


def told(letter: Letter) -> tuple[str, Any]:
    """What a letter says of its job."""
    payload = json.loads(letter.payload)
    assert set(payload) == {"state", "outcome"}
    return payload["state"], payload["outcome"]


class CommittedJobCases:
    """Jobs of a commit are enqueued with it."""

    @scenario
    async def test_jobs_are_enqueued_with_the_commit(self, lab: Lab) -> None:
        a, work = await pair(lab)
        held = await a.own("i")
        await a.advance(held, jobs=(remote("x"), job("later", delay=LONG_S), remote("y")))
        assert await work.ids() == ["x", "y"]
        assert await work.state("later") is JobState.SCHEDULED

    @scenario
    async def test_a_refused_commit_enqueues_nothing(self, lab: Lab) -> None:
        a, work = await pair(lab)
        held = await a.own("i")
        assert not (await a.send_commit(a.next(held, version=2, jobs=(remote("x"),)))).ok
        assert await work.list() == []

    @scenario
    async def test_a_commit_sent_again_enqueues_nothing_more(self, lab: Lab) -> None:
        a, work = await pair(lab)
        commit = a.next(await a.own("i"), jobs=(remote("x"),))
        for _ in range(2):
            assert (await a.send_commit(commit)).ok
        assert await work.ids() == ["x"]

    @scenario
    async def test_jobs_of_a_commit_ring_the_workers(self, lab: Lab) -> None:
        lab.require("push")
        a, _ = await pair(lab)
        _, other = await pair(lab, "b")
        held = await a.own("i")
        bell = Bell(other.member)
        assert await other.claim(wait=LONG_S) == []
        await a.advance(held, jobs=(remote("x"),))
        assert await bell.next() == Wakeup("work/q")


class JobAnswerCases:
    """However a job ends, its instance gets one letter."""

    @scenario
    async def test_a_done_job_answers_with_its_result(self, lab: Lab) -> None:
        a, work = await pair(lab)
        held = await a.own("i")
        await a.advance(held, jobs=(remote("x"), remote("y")))
        x, y = await work.claim(2)
        await work.complete(x, '{"paid":true}')
        await work.complete(y)
        first, second = await a.mail("i")
        assert (first.id, first.kind, first.name) == ("job/x", "step", "x#0")
        assert told(first) == ("done", {"paid": True})
        assert told(second) == ("done", None)

    @scenario
    async def test_a_dead_job_answers_with_its_error(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await a.own("i")
        await work.enqueue(remote("x"))
        claimed = await work.claim_one()
        await work.fail(claimed, retry=0)
        assert await a.mail("i") == []
        await work.fail(await work.claim_one(), error='{"type":"E","message":"it\'s \\"bad\\""}')
        (letter,) = await a.mail("i")
        assert told(letter) == ("dead", {"type": "E", "message": 'it\'s "bad"'})

    @scenario
    async def test_a_cancelled_job_answers(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await a.own("i")
        await work.enqueue(remote("waiting"), remote("claimed"))
        await work.cancel("waiting", "not wanted")
        claimed = await work.claim_one()
        await work.cancel("claimed", "nor this")
        assert await a.mail_ids("i") == ["job/waiting"]
        await work.release(claimed)
        first, second = await a.mail("i")
        assert told(first) == ("cancelled", "not wanted")
        assert told(second) == ("cancelled", "nor this")

    @scenario
    async def test_an_expired_job_answers(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await a.own("i")
        await work.enqueue(remote("x", expires=SOON_S))
        await lab.advance(SOON_S + PAST_S)
        await work.jobs.tend(limit=10)
        (letter,) = await a.mail("i")
        assert told(letter)[0] == "dead"

    @scenario
    async def test_a_job_that_was_lost_too_often_answers(self, lab: Lab) -> None:
        a, work = await pair(lab)
        gone, victim = await pair(lab, "gone")
        await a.own("i")
        await work.enqueue(remote("x", max_losses=0))
        await victim.claim_one()
        await gone.end()
        await work.jobs.reclaim(limit=10)
        (letter,) = await a.mail("i")
        assert (letter.id, told(letter)[0]) == ("job/x", "dead")

    @scenario
    async def test_a_replaced_job_answers(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await a.own("i")
        await work.enqueue(remote("old", unique_key="u"))
        await work.enqueue(job("new", unique_key="u", on_duplicate=OnDuplicate.REPLACE))
        (letter,) = await a.mail("i")
        assert (letter.id, told(letter)[0]) == ("job/old", "cancelled")

    @scenario
    async def test_a_job_that_is_not_taken_answers_at_once(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await work.put("theirs", unique_key="u")
        await work.set_queue(QueueMode.DRAINING, name="closed")
        held = await a.own("i")
        jobs = (
            remote("rejected", unique_key="u"),
            remote("existing", unique_key="u", on_duplicate=OnDuplicate.RETURN),
            remote("closed", queue="closed"),
            remote("theirs", queue="other"),
        )
        held = await a.advance(held, jobs=jobs)
        await a.advance(held, jobs=(remote("theirs", queue="third"),))
        letters = await a.mail("i")
        names = ["rejected", "existing", "closed", "theirs"]
        assert [letter.id for letter in letters] == [f"job/{name}" for name in names]
        for letter in letters:
            state, outcome = told(letter)
            assert state == "cancelled"
            assert isinstance(outcome, str)

    @scenario
    async def test_settling_again_answers_once(self, lab: Lab) -> None:
        a, work = await pair(lab)
        held = await a.own("i")
        await work.enqueue(remote("x"))
        claimed = await work.claim_one()
        for _ in range(2):
            await work.complete(claimed, "1")
        (letter,) = await a.mail("i")
        await a.advance(held, consumed=(letter.number,))
        await work.complete(claimed, "1")
        assert await a.mail("i") == []

    @scenario
    async def test_a_job_kept_for_no_time_answers_too(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await a.own("i")
        await work.enqueue(remote("x", retention=0))
        await work.complete(await work.claim_one(), "1")
        assert await a.mail_ids("i") == ["job/x"]

    @scenario
    async def test_an_answer_to_nobody_is_dropped(self, lab: Lab) -> None:
        a, work = await pair(lab)
        await a.put_ended("ended")
        await work.enqueue(remote("x", "ended"), remote("y", "never"), job("z"))
        for claimed in await work.claim(3):
            assert await work.complete(claimed) == "ok"
        assert await a.mail("ended") == []
        assert not await a.exists("never")

    @scenario
    async def test_an_answer_wakes_and_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, work = await pair(lab)
        other, _ = await pair(lab, "b")
        await a.park("i")
        await other.own("j")
        await work.enqueue(remote("x", "i"), remote("y", "j"))
        x, y = await work.claim(2)
        waiting = await wait(a)
        await work.complete(x)
        assert await waiting.next() == RING
        owning = Bell(other.member)
        await work.complete(y)
        assert await owning.next() == Wakeup("mail/j")
        assert await a.ids() == ["i"]

    @scenario
    async def test_no_mailbox_is_too_full_for_an_answer(self, lab: Lab) -> None:
        a, work = await pair(lab)
        held = await a.own("i")
        await fill(a, "i")
        await work.enqueue(remote("x"))
        await work.complete(await work.claim_one(), "1")
        await a.advance(held, release=True)
        seen, after = list[str](), 0
        while letters := await a.mail("i", after=after):
            seen.extend(letter.id for letter in letters)
            after = letters[-1].number
        assert seen[-1] == "job/x"
