"""The suite of the ``ScheduleStore`` port: each tick becomes one job, whoever comes first."""

from __future__ import annotations

import asyncio

import pytest

from outlive.errors import StoreUnavailable
from outlive.model.job import (
    ClaimRequest,
    Entry,
    JobFilter,
    NewJob,
    OnDuplicate,
    QueueMode,
    QueueSettings,
    Want,
)
from outlive.model.schedule import Due, Fired, Firing, NewSchedule, ScheduleRecord
from outlive.model.session import HostSession
from outlive.names import JobId
from outlive.ports.driver import Driver
from outlive.ports.job_store import JobStore
from outlive.ports.schedule_store import ScheduleStore
from outlive.testing.conformance.lab import LONG_S, Lab, scenario

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US

# The clock of a store's machine may differ from ours; that of another year is not its clock.
CLOCKS_DIFFER_US = 24 * HOUR_US

# Long enough for a hint to arrive on a busy machine; waiting longer proves no more.
HINT_S = 10.0


async def open_both(lab: Lab, host: str = "a", namespace: str = "default") -> Clerk:
    """One more host; skips where the backend keeps no schedules."""
    lab.require("schedules")
    return Clerk(await lab.open(host, namespace))


class Clerk:
    """A host that keeps schedules, and says so in one short call each."""

    def __init__(self, driver: Driver) -> None:
        assert driver.schedules is not None
        assert driver.jobs is not None
        self.driver = driver
        self.schedules: ScheduleStore = driver.schedules
        self.jobs: JobStore = driver.jobs

    async def now_us(self) -> int:
        """The store's wall clock."""
        return (await self.schedules.due(limit=0)).now_us

    async def put(self, name: str, *, in_s: float, definition: str = "{}") -> ScheduleRecord:
        """Keep a schedule whose next tick is ``in_s`` from now, or that long ago."""
        next_us = await self.now_us() + round(in_s * SECOND_US)
        return await self.schedules.put(
            NewSchedule(name=name, definition=definition, next_at_us=next_us)
        )

    async def due(self, limit: int = 100) -> Due:
        """What is due now."""
        return await self.schedules.due(limit=limit)

    async def due_names(self) -> list[str]:
        """The names of what is due now."""
        return [schedule.name for schedule in (await self.due()).schedules]

    async def fire(self, seen: ScheduleRecord, job: NewJob | None = None) -> Fired:
        """Fire the next tick of a schedule as it was seen; an hour later the next one."""
        return await self.schedules.fire(
            Firing(
                name=seen.name,
                version=seen.version,
                tick_us=seen.next_at_us,
                next_at_us=seen.next_at_us + HOUR_US,
                job=job if job is not None else job_of(seen),
            )
        )

    async def kept(self, name: str) -> ScheduleRecord:
        """A schedule that must be there."""
        record = await self.schedules.get(name)
        assert record is not None, f"there is no schedule {name!r}"
        return record

    async def job_ids(self) -> list[str]:
        """The ids of all jobs, in order of enqueueing."""
        found = await self.jobs.list(JobFilter(), after=None, limit=100)
        return [record.id for record in found]


def job_of(schedule: ScheduleRecord, queue: str = "q", unique_key: str | None = None) -> NewJob:
    """The job of a tick: its id follows from schedule and tick."""
    return NewJob(
        id=JobId(f"{schedule.name}@{schedule.next_at_us}"),
        queue=queue,
        payload='{"a":1}',
        unique_key=unique_key,
        on_duplicate=OnDuplicate.RETURN,
    )


