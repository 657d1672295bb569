"""The tender: lets the store end jobs that expired, and remove what was kept long enough.

Runs on the keeper of every host that has a session, whether it runs anything or only serves others:
what ends in a store must not stay there because nobody works in the same process. It never waits
for anybody, and gives up until its next look when the store does not answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from outlive.errors import OutliveError
from outlive.ports.driver import Driver
from outlive.ports.instance_store import InstanceStore
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime

_log = logging.getLogger("outlive.host")

# Retention is hours: a look each minute by each host keeps up with thousands of jobs a second, and
# costs an idle host a few small statements.
TEND_EVERY_S = 60.0

# Ended or removed in one step: few enough to hold no lock for long.
TEND_MAX = 500

# One look goes on for so many steps at most; the next look goes on from there.
_ROUNDS_MAX = 100


class Tender:
    """Looks after the jobs and flows of one namespace that are over."""

    def __init__(self, runtime: Runtime, *, log: logging.Logger = _log) -> None:
        self._runtime = runtime
        self._log = log
        self._task: asyncio.Task[None] | None = None
        # Hosts that are started together must not come together.
        self._due = runtime.clock.monotonic() + self._pause_s()

    def tick(self, now: float, driver: Driver) -> float:
        """Look if it is time and no look is under way."""
        if now >= self._due:
            self._due = now + self._pause_s()
            if self._task is None or self._task.done():
                self._task = self._runtime.spawn(self._look(driver), name="outlive-tender")
        return self._due

    async def stop(self) -> None:
        """End the look under way. Repeatable."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _look(self, driver: Driver) -> None:
        if driver.jobs is not None:
            await self._tend(partial(_tend_jobs, driver.jobs), "jobs")
        if driver.instances is not None:
            await self._tend(partial(_tend_flows, driver.instances), "flows")

    async def _tend(self, step: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            for _ in range(_ROUNDS_MAX):
                if not await step():
                    return
        except OutliveError as error:
            self._log.warning("could not prune ended %s, will retry: %s", what, error)

    def _pause_s(self) -> float:
        return TEND_EVERY_S * self._runtime.random.uniform(0.5, 1.5)


async def _tend_jobs(store: JobStore) -> bool:
    """One step; true if there may be more."""
    tended = await store.tend(limit=TEND_MAX)
    return max(tended.expired, tended.pruned) >= TEND_MAX


async def _tend_flows(store: InstanceStore) -> bool:
    # Those with long histories are few at a time.
    return await store.tend(limit=TEND_MAX) > 0
