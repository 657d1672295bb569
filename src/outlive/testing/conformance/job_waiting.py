"""Cases of waiting: who found too little is rung when there is more, and nobody else.

All of them ask for the promise ``push``.
"""

from __future__ import annotations

import asyncio
from typing import Any

from outlive.model.job import Changed, QueueMode
from outlive.names import HostId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.job_sessions import reclaim
from outlive.testing.conformance.job_worker import PAST_S, SOON_S, Worker, job, worker, workers
from outlive.testing.conformance.lab import LONG_S, Lab, scenario
from outlive.testing.conformance.wakeups import Bell, work_off

RING = Wakeup("work/q")


async def wait_for_work(one: Worker, *, for_s: float = LONG_S, **fields: Any) -> Bell:
    """Listen, then find nothing and leave a note."""
    bell = Bell(one.member)
    assert await one.claim(wait=for_s, **fields) == []
    return bell


class WaitingCases:
    """Whatever makes a job claimable rings those who wait."""

    @scenario
    async def test_an_enqueue_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        bell = await wait_for_work(b)
        await a.put("j")
        assert await bell.next() == RING
        assert await b.ids() == ["j"]

    @scenario
    async def test_a_release_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        await a.put("j")
        claimed = await a.claim_one()
        bell = await wait_for_work(b)
        await a.release(claimed)
        assert await bell.next() == RING

    @scenario
    async def test_a_retry_at_once_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        await a.put("j")
        claimed = await a.claim_one()
        bell = await wait_for_work(b)
        await a.fail(claimed, retry=0)
        assert await bell.next() == RING

    @scenario
    async def test_a_reclaim_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b, gone = await workers(lab, 3)
        await gone.put("j")
        await gone.claim_one()
        bell = await wait_for_work(b)
        await gone.end()
        assert await reclaim(a) == ["j"]
        assert await bell.next() == RING

    @scenario
    async def test_a_wish_to_run_now_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        await a.put("j", delay=LONG_S)
        bell = await wait_for_work(b)
        assert await a.retry("j") is Changed.CHANGED
        assert await bell.next() == RING

    @scenario
    async def test_the_end_of_a_job_rings_for_the_next_of_its_key(self, lab: Lab) -> None:
        lab.require("push", "ordering")
        a, b = await workers(lab, 2)
        await a.put("x1", "x2", "x3", ordering_key="x")
        first = await a.claim_one()
        bell = await wait_for_work(b)
        await a.complete(first)
        assert await bell.next() == RING
        bell.stop()
        second = await b.claim_one()
        bell = await wait_for_work(b)
        await a.fail(second)
        assert await bell.next() == RING

    @scenario
    async def test_a_cancelled_head_rings_for_the_next_of_its_key(self, lab: Lab) -> None:
        lab.require("push", "ordering")
        a, b = await workers(lab, 2)
        await a.put("x1", ordering_key="x", delay=LONG_S)
        await a.put("x2", ordering_key="x")
        bell = await wait_for_work(b)
        await a.cancel("x1")
        assert await bell.next() == RING

    @scenario
    async def test_a_resumed_queue_rings(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        await a.set_queue(QueueMode.PAUSED)
        await a.put("j")
        bell = await wait_for_work(b)
        await a.set_queue(QueueMode.OPEN)
        assert await bell.next() == RING

    @scenario
    async def test_a_resumed_queue_rings_for_what_is_due_and_what_will_be(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        for delay in (SOON_S, LONG_S):
            await a.put(f"in {delay}", delay=delay)
            await a.set_queue(QueueMode.PAUSED)
            await lab.advance(SOON_S + PAST_S)
            bell = await wait_for_work(b)
            await a.set_queue(QueueMode.OPEN)
            assert await bell.next() == RING
            bell.stop()
            await b.claim(5)

    @scenario
    async def test_room_under_a_limit_rings(self, lab: Lab) -> None:
        lab.require("push", "queue_limits")
        a, b = await workers(lab, 2)
        await a.set_queue(concurrency=1)
        await a.put("x", "y")
        claimed = await a.claim_one()
        bell = await wait_for_work(b)
        await a.complete(claimed)
        assert await bell.next() == RING
        assert await b.ids() == ["y"]

    @scenario
    async def test_a_claim_rings_for_the_due_jobs_it_leaves(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        await a.put("x", "y", delay=2 * SOON_S)
        start = lab.clock.monotonic()
        bell = Bell(b.member)
        early = await b.claim(wait=LONG_S)
        lab.judge_within(2 * SOON_S, since=start)
        assert early == []
        await lab.advance(2 * SOON_S + PAST_S)
        await a.claim_one()
        assert await bell.next() == RING
        assert len(await b.ids()) == 1

    @scenario
    async def test_a_host_waits_for_several_queues(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        bell = await wait_for_work(b, queues=("x", "it's", "y/z"))
        await a.put("1", queue="it's")
        assert await bell.next() == Wakeup("work/it's")
        await a.put("2", queue="y/z")
        assert await bell.next() == Wakeup("work/y/z")

    @scenario
    async def test_who_waits_for_the_session_of_another_is_rung_itself(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        guest = await b.open_session(HostId(f"guest-of-{b.id}"))
        bell = await wait_for_work(b, session=guest)
        await a.put("j")
        assert await bell.next() == RING

    @scenario
    async def test_the_claimant_is_rung_when_its_job_is_to_be_cancelled(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        await a.put("j/1")
        await b.claim_one()
        bell = Bell(b.member)
        await a.cancel("j/1")
        assert await bell.next() == Wakeup("cancel/j/1")

    @scenario
    async def test_notes_of_hosts_that_died_keep_no_ring_from_the_living(self, lab: Lab) -> None:
        lab.require("push")
        a, *gone, b = await workers(lab, 5)
        for one in gone:
            await wait_for_work(one)
        bell = await wait_for_work(b, for_s=2 * LONG_S)
        await a.put("j")
        assert await bell.next() == RING
        assert await b.ids() == ["j"]


class SilenceCases:
    """No note, no ring; and few are rung for few jobs."""

    @scenario
    async def test_who_does_not_wait_is_not_rung(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await workers(lab, 2)
        bell = Bell(b.member)
        await b.claim()
        await a.put("j")
        await bell.stays_silent()

    @scenario
    async def test_who_had_enough_is_not_rung(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await workers(lab, 2)
        await a.put("j")
        bell = Bell(b.member)
        assert len(await b.claim(1, wait=LONG_S)) == 1
        await a.put("k")
        await bell.stays_silent()

    @scenario
    async def test_nobody_is_rung_for_what_cannot_be_claimed(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await workers(lab, 2)
        await a.set_queue(QueueMode.PAUSED, name="paused")
        await a.put("held", unique_key="u", queue="held")
        bell = await wait_for_work(b, queues=("q", "paused"))
        await a.put("later", delay=LONG_S)
        await a.put("elsewhere", queue="other")
        await a.put("paused", queue="paused")
        await a.enqueue(job("rejected", "held", unique_key="u"))
        await a.enqueue(job("later", delay=LONG_S))
        await bell.stays_silent()

    @scenario
    async def test_a_note_ends_with_its_time(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await workers(lab, 2)
        bell = Bell(b.member)
        await b.claim(wait=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        await a.put("j")
        await bell.stays_silent()

    @scenario
    async def test_a_note_is_for_one_ring(self, lab: Lab) -> None:
        lab.require_silence()
        a, b = await workers(lab, 2)
        bell = await wait_for_work(b)
        await a.put("x")
        assert await bell.next() == RING
        await a.put("y")
        await bell.stays_silent()

    @scenario
    async def test_the_oldest_notes_are_rung_and_the_newest(self, lab: Lab) -> None:
        lab.require_silence()
        a, *waiting = await workers(lab, 6)
        bells = [await wait_for_work(one) for one in waiting]
        await a.put("x", "y")
        for bell in (*bells[:2], bells[4]):
            assert await bell.next() == RING
        for bell in bells[2:4]:
            await bell.stays_silent()
        await a.put("z")
        for bell in bells[2:4]:
            assert await bell.next() == RING


class SlipCases:
    """Nothing slips between the look and the note: a waiter that is never rung is never needed."""

    @scenario
    async def test_nothing_slips_between_the_look_and_the_note(self, lab: Lab) -> None:
        lab.require("push")
        a, b = await workers(lab, 2)
        bell = Bell(b.member)
        for turn in range(24):
            looking = asyncio.create_task(b.ask(wait=LONG_S))
            # At another moment of the claim each time.
            await asyncio.sleep(0.0002 * (turn % 12))
            await a.put(f"j{turn}")
            answer = await looking
            while not answer.jobs:
                await bell.next_or(answer.next_due_s)
                answer = await b.ask(wait=LONG_S)
            assert [claimed.id for claimed in answer.jobs] == [f"j{turn}"]
            await b.complete(answer.jobs[0])

    @scenario
    async def test_waiting_hosts_miss_nothing(self, lab: Lab) -> None:
        lab.require("push")
        source = await worker(lab, "source")
        crew = await workers(lab, 3)
        await work_off(crew, lambda answer: answer.jobs, source.put, Worker.complete)
