"""A fleet of hosts that work on jobs under chaos, then in peace until nothing is left to do.

Owns the course of one seed, and its verdict.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field

from holdfast.drivers.memory import MemoryFactory
from holdfast.model.job import FINAL, JobFilter, JobState
from holdfast.model.options import CLOCK_DRIFT
from holdfast.names import HostId
from holdfast.ports.driver import Driver, DriverFactory
from holdfast.testing.faults import FaultPlan, Faults
from holdfast.testing.history import History
from holdfast.testing.job_checker import check_jobs
from holdfast.testing.reference import Violation
from holdfast.testing.simulated_runtime import SimulatedStore
from holdfast.testing.simulation import DRIFT_BEYOND, SimHost, Simulation
from tests.simulation.job_host import TTL_S, JobHost

MACHINES = ("ant", "bee", "cat")
CHAOS_S = 6 * TTL_S

# After the chaos: sessions run out and are reaped (two ttls), strange claims are given back (two
# sweeps), due times and retries come (one ttl), and a backlog of a few dozen jobs is worked off,
# those of one ordering key one after the other.
PEACE_S = 30 * TTL_S

_names = itertools.count()


@dataclass
class Outcome:
    """What one seed did and broke."""

    seed: int
    drifted: bool
    plan: FaultPlan
    violations: list[Violation] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def explain(self) -> str:
        """The findings and how to see them again."""
        lines = [str(violation) for violation in self.violations[:5]]
        lines.append(f"plan: {self.plan}")
        lines.append(f"repeat: HOLDFAST_SEED={self.seed} python -m pytest tests/simulation")
        return "\n".join(lines)


class JobFleet:
    """One seeded run of several machines against one store."""

    def __init__(self, seed: int, *, factory: DriverFactory | None = None) -> None:
        drifted = seed % 5 == 4
        self.simulation = Simulation(seed, drift_max=DRIFT_BEYOND if drifted else CLOCK_DRIFT)
        plan = FaultPlan.drawn(self.simulation.stream("plan"), ttl_s=TTL_S)
        self.faults = Faults(self.simulation, plan)
        self.history = History(seed, lambda: self.simulation.now)
        self.outcome = Outcome(seed, drifted, plan)
        self.seen = self.outcome.seen
        self.stopping = False
        self.finished = False
        url = f"memory://job-simulation-{next(_names)}"
        self._store = SimulatedStore(factory or MemoryFactory(), url, self.faults, self.history)

    def run(self) -> Outcome:
        """Run the seed and judge it."""
        self.simulation.run(lambda _: self._main())
        for fault, count in self.faults.counts.items():
            self.seen[f"fault {fault}"] += count
        for served in self.history.jobs.served:
            self.seen[f"{served.op} {served.outcome}"] += 1
        outcome = self.outcome
        outcome.violations += check_jobs(self.history.jobs, drifted=outcome.drifted)
        return outcome

    async def _main(self) -> None:
        # A memory store lives as long as somebody has it open.
        keep = await self._store.open(HostId("world"))
        disasters = asyncio.create_task(self.faults.disasters())
        machines = [asyncio.create_task(self._machine(name)) for name in MACHINES]
        await asyncio.sleep(CHAOS_S)
        self.stopping = True
        self.faults.heal()
        disasters.cancel()
        self.history.jobs.left = await self._left(keep)
        self.finished = True
        await asyncio.gather(*machines)
        await keep.close()

    async def _left(self, driver: Driver) -> dict[str, JobState]:
        """What has become of all jobs, once all have ended or had time enough."""
        assert driver.jobs is not None
        left: dict[str, JobState] = {}
        for _ in range(round(PEACE_S / TTL_S)):
            await asyncio.sleep(TTL_S)
            page = await driver.jobs.list(JobFilter(), after=None, limit=1000)
            left = {record.id: record.state for record in page}
            if all(state in FINAL for state in left.values()):
                break
        return left

    async def _machine(self, name: str) -> None:
        draw = self.simulation.stream(f"machine/{name}/restarts")
        while not self.finished:
            host = self.simulation.start_host(name)
            task = host.spawn(self._host_main(host), name="main")
            if await host.join(task):
                task.result()
            else:
                await asyncio.sleep(draw.uniform(0, 2 * TTL_S))

    async def _host_main(self, host: SimHost) -> None:
        driver = await self._store.open_for(host, HostId(host.name))
        await JobHost(self, host, driver).run()
