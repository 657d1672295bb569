"""The course of one seeded run: chaos with machines that die and return, then peace, a verdict.

Owns what fleets of different features have in common. What a host does and what is looked at in
the end are theirs.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pytest

from outlive.drivers.memory import MemoryFactory
from outlive.model.options import CLOCK_DRIFT
from outlive.names import HostId
from outlive.ports.driver import Driver, DriverFactory
from outlive.testing.faults import FaultPlan, Faults
from outlive.testing.simulated_runtime import SimulatedStore
from outlive.testing.simulation import DRIFT_BEYOND, SimHost, Simulation
from tests.simulation.oracles.history import History
from tests.simulation.oracles.lease_reference import Violation
from tests.simulation.oracles.recorder import Recorder

MACHINES = ("ant", "bee", "cat")

ONLY = os.environ.get("OUTLIVE_SEED")
"""One seed alone, to see it again."""

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
        lines.append(f"repeat: OUTLIVE_SEED={self.seed} python -m pytest tests/simulation")
        return "\n".join(lines)


class Course:
    """One seeded run of several machines against one store."""

    ttl_s: float
    chaos_s: float

    def __init__(
        self,
        seed: int,
        *,
        factory: DriverFactory | None = None,
        plan: FaultPlan | None = None,
        wall_jumps: bool = True,
    ) -> None:
        drifted = seed % 5 == 4
        self.simulation = Simulation(
            seed, drift_max=DRIFT_BEYOND if drifted else CLOCK_DRIFT, wall_jumps=wall_jumps
        )
        plan = plan or FaultPlan.drawn(self.simulation.stream("plan"), ttl_s=self.ttl_s)
        self.faults = Faults(self.simulation, plan)
        self.history = History(seed, lambda: self.simulation.now)
        self.outcome = Outcome(seed, drifted, plan)
        self.seen = self.outcome.seen
        # When the chaos is over, and when everything is.
        self.peace = asyncio.Event()
        self.end = asyncio.Event()
        self.healed_at = 0.0
        url = f"memory://simulation-{next(_names)}"
        self._store = SimulatedStore(
            factory or MemoryFactory(), url, self.faults, Recorder(self.history)
        )

    @property
    def stopping(self) -> bool:
        """Whether the chaos is over."""
        return self.peace.is_set()

    @property
    def finished(self) -> bool:
        """Whether everything is over."""
        return self.end.is_set()

    def run(self) -> Outcome:
        """Run the seed and judge it."""
        self.simulation.run(lambda _: self._main())
        for fault, count in self.faults.counts.items():
            self.seen[f"fault {fault}"] += count
        self.seen["drifted"] += self.outcome.drifted
        self.judge()
        return self.outcome

    def judge(self) -> None:
        """Count what happened, and add the violations to the outcome."""
        raise NotImplementedError

    async def host_main(self, host: SimHost) -> None:
        """What one incarnation of a machine does."""
        raise NotImplementedError

    async def settle(self, keep: Driver) -> None:
        """After the last fault: wait until all has ended or had time enough, and look at it."""
        raise NotImplementedError

    async def look(self, keep: Driver) -> None:
        """When no host works any more: look at what is left."""

    def crashed(self, host: SimHost) -> None:
        """A host has died."""

    async def _main(self) -> None:
        # A memory store lives as long as somebody has it open.
        keep = await self._store.open(HostId("world"))
        disasters = asyncio.create_task(self.faults.disasters())
        machines = [asyncio.create_task(self._machine(name)) for name in MACHINES]
        await asyncio.sleep(self.chaos_s)
        self.peace.set()
        self.faults.heal()
        self.healed_at = self.simulation.now
        disasters.cancel()
        await self.settle(keep)
        self.end.set()
        await asyncio.gather(*machines)
        await self.look(keep)
        await keep.close()

    async def _machine(self, name: str) -> None:
        draw = self.simulation.stream(f"machine/{name}/restarts")
        while not self.finished:
            host = self.simulation.start_host(name)
            task = host.spawn(self.host_main(host), name="main")
            if await host.join(task):
                task.result()
            else:
                self.crashed(host)
                await asyncio.sleep(draw.uniform(0, 2 * self.ttl_s))


class Run:
    """What many seeds did together."""

    def __init__(self, course: Callable[[int], Course], seeds: Iterable[int]) -> None:
        self.seen: Counter[str] = Counter()
        self.broken: list[Outcome] = []
        for seed in seeds if ONLY is None else [int(ONLY)]:
            outcome = course(seed).run()
            self.seen += outcome.seen
            if outcome.violations:
                self.broken.append(outcome)

    def below(self, floors: dict[str, int]) -> dict[str, int]:
        """What happened too seldom for silence to mean something."""
        return {what: self.seen[what] for what, floor in floors.items() if self.seen[what] < floor}

    def explain(self) -> str:
        """The first findings."""
        return "\n\n".join(outcome.explain() for outcome in self.broken[:3])


def require_found(course: Callable[[int], Course], rules: set[str], seeds: int) -> None:
    """Fail unless one of so many seeds breaks one of ``rules``."""
    reported: set[str] = set()
    for seed in range(seeds):
        reported |= {violation.rule for violation in course(seed).run().violations}
        if reported & rules:
            return
    pytest.fail(f"{seeds} seeds did not find {rules}; reported: {sorted(reported)}")


def outputs_in_other_processes(program: str) -> set[str]:
    """What ``program`` prints where sets and dictionaries of strings are ordered differently."""
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": hash_seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
            },
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2", "3")
    }
