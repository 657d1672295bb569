"""Finds out that a story waits for what never comes, and says who waits for what.

Owns nothing: it looks at the store of a ``World`` from outside, now and then. Hosts have timers of
their own, so that virtual time goes on also where nothing ever happens again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from holdfast.app import App
from holdfast.clock import Clock
from holdfast.errors import HoldfastError
from holdfast.flows.recording import record_flow, replayed
from holdfast.flows.run import FlowRun
from holdfast.model.instance import LIVE as LIVE_FLOWS
from holdfast.model.instance import InstanceFilter, InstanceRecord, InstanceStatus
from holdfast.model.job import LIVE as LIVE_JOBS
from holdfast.model.job import JobFilter, JobRecord, JobState
from holdfast.ports.driver import Driver
from holdfast.testing.loop import Deadlock

# Looks within the time that nothing may happen.
_LOOKS = 10

# A test has fewer flows and jobs; of more, the first are looked at.
_PAGE = 500

# Flows and jobs that are named; a reader has seen enough then.
_NAMED_MAX = 10

NOBODY_SERVES = (
    "no host has an app, so that nobody runs flows and jobs: let the story begin with "
    "`await world.serve(app)`"
)

_Seen = tuple[Sequence[InstanceRecord], Sequence[JobRecord]]


class Standstill:
    """Watches one store for a time in which nothing happens though something is not done."""

    def __init__(self, driver: Driver, clock: Clock, apps: Sequence[App], limit_s: float) -> None:
        self._driver = driver
        self._clock = clock
        # The world's own list: what is served later counts as well.
        self._apps = apps
        self._limit_s = limit_s

    async def watch(self) -> NoReturn:
        """Look until cancelled.

        Raises:
            Deadlock: For so long no flow and no job has changed, and none will by itself.
        """
        before: _Seen = ((), ())
        looks = 0
        while True:
            await asyncio.sleep(self._limit_s / _LOOKS)
            seen = await self._look()
            looks = looks + 1 if seen == before and self._stands(seen) else 0
            before = seen
            if looks >= _LOOKS:
                raise Deadlock(await self._told(seen))

    async def _look(self) -> _Seen:
        instances, jobs = self._driver.instances, self._driver.jobs
        assert instances is not None
        assert jobs is not None
        live = InstanceFilter(kind="flow", statuses=LIVE_FLOWS)
        return (
            await instances.list(live, after=None, limit=_PAGE),
            await jobs.list(JobFilter(states=LIVE_JOBS), after=None, limit=_PAGE),
        )

    def _stands(self, seen: _Seen) -> bool:
        """Whether something is not done, and nobody is at it, nor will be at a time that is set."""
        flows, jobs = seen
        now = self._clock.now()
        return (
            bool(flows or jobs)
            and all(job.state is JobState.READY for job in jobs)
            and all(flow.owner is None for flow in flows)
            and all(flow.due_at is None or flow.due_at <= now for flow in flows)
        )

    async def _told(self, seen: _Seen) -> str:
        flows, jobs = seen
        days = self._limit_s / 86_400
        lines = [f"nothing happened for {days:g} days, and the story does not end:"]
        lines += [
            f"  flow {flow.id!r} of {flow.name!r} {await self._why(flow)}"
            for flow in flows[:_NAMED_MAX]
        ]
        lines += [
            f"  job {job.id!r} of queue {job.queue!r} is taken by no host"
            for job in jobs[:_NAMED_MAX]
        ]
        if not self._apps:
            lines.append(NOBODY_SERVES)
        else:
            lines.append(
                "let the story send what they wait for, or give result() a timeout; if it does so "
                "later than this, give World(limit=…) more time"
            )
        return "\n".join(lines)

    async def _why(self, flow: InstanceRecord) -> str:
        if flow.status is InstanceStatus.PENDING:
            return "is taken by no host"
        if flow.status is InstanceStatus.SUSPENDED:
            return "is suspended"
        if flow.due_at is not None:
            return "is ready, and no host takes it"
        assert self._driver.instances is not None
        definition = next(
            (app.flows[flow.name] for app in self._apps if flow.name in app.flows), None
        )
        if definition is None:
            return "is taken by no host any more"
        try:
            with replayed(definition, await record_flow(self._driver.instances, flow.id)) as run:
                return f"waits for {_awaited(run)}"
        except HoldfastError as error:
            return f"cannot go on: {error}"


def _awaited(run: FlowRun) -> str:
    """What the code of a flow waits for, as far as others have to do it."""
    waits = [f"signal {name!r}" for name in run.inbox.waiting]
    waits += [f"step {identity}" for identity in run.calling.steps]
    waits += [f"child {call.id!r}" for call in run.children.open.values()]
    return ", ".join(waits) or "what nobody does"