class KeepingSchedules:
    """Schedules are kept, changed, paused and removed by name."""

    @scenario
    async def test_a_schedule_is_kept_as_it_was_given(self, lab: Lab) -> None:
        """What was put is read back, by another host too."""
        a, b = await open_both(lab), await open_both(lab, "b")
        made = await a.put("nightly", in_s=60, definition='{"ü": "\'x\' % \\\\"}')
        assert (made.paused, made.fired, made.last_at_us) == (False, 0, None)
        assert made.definition == '{"ü": "\'x\' % \\\\"}'
        assert await b.kept("nightly") == made
        assert abs(made.created_at_us - await b.now_us()) < CLOCKS_DIFFER_US
        assert await b.schedules.get("weekly") is None

    @scenario
    async def test_the_same_definition_again_changes_nothing(self, lab: Lab) -> None:
        """A host that starts must not move the ticks that were missed."""
        a = await open_both(lab)
        made = await a.put("s", in_s=-90, definition='{"x":1}')
        assert await a.put("s", in_s=60, definition='{"x":1}') == made
        assert await a.kept("s") == made

    @scenario
    async def test_another_definition_takes_over(self, lab: Lab) -> None:
        """It comes with a next tick of its own, and fences firings of the old one."""
        a = await open_both(lab)
        old = await a.put("s", in_s=-90, definition='{"x":1}')
        new = await a.put("s", in_s=60, definition='{"x":2}')
        assert new.version > old.version
        assert new.next_at_us > old.next_at_us
        assert new.definition == '{"x":2}'
        assert (await a.fire(old)).version is None
        assert await a.job_ids() == []

    @scenario
    async def test_a_page_is_in_order_of_names(self, lab: Lab) -> None:
        """Pages go on after the last name of the one before."""
        a = await open_both(lab)
        names = ["B", "a", "a/1", "b", "ä"]
        for name in reversed(names):
            await a.put(name, in_s=60)
        page = await a.schedules.list(after=None, limit=3)
        rest = await a.schedules.list(after=page[-1].name, limit=100)
        assert [schedule.name for schedule in (*page, *rest)] == names

    @scenario
    async def test_a_deleted_schedule_is_gone(self, lab: Lab) -> None:
        """Neither seen nor fired; and one of its name begins anew."""
        a = await open_both(lab)
        made = await a.put("s", in_s=-1)
        assert await a.schedules.delete("s") is True
        assert await a.schedules.delete("s") is False
        assert await a.schedules.get("s") is None
        assert await a.due_names() == []
        assert (await a.fire(made)).version is None
        assert (await a.put("s", in_s=60)).fired == 0

    @scenario
    async def test_a_firing_from_before_a_deletion_does_not_fire_its_successor(
        self, lab: Lab
    ) -> None:
        """The version of a schedule that takes over a name is another one."""
        a = await open_both(lab)
        made = await a.put("s", in_s=-1)
        await a.schedules.delete("s")
        await a.put("s", in_s=60)
        assert (await a.fire(made)).version is None
        assert await a.job_ids() == []

    @scenario
    async def test_a_paused_schedule_does_not_fire(self, lab: Lab) -> None:
        """Until it is resumed, with the tick that is then given."""
        a = await open_both(lab)
        seen = await a.put("s", in_s=-1)
        paused = await a.schedules.pause("s")
        assert paused is not None
        assert paused.paused
        assert await a.schedules.pause("s") == paused
        assert await a.due_names() == []
        assert (await a.fire(seen)).version is None
        assert (await a.fire(paused)).version is None
        next_us = await a.now_us() - SECOND_US
        resumed = await a.schedules.resume("s", next_at_us=next_us)
        assert resumed is not None
        assert (resumed.paused, resumed.next_at_us) == (False, next_us)
        assert await a.due_names() == ["s"]
        assert await a.job_ids() == []

    @scenario
    async def test_pausing_and_resuming_may_be_repeated(self, lab: Lab) -> None:
        """One that is not paused keeps its tick; of one that is not there nothing is said."""
        a = await open_both(lab)
        made = await a.put("s", in_s=60)
        assert await a.schedules.resume("s", next_at_us=made.next_at_us + HOUR_US) == made
        assert await a.schedules.pause("t") is None
        assert await a.schedules.resume("t", next_at_us=1) is None

    @scenario
    async def test_a_change_leaves_a_paused_schedule_paused(self, lab: Lab) -> None:
        """Whoever paused it will say when."""
        a = await open_both(lab)
        await a.put("s", in_s=-1, definition='{"x":1}')
        await a.schedules.pause("s")
        assert (await a.put("s", in_s=-1, definition='{"x":2}')).paused
        assert await a.due_names() == []

    @scenario
    async def test_namespaces_are_apart(self, lab: Lab) -> None:
        """Names, ticks and jobs of one are unseen in the other."""
        a, other = await open_both(lab), await open_both(lab, "b", "other")
        made = await a.put("s", in_s=-1)
        assert await other.schedules.get("s") is None
        assert await other.schedules.list(after=None, limit=10) == []
        assert (await other.due()).next_due_s is None
        assert (await other.fire(made)).version is None
        assert await other.schedules.delete("s") is False
        assert await a.kept("s") == made

    @scenario
    async def test_a_closed_store_says_so(self, lab: Lab) -> None:
        """No call on it hangs."""
        a = await open_both(lab)
        await a.driver.close()
        with pytest.raises(StoreUnavailable):
            await a.schedules.due(limit=1)
        with pytest.raises(StoreUnavailable):
            await a.schedules.get("s")


