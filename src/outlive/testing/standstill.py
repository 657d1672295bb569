"""Finds out that a story waits for what never comes, and says who waits for what.

Owns nothing: it looks at the store of a ``World`` from outside, now and then. Hosts have timers of
their own, so that virtual time goes on also where nothing ever happens again. Must never call it a
deadlock while something may happen by itself: a flow, a job or a schedule that has its time, or a
function of an app that acts when it likes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from outlive.app import App
from outlive.clock import microseconds
from outlive.errors import OutliveError
from outlive.flows.recording import awaited_by, awaited_words, record_flow, replayed
from outlive.model.instance import LIVE as LIVE_FLOWS
from outlive.model.instance import InstanceFilter, InstanceRecord, InstanceStatus
from outlive.model.job import LIVE as LIVE_JOBS
from outlive.model.job import JobFilter, JobRecord, JobState
from outlive.model.schedule import ScheduleRecord
from outlive.ports.driver import Driver
from outlive.testing.loop import Deadlock, LoopHost
from outlive.testing.simulation import Simulation

T = TypeVar("T")

# Looks within the time that nothing may happen.
_LOOKS = 10

# What a store is asked for at once; all pages are read, because the one thing that goes on by
# itself may be on the last.
_PAGE = 500

# Flows and jobs that are named; a reader has seen enough then.
_NAMED_MAX = 10


NOBODY_SERVES = (
    "no host has an app, so that nobody runs flows and jobs: let the story begin with "
    "`await world.serve(app)`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What is not done, and what makes more of it at its time."""

    flows: Sequence[InstanceRecord] = ()
    jobs: Sequence[JobRecord] = ()
    schedules: Sequence[ScheduleRecord] = ()


class Standstill:
    """Watches one store for a time in which nothing happens though something is not done."""

    def __init__(
        self,
        driver: Driver,
        simulation: Simulation,
        hosted: Sequence[tuple[LoopHost, App]],
        limit_s: float,
    ) -> None:
        self._driver = driver
        self._simulation = simulation
        # The world's own list: what is served later counts as well.
        self._hosted = hosted
        self._limit_s = limit_s

    async def watch(self) -> NoReturn:
        """Look until cancelled.

        Raises:
            Deadlock: Nothing but this watch would ever run again; or for so long no flow and no
                job has changed, and none will by itself.
        """
        before = _Seen()
        looks = 0
        while True:
            await asyncio.sleep(self._limit_s / _LOOKS)
            seen = await self._look()
            # The timer of this watch keeps the loop from seeing it by itself.
            if self._simulation.loop.idle:
                raise Deadlock(await self._told_idle(seen))
            looks = looks + 1 if seen == before and self._stands(seen) else 0
            before = seen
            if looks >= _LOOKS:
                raise Deadlock(await self._told(seen))

    async def _look(self) -> _Seen:
        instances, jobs, schedules = (
            self._driver.instances,
            self._driver.jobs,
            self._driver.schedules,
        )
        assert instances is not None
        assert jobs is not None
        assert schedules is not None
        flows = InstanceFilter(kind="flow", statuses=LIVE_FLOWS)
        live = JobFilter(states=LIVE_JOBS)
        return _Seen(
            flows=await _all_pages(
                lambda after: instances.list(flows, after=after, limit=_PAGE),
                lambda flow: flow.cursor,
            ),
            jobs=await _all_pages(
                lambda after: jobs.list(live, after=after, limit=_PAGE), lambda job: job.cursor
            ),
            schedules=await _all_pages(
                lambda after: schedules.list(after=after, limit=_PAGE),
                lambda schedule: schedule.name,
            ),
        )

    def _stands(self, seen: _Seen) -> bool:
        """Whether something is not done, and nobody is at it, nor will be at a time that is set."""
        now = self._simulation.clock.now()
        now_us = microseconds(now)
        return (
            bool(seen.flows or seen.jobs)
            and all(job.state is JobState.READY for job in seen.jobs)
            and all(flow.owner is None for flow in seen.flows)
            and all(flow.due_at is None or flow.due_at <= now for flow in seen.flows)
            # One that is overdue is fired by nobody.
            and all(each.paused or each.next_at_us <= now_us for each in seen.schedules)
            and not self._acts()
        )

    def _acts(self) -> bool:
        """Whether a host leads or ticks: what such functions do, and when, no store knows."""
        return any(app.leaders or app.periodics for host, app in self._hosted if not host.crashed)

    async def _told(self, seen: _Seen) -> str:
        days = self._limit_s / 86_400
        lines = [
            f"nothing happened for {days:g} days, and the story does not end:",
            *await self._undone(seen),
        ]
        if self._hosted:
            lines.append(
                "let the story send what they wait for, or give result() a timeout; if it does so "
                "later than this, give World(limit=…) more time"
            )
        return "\n".join(lines)

    async def _told_idle(self, seen: _Seen) -> str:
        lines = [
            "nothing is ready and nothing is scheduled, and the story does not end:",
            *await self._undone(seen),
            "where its code waits:",
            self._simulation.loop.dump(),
        ]
        return "\n".join(lines)

    async def _undone(self, seen: _Seen) -> list[str]:
        lines = [
            f"  flow {flow.id!r} of {flow.name!r} {await self._why(flow)}"
            for flow in seen.flows[:_NAMED_MAX]
        ]
        lines += [
            f"  job {job.id!r} of queue {job.queue!r} is taken by no host"
            for job in seen.jobs[:_NAMED_MAX]
        ]
        if lines and not self._hosted:
            lines.append(NOBODY_SERVES)
        return lines

    async def _why(self, flow: InstanceRecord) -> str:
        if flow.status is InstanceStatus.PENDING:
            return "is taken by no host"
        if flow.status is InstanceStatus.SUSPENDED:
            return "is suspended"
        if flow.due_at is not None:
            return "is ready, and no host takes it"
        assert self._driver.instances is not None
        definition = next(
            (app.flows[flow.name] for _, app in self._hosted if flow.name in app.flows), None
        )
        if definition is None:
            return "is taken by no host any more"
        try:
            with replayed(definition, await record_flow(self._driver.instances, flow.id)) as run:
                return f"waits for {awaited_words(awaited_by(run)) or 'what nobody does'}"
        except OutliveError as error:
            return f"cannot go on: {error}"


async def _all_pages(
    page_after: Callable[[str | None], Awaitable[Sequence[T]]], place: Callable[[T], str]
) -> Sequence[T]:
    found: list[T] = []
    while True:
        page = await page_after(place(found[-1]) if found else None)
        found += page
        if len(page) < _PAGE:
            return found
