"""Cases of queues: what is in them, and the settings that hold for the whole fleet."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from outlive.errors import UnsupportedByDriver
from outlive.model.job import (
    Enqueued,
    Entry,
    JobState,
    LimitsBy,
    QueueMode,
    QueuePart,
    QueueSettings,
    Return,
    Settled,
)
from outlive.names import JobId
from outlive.ports.wakeups import Wakeup
from outlive.testing.conformance.job_operate import one_of_each
from outlive.testing.conformance.job_worker import PAST_S, SOON_S, job, worker, workers
from outlive.testing.conformance.lab import LONG_S, Lab, scenario
from outlive.testing.conformance.wakeups import Bell


class ListCases:
    """Jobs are found by what is known of them, in order, page by page."""

    @scenario
    async def test_jobs_are_found_by_state(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        for state in JobState:
            assert await a.list(states=(state,)) == [state.value]
        assert await a.list(states=(JobState.DEAD, JobState.READY)) == ["dead", "ready"]

    @scenario
    async def test_jobs_are_found_by_what_they_belong_to(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("x", "y", queue="one")
        await a.put("z", queue="two", unique_key="u")
        await a.claim(queues=("one",))
        await b.claim(queues=("one",))
        assert await a.list(queue="one") == ["x", "y"]
        assert await a.list(queue="two", unique_key="u") == ["z"]
        assert await a.list(queue="one", unique_key="u") == []
        assert await a.list(session=b.id) == ["y"]
        assert await a.list(session=b.id, states=(JobState.READY,)) == []

    @scenario
    async def test_jobs_are_found_by_their_ordering_key(self, lab: Lab) -> None:
        lab.require("ordering")
        a = await worker(lab)
        await a.put("x1", "x2", ordering_key="x")
        await a.put("y1", ordering_key="y")
        assert await a.list(ordering_key="x") == ["x1", "x2"]

    @scenario
    async def test_pages_are_in_order_and_skip_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        names = [f"j{number * 7 % 25}" for number in range(25)]
        await a.put(*names[:20], priority=1)
        await a.put(*names[20:], delay=LONG_S)
        found: list[str] = []
        cursor: str | None = None
        for _ in range(3):
            page = await a.jobs.list(a.filter(), after=cursor, limit=10)
            assert len(page) <= 10
            found.extend(record.id for record in page)
            cursor = page[-1].cursor
            await a.put(f"later-{len(found)}")
            for claimed in await a.claim(15):
                await a.complete(claimed)
        assert [name for name in found if name in names] == names

    @scenario
    async def test_claimed_jobs_keep_their_places_among_the_others(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        names = [f"j{number}" for number in range(12)]
        for number, name in enumerate(names):
            await a.put(name, queue="one" if number % 4 else "two", priority=number % 3)
        await a.claim(3, queues=("one",))
        await b.claim(2, queues=("one", "two"))
        await b.claim(1, queues=("two",))
        assert len(await a.list(states=(JobState.CLAIMED,))) == 6
        found: list[str] = []
        cursor: str | None = None
        while page := await a.jobs.list(a.filter(), after=cursor, limit=2):
            found.extend(record.id for record in page)
            cursor = page[-1].cursor
            # Whatever is claimed or ended between two pages stands where it stood.
            for claimed in await a.claim(1, queues=("one", "two")):
                await a.complete(claimed)
        assert found == names

    @scenario
    async def test_pages_of_claimed_jobs_skip_nothing(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        names = [f"j{number}" for number in range(9)]
        await a.put(*names)
        for number in range(9):
            await (a, b)[number % 2].claim_one()
        for wanted, expected in (
            (a.filter(states=(JobState.CLAIMED,)), names),
            (a.filter(states=(JobState.CLAIMED,), queue="q", session=b.id), names[1::2]),
        ):
            found: list[str] = []
            cursor: str | None = None
            while page := await a.jobs.list(wanted, after=cursor, limit=2):
                found.extend(record.id for record in page)
                cursor = page[-1].cursor
            assert found == expected

    @scenario
    async def test_pages_of_a_filter_skip_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put(*(f"j{number}" for number in range(30)))
        for number in range(0, 30, 3):
            await a.cancel(f"j{number}")
        found: list[str] = []
        cursor: str | None = None
        wanted = a.filter(states=(JobState.CANCELLED,))
        while page := await a.jobs.list(wanted, after=cursor, limit=4):
            found.extend(record.id for record in page)
            cursor = page[-1].cursor
        assert found == [f"j{number}" for number in range(0, 30, 3)]


class QueueCases:
    """A queue is known by its jobs or its settings; it can be paused and drained."""

    @scenario
    async def test_queues_are_counted_by_state(self, lab: Lab) -> None:
        a = await worker(lab)
        await one_of_each(a)
        await a.put("more", "and more")
        counts = (await a.queue()).counts
        assert {state: counts.get(state, 0) for state in JobState} == {
            **dict.fromkeys(JobState, 1),
            JobState.READY: 3,
        }

    @scenario
    async def test_queues_are_listed_by_name(self, lab: Lab) -> None:
        a = await worker(lab)
        assert list(await a.jobs.queues()) == []
        await a.put("x", queue="m")
        await a.set_queue(QueueMode.PAUSED, name="b")
        await a.put("y", queue="Z")
        await a.put("z", queue="a")
        await a.complete(await a.claim_one(queues=("a",)))
        found = await a.jobs.queues()
        assert [record.settings.name for record in found] == ["Z", "a", "b", "m"]
        assert [record.settings.mode for record in found] == [
            QueueMode.OPEN,
            QueueMode.OPEN,
            QueueMode.PAUSED,
            QueueMode.OPEN,
        ]

    @scenario
    async def test_a_queue_whose_jobs_are_all_claimed_is_listed(self, lab: Lab) -> None:
        a = await worker(lab)
        for name in ("a", "m", "z"):
            await a.put(f"{name}1", queue=name)
        for name in ("a", "z"):
            await a.claim_one(queues=(name,))
        found = await a.jobs.queues()
        assert [(record.settings.name, record.counts) for record in found] == [
            ("a", {JobState.CLAIMED: 1}),
            ("m", {JobState.READY: 1}),
            ("z", {JobState.CLAIMED: 1}),
        ]
        assert await a.list() == ["a1", "m1", "z1"]

    @scenario
    async def test_the_age_of_the_oldest_ready_job_is_told(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("old", priority=-1)
        await lab.advance(SOON_S)
        await a.put("young", priority=1)
        await a.put("scheduled", delay=LONG_S)
        oldest_s = (await a.queue()).oldest_ready_s
        assert oldest_s is not None
        assert SOON_S - PAST_S <= oldest_s < LONG_S
        await a.claim(5)
        assert (await a.queue()).oldest_ready_s is None

    @scenario
    async def test_a_paused_queue_takes_jobs_and_gives_none(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.put("before")
        await a.put("elsewhere", queue="other")
        claimed = await a.claim_one()
        await b.set_queue(QueueMode.PAUSED)
        await a.put("after")
        assert await a.ids(queues=("q", "other")) == ["elsewhere"]
        assert await a.release(claimed) == "ok"
        assert await a.ids() == []
        await b.set_queue(QueueMode.OPEN)
        assert await a.ids() == ["before", "after"]

    @scenario
    async def test_a_paused_queue_promises_nothing(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("late", delay=SOON_S)
        await a.set_queue(QueueMode.PAUSED)
        await lab.advance(SOON_S + PAST_S)
        claimed = await a.jobs.claim(a.request(5))
        assert claimed.jobs == ()
        assert claimed.next_due_s is None
        await a.set_queue(QueueMode.OPEN)
        assert await a.ids() == ["late"]

    @scenario
    async def test_a_draining_queue_gives_jobs_and_takes_none(self, lab: Lab) -> None:
        a = await worker(lab)
        await a.put("before")
        await a.set_queue(QueueMode.DRAINING)
        outcomes = await a.enqueue(job("after"), job("elsewhere", "other"))
        assert outcomes == [
            Enqueued(JobId("after"), Entry.CLOSED),
            Enqueued(JobId("elsewhere"), Entry.CREATED),
        ]
        assert await a.jobs.get(JobId("after")) is None
        await a.fail(await a.claim_one(), retry=0)
        assert await a.ids() == ["before"]
        await a.set_queue(QueueMode.OPEN)
        await a.put("after")

    @scenario
    async def test_settings_without_limits_come_back(self, lab: Lab) -> None:
        a, b = await workers(lab, 2)
        await a.set_queue(QueueMode.DRAINING)
        assert (await b.queue()).settings == QueueSettings(name="q", mode=QueueMode.DRAINING)
        await a.set_queue()
        assert (await b.queue()).settings == QueueSettings(name="q")

    @scenario
    async def test_a_mode_stays_where_it_is_not_put(self, lab: Lab) -> None:
        a = await worker(lab)
        draining = QueueSettings(name="q", mode=QueueMode.DRAINING)
        await a.jobs.put_queue(draining, parts=(QueuePart.MODE,))
        for limits_by in LimitsBy:
            none = QueueSettings(name="q", limits_by=limits_by)
            await a.jobs.put_queue(none, parts=(QueuePart.LIMITS,))
        assert (await a.queue()).settings == draining


class LimitCases:
    """Limits hold for all hosts together."""

    @scenario
    async def test_limits_are_refused_where_none_are_promised(self, lab: Lab) -> None:
        if lab.capabilities.queue_limits:
            pytest.skip("the backend keeps limits")
        a = await worker(lab)
        with pytest.raises(UnsupportedByDriver):
            await a.set_queue(concurrency=1)
        with pytest.raises(UnsupportedByDriver):
            await a.set_queue(rate=1)
        assert list(await a.jobs.queues()) == []

    @scenario
    async def test_limits_come_back(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a = await worker(lab)
        await a.set_queue(concurrency=3, rate=7, rate_period_us=2_000_000)
        assert (await a.queue()).settings == QueueSettings(
            name="q", concurrency=3, rate=7, rate_period_us=2_000_000
        )

    @scenario
    async def test_the_limits_and_the_mode_are_put_by_themselves(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a = await worker(lab)
        wanted = QueueSettings(
            name="q", mode=QueueMode.PAUSED, concurrency=3, rate=7, rate_period_us=2_000_000
        )
        await a.jobs.put_queue(wanted, parts=(QueuePart.LIMITS,))
        assert (await a.queue()).settings == replace(wanted, mode=QueueMode.OPEN)
        await a.jobs.put_queue(replace(wanted, concurrency=9, rate=None), parts=(QueuePart.MODE,))
        assert (await a.queue()).settings == wanted
        await a.jobs.put_queue(QueueSettings(name="q", rate=1), parts=(QueuePart.LIMITS,))
        assert (await a.queue()).settings == QueueSettings(name="q", mode=QueueMode.PAUSED, rate=1)

    @scenario
    async def test_limits_that_a_handler_declares_replace_those_of_before(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a, b = await workers(lab, 2)
        first = QueueSettings(name="q", concurrency=5, rate=9, rate_period_us=3_000_000)
        for declared in (first, replace(first, concurrency=2), QueueSettings(name="q", rate=4)):
            await a.jobs.put_queue(declared, parts=(QueuePart.LIMITS,))
            assert (await b.queue()).settings == declared

    @scenario
    async def test_limits_of_an_operator_stay_until_they_are_lifted(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a, b = await workers(lab, 2)
        limits = (QueuePart.LIMITS,)
        declared = QueueSettings(name="q", concurrency=5, rate=9, rate_period_us=3_000_000)
        await a.jobs.put_queue(declared, parts=limits)
        # The limit that an operator leaves out is none, and is the operator's as well.
        for operators in (
            QueueSettings(name="q", concurrency=1, limits_by=LimitsBy.OPERATOR),
            QueueSettings(name="q", rate=2, limits_by=LimitsBy.OPERATOR),
        ):
            await b.jobs.put_queue(operators, parts=limits)
            await a.jobs.put_queue(declared, parts=limits)
            assert (await a.queue()).settings == operators
        paused = replace(operators, mode=QueueMode.PAUSED)
        await a.jobs.put_queue(replace(declared, mode=QueueMode.PAUSED))
        assert (await a.queue()).settings == paused
        none = QueueSettings(name="q", limits_by=LimitsBy.OPERATOR)
        await b.jobs.put_queue(none, parts=limits)
        lifted = QueueSettings(name="q", mode=QueueMode.PAUSED)
        assert (await a.queue()).settings == lifted
        await a.jobs.put_queue(declared, parts=limits)
        assert (await a.queue()).settings == replace(declared, mode=QueueMode.PAUSED)

    @scenario
    async def test_limits_that_an_operator_sets_first_are_kept_too(self, lab: Lab) -> None:
        """Where the queue had no settings, and where a declaration says the same."""
        lab.require("queue_limits")
        a = await worker(lab)
        declared = QueueSettings(name="q", concurrency=5)
        operators = replace(declared, limits_by=LimitsBy.OPERATOR)
        await a.jobs.put_queue(operators, parts=(QueuePart.LIMITS,))
        await a.jobs.put_queue(declared, parts=(QueuePart.LIMITS,))
        assert (await a.queue()).settings == operators

    @scenario
    async def test_an_operator_a_handler_and_a_pause_at_once_lose_nothing(self, lab: Lab) -> None:
        lab.require("queue_limits")
        several = await workers(lab, 4)
        for number in range(5):
            name = f"q{number}"
            operators = QueueSettings(name=name, concurrency=1, limits_by=LimitsBy.OPERATOR)
            declared = QueueSettings(name=name, concurrency=5, rate=9)
            paused = QueueSettings(name=name, mode=QueueMode.PAUSED)
            puts = [
                (declared, QueuePart.LIMITS),
                (operators, QueuePart.LIMITS),
                (paused, QueuePart.MODE),
                (declared, QueuePart.LIMITS),
            ]
            puts = puts[number % 4 :] + puts[: number % 4]
            await asyncio.gather(
                *(
                    each.jobs.put_queue(settings, parts=(part,))
                    for each, (settings, part) in zip(several, puts, strict=True)
                )
            )
            found = (await several[0].queue(name)).settings
            assert found == replace(operators, mode=QueueMode.PAUSED)

    @scenario
    async def test_no_more_jobs_are_claimed_than_may_run(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a, b = await workers(lab, 2)
        await a.set_queue(concurrency=2)
        await a.put(*(f"j{number}" for number in range(6)))
        first, second = await a.claim(5)
        assert await b.ids() == []
        assert await b.claim_by_id("j4") == []
        await a.complete(first)
        assert await b.ids() == ["j2"]
        await a.release(second)
        assert await b.ids() == ["j1"]

    @scenario
    async def test_claims_of_the_gone_make_room_when_they_are_taken(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a, gone = await workers(lab, 2)
        await a.set_queue(concurrency=1)
        await a.put("x", "y")
        await gone.claim_one()
        await gone.end()
        assert await a.ids() == []
        await a.jobs.reclaim(limit=10)
        assert await a.ids() == ["x"]

    @scenario
    async def test_a_raised_limit_lets_more_through(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a = await worker(lab)
        await a.set_queue(concurrency=1)
        await a.put("x", "y", "z")
        assert await a.ids() == ["x"]
        await a.set_queue(concurrency=2)
        assert await a.ids() == ["y"]
        await a.set_queue()
        assert await a.ids() == ["z"]

    @scenario
    async def test_no_more_claims_are_made_in_a_period_than_the_rate(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a, b = await workers(lab, 2)
        await a.set_queue(rate=3, rate_period_us=round(LONG_S * 1e6))
        await a.put(*(f"j{number}" for number in range(6)))
        (first,) = await a.claim(1)
        await a.complete(first)
        assert await b.ids() == ["j1", "j2"]
        assert await a.ids() == []
        assert await a.claim_by_id("j5") == []

    @scenario
    async def test_a_period_that_has_passed_lets_claims_through(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a = await worker(lab)
        await a.set_queue(rate=2, rate_period_us=round(SOON_S * 1e6))
        await a.put(*(f"j{number}" for number in range(3)))
        assert await a.ids() == ["j0", "j1"]
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["j2"]

    @scenario
    async def test_a_claim_that_was_not_begun_leaves_its_share_of_the_rate(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a, b = await workers(lab, 2)
        await a.set_queue(rate=3, rate_period_us=round(LONG_S * 1e6))
        await a.put(*(f"j{number}" for number in range(6)))
        first, second = await a.claim(2)
        third = (await b.claim(1))[0]
        returned = [
            Return(each.id, each.token, round(LONG_S * 1e6), unbegun=True)
            for each in (first, third)
        ]
        assert await a.jobs.release(returned) == [Settled.OK, Settled.OK]
        # A repeat gives nothing back once more, and neither does a release of what was begun.
        await a.release(first, LONG_S, unbegun=True)
        await a.release(second, LONG_S)
        assert await b.ids() == ["j3", "j4"]

    @scenario
    async def test_a_share_of_the_rate_that_is_given_back_rings(self, lab: Lab) -> None:
        lab.require("queue_limits", "push")
        a, b = await workers(lab, 2)
        await a.set_queue(rate=1, rate_period_us=round(LONG_S * 1e6))
        await a.put("x", "y")
        claimed = await a.claim_one()
        bell = Bell(b.member)
        assert await b.claim(wait=LONG_S) == []
        await a.release(claimed, LONG_S, unbegun=True)
        assert await bell.next() == Wakeup("work/q")
        assert await b.ids() == ["y"]

    @scenario
    async def test_a_limit_of_one_queue_leaves_the_others_alone(self, lab: Lab) -> None:
        lab.require("queue_limits")
        a = await worker(lab)
        await a.set_queue(concurrency=1)
        await a.put("x", "y")
        await a.put("z", queue="other")
        assert await a.ids(queues=("q", "other")) == ["x", "z"]