class DueSchedules:
    """What is due is decided by the store's wall clock."""

    @scenario
    async def test_a_schedule_is_due_when_its_tick_has_come(self, lab: Lab) -> None:
        """Until then it says how long to wait."""
        a = await open_both(lab)
        await a.put("soon", in_s=0.5)
        await a.put("later", in_s=3600)
        before = await a.due()
        assert before.next_due_s is not None
        if not before.schedules:
            assert 0 < before.next_due_s <= 0.5
        await lab.advance(0.6)
        after = await a.due()
        assert [schedule.name for schedule in after.schedules] == ["soon"]
        assert after.next_due_s is not None
        assert 3000 < after.next_due_s <= 3600
        assert after.now_us > before.now_us

    @scenario
    async def test_the_most_overdue_comes_first(self, lab: Lab) -> None:
        """And what a limit leaves out is due at once."""
        a = await open_both(lab)
        for name, ago in (("b", 10), ("a", 5), ("c", 20)):
            await a.put(name, in_s=-ago)
        assert await a.due_names() == ["c", "b", "a"]
        two = await a.due(limit=2)
        assert [schedule.name for schedule in two.schedules] == ["c", "b"]
        assert (await a.due(limit=0)).schedules == ()

    @scenario
    async def test_nothing_to_wait_for_is_said(self, lab: Lab) -> None:
        """An empty store and a paused schedule make nobody wait for them."""
        a = await open_both(lab)
        empty = await a.due()
        assert (empty.schedules, empty.next_due_s) == ((), None)
        await a.put("s", in_s=60)
        await a.schedules.pause("s")
        assert (await a.due()).next_due_s is None

    @scenario
    async def test_a_schedule_fired_far_ahead_of_the_clock_is_looked_at(self, lab: Lab) -> None:
        """The clock was wrong then; waiting for that future would stop the schedule."""
        a = await open_both(lab)
        seen = await a.put("s", in_s=9000 * 3600)
        await a.fire(seen)
        assert await a.due_names() == ["s"]
        now_us = await a.now_us()
        seen = await a.kept("s")
        back = Firing(
            name="s",
            version=seen.version,
            tick_us=None,
            next_at_us=now_us + HOUR_US,
            job=None,
        )
        assert (await a.schedules.fire(back)).version is not None
        assert await a.due_names() == []
        assert (await a.kept("s")).next_at_us == now_us + HOUR_US


