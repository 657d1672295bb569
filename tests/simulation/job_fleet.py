"""A fleet of hosts that work on jobs under chaos, then in peace until nothing is left to do."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from outlive.model.job import FINAL, JobFilter, JobState
from outlive.names import HostId
from outlive.ports.driver import Driver, DriverFactory
from outlive.testing.faults import FaultPlan
from outlive.testing.simulation import SimHost
from tests.simulation.course import Course
from tests.simulation.job_host import TTL_S, JobHost
from tests.simulation.oracles.job_checker import check_jobs

# After the chaos: sessions run out and are reaped (two ttls), strange claims are given back (two
# sweeps), due times and retries come (one ttl), and a backlog of a few dozen jobs is worked off,
# those of one ordering key one after the other.
PEACE_S = 30 * TTL_S


class JobFleet(Course):
    """One seeded run of several machines against one store."""

    ttl_s = TTL_S
    chaos_s = 6 * TTL_S

    def __init__(
        self, seed: int, *, factory: DriverFactory | None = None, plan: FaultPlan | None = None
    ) -> None:
        super().__init__(seed, factory=factory, plan=plan)
        self._judged = self.history.jobs

    def judge(self) -> None:
        for served in self._judged.served:
            self.seen[f"{served.op} {served.outcome}"] += 1
        outcome = self.outcome
        outcome.violations += check_jobs(self._judged, drifted=outcome.drifted)

    async def settle(self, keep: Driver) -> None:
        assert keep.jobs is not None
        left: dict[str, JobState] = {}
        known: set[str] = set()
        for _ in range(round(PEACE_S / TTL_S)):
            await asyncio.sleep(TTL_S)
            known = set(self.history.jobs.acknowledged)
            page = await keep.jobs.list(JobFilter(), after=None, limit=1000)
            left = {record.id: record.state for record in page}
            if all(state in FINAL for state in left.values()):
                break
        # A machine that stood still may enqueue after all others are done; that is not looked at.
        self._judged = replace(self.history.jobs, acknowledged=known, left=left)

    async def host_main(self, host: SimHost) -> None:
        driver = await self._store.open_for(host, HostId(host.name))
        await JobHost(self, host, driver).run()