class FiringSchedules:
    """A tick becomes a job and the schedule moves on, both or neither."""

    @scenario
    async def test_a_tick_becomes_a_job(self, lab: Lab) -> None:
        """The job is there when the schedule has moved on."""
        a = await open_both(lab)
        await a.put("s", in_s=-1)
        (seen,) = (await a.due()).schedules
        fired = await a.fire(seen)
        assert fired.entry is Entry.CREATED
        record = await a.kept("s")
        assert record.version == fired.version
        assert (record.last_at_us, record.fired) == (seen.next_at_us, 1)
        assert record.next_at_us == seen.next_at_us + HOUR_US
        assert await a.due_names() == []
        job = await a.jobs.get(job_of(seen).id)
        assert job is not None
        assert (job.queue, job.payload, job.state) == ("q", '{"a":1}', "ready")

    @scenario
    async def test_a_repeated_firing_changes_nothing(self, lab: Lab) -> None:
        """After a lost reply the answer is that somebody was first."""
        a = await open_both(lab)
        seen = await a.put("s", in_s=-1)
        await a.fire(seen)
        after = await a.kept("s")
        assert await a.fire(seen) == Fired(None)
        assert await a.kept("s") == after
        assert len(await a.job_ids()) == 1

    @scenario
    async def test_one_of_many_hosts_fires_a_tick(self, lab: Lab) -> None:
        """All of them saw it due at the same moment."""
        hosts = [await open_both(lab, name) for name in ("a", "b", "c")]
        await hosts[0].put("s", in_s=-1)
        looks = [(host, (await host.due()).schedules[0]) for host in hosts]
        fired = await asyncio.gather(
            *(host.fire(seen) for host, seen in looks for _ in range(5)),
        )
        assert sum(one.version is not None for one in fired) == 1
        assert len(await hosts[0].job_ids()) == 1
        assert (await hosts[0].kept("s")).fired == 1

    @scenario
    async def test_a_crash_before_firing_leaves_the_tick_to_another(self, lab: Lab) -> None:
        """Who has looked owns nothing."""
        a, b = await open_both(lab), await open_both(lab, "b")
        await a.put("s", in_s=-1)
        assert await a.due_names() == ["s"]
        await a.driver.close()
        (seen,) = (await b.due()).schedules
        assert (await b.fire(seen)).entry is Entry.CREATED

    @scenario
    async def test_a_schedule_may_move_on_without_a_job(self, lab: Lab) -> None:
        """A missed tick that nobody wants is passed over."""
        a = await open_both(lab)
        seen = await a.put("s", in_s=-1)
        over = Firing(
            name="s",
            version=seen.version,
            tick_us=None,
            next_at_us=seen.next_at_us + HOUR_US,
            job=None,
        )
        assert (await a.schedules.fire(over)).entry is None
        record = await a.kept("s")
        assert (record.fired, record.last_at_us) == (0, None)
        assert record.next_at_us == seen.next_at_us + HOUR_US
        assert await a.job_ids() == []

    @scenario
    async def test_a_job_that_is_there_already_is_not_added_again(self, lab: Lab) -> None:
        """Its id says which tick it is of."""
        a = await open_both(lab)
        seen = await a.put("s", in_s=-1)
        await a.jobs.enqueue([job_of(seen)])
        assert (await a.fire(seen)).version is not None
        assert len(await a.job_ids()) == 1
        assert (await a.kept("s")).last_at_us == seen.next_at_us

    @scenario
    async def test_a_queue_that_drains_takes_no_job_and_the_schedule_moves_on(
        self, lab: Lab
    ) -> None:
        """Otherwise it would be due for as long as the queue drains."""
        a = await open_both(lab)
        seen = await a.put("s", in_s=-1)
        await a.jobs.put_queue(QueueSettings(name="q", mode=QueueMode.DRAINING))
        assert (await a.fire(seen)).entry is Entry.CLOSED
        assert await a.job_ids() == []
        assert (await a.kept("s")).next_at_us == seen.next_at_us + HOUR_US

    @scenario
    async def test_a_unique_key_keeps_runs_from_piling_up(self, lab: Lab) -> None:
        """While the job of an earlier tick lives, no other is added."""
        a = await open_both(lab)
        first = await a.put("s", in_s=-7200)
        assert (await a.fire(first, job_of(first, unique_key="k"))).entry is Entry.CREATED
        second = await a.kept("s")
        assert (await a.fire(second, job_of(second, unique_key="k"))).entry is Entry.EXISTING
        assert await a.job_ids() == [job_of(first).id]
        assert (await a.kept("s")).next_at_us == second.next_at_us + HOUR_US

    @scenario
    async def test_a_host_that_waits_for_the_queue_hears_of_the_job(self, lab: Lab) -> None:
        """Firing is enqueueing, to the last."""
        lab.require("push")
        a, b = await open_both(lab), await lab.host("b")
        assert b.driver.hosts is not None
        assert b.driver.jobs is not None
        await b.driver.hosts.open(
            HostSession(id=b.id, name="b", ttl_us=round(LONG_S * 1e6), metadata="{}")
        )
        heard = asyncio.Event()
        b.wakeups.subscribe(lambda wakeup: heard.set() if wakeup.topic == "work/q" else None)
        request = ClaimRequest(
            session=b.id, worker="b", request="r1", wants=(Want("q", 1),), wait_us=60 * SECOND_US
        )
        assert (await b.driver.jobs.claim(request)).jobs == ()
        await a.fire(await a.put("s", in_s=-1))
        async with asyncio.timeout(HINT_S):
            await heard.wait()


class ScheduleStoreSuite(KeepingSchedules, DueSchedules, FiringSchedules):
    """Everything the ``ScheduleStore`` port promises. Give it a ``lab`` fixture."""
