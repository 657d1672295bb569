"""A fleet of the real leases feature under chaos: machines that die and return, then peace.

Owns the course of one seed, and its verdict.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import dataclass, field

from outlive.drivers.memory import MemoryFactory
from outlive.errors import OutliveError
from outlive.host import Host
from outlive.model.options import CLOCK_DRIFT, LeaseOptions
from outlive.names import HostId
from outlive.ports.driver import Driver, DriverFactory
from outlive.testing.faults import FaultPlan, Faults
from outlive.testing.simulated_runtime import SimulatedStore
from outlive.testing.simulation import DRIFT_BEYOND, SimHost, Simulation
from tests.simulation.oracles.history import History
from tests.simulation.oracles.lease_checker import LIVENESS_BOUND_S, Violation, check
from tests.simulation.oracles.recorder import Recorder
from tests.simulation.worker import LOCKS, SEMAPHORE, SLOTS, TTL_S, Worker

MACHINES = ("ant", "bee", "cat")
WORKERS = 2
CHAOS_S = 9 * TTL_S
OPTIONS = LeaseOptions(ttl=TTL_S, acquire_retry=(0.3, 1.0))

# Nothing fails, and a machine's requests arrive in the order in which they were sent.
CALM = FaultPlan(ttl_s=TTL_S, latency_s=0.04, jitter=False)

_names = itertools.count()


@dataclass
class Outcome:
    """What one seed did and broke."""

    seed: int
    drifted: bool
    plan: FaultPlan
    history: History
    violations: list[Violation] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)
    left: list[str] = field(default_factory=list)
    steps: int = 0

    def explain(self) -> str:
        """The findings and how to see them again."""
        lines = [str(violation) for violation in self.violations[:5]]
        lines.append(f"plan: {self.plan}")
        lines.append(f"repeat: OUTLIVE_SEED={self.seed} python -m pytest tests/simulation")
        return "\n".join(lines)


class Fleet:
    """One seeded run of several machines against one store."""

    def __init__(
        self,
        seed: int,
        *,
        plan: FaultPlan | None = None,
        wall_jumps: bool = True,
        fenced: bool = True,
        several: bool = True,
        factory: DriverFactory | None = None,
    ) -> None:
        drifted = seed % 5 == 4
        self.simulation = Simulation(
            seed, drift_max=DRIFT_BEYOND if drifted else CLOCK_DRIFT, wall_jumps=wall_jumps
        )
        plan = plan or FaultPlan.drawn(self.simulation.stream("plan"), ttl_s=TTL_S)
        self.faults = Faults(self.simulation, plan)
        self.history = History(seed, lambda: self.simulation.now)
        self.outcome = Outcome(seed, drifted, plan, self.history)
        self.seen = self.outcome.seen
        self.stopping = False
        self.tokens: dict[str, int] = {}
        self.led_until: dict[tuple[str, int], float] = {}
        self.lost: set[str] = set()
        self.sessions: dict[str, str] = {}
        self.fenced = fenced
        self.several = several
        url = f"memory://lease-simulation-{next(_names)}"
        self._store = SimulatedStore(
            factory or MemoryFactory(), url, self.faults, Recorder(self.history)
        )

    @property
    def now(self) -> float:
        """True time."""
        return self.simulation.now

    def stream(self, name: str) -> random.Random:
        """A random stream of its own."""
        return self.simulation.stream(name)

    def run(self) -> Outcome:
        """Run the seed and judge it."""
        healed_at = self.simulation.run(lambda _: self._main())
        outcome = self.outcome
        outcome.steps = self.simulation.loop.steps
        for fault, count in self.faults.counts.items():
            self.seen[f"fault {fault}"] += count
        self._count_events()
        outcome.violations += check(self.history, drifted=outcome.drifted, healed_at=healed_at)
        outcome.violations += self._stepped_down_early()
        return outcome

    def _stepped_down_early(self) -> list[Violation]:
        return [
            Violation(
                rule="L3",
                seed=self.outcome.seed,
                text=f"{served.key!r} was given up before its leader's function had ended",
                proof=(str(served), str(self.led_until[served.grant, served.token])),
            )
            for served in self.history.served
            # What was lost is over for its owner; the key is given back as soon as it is known.
            if served.op == "release"
            and served.at < self.led_until.get((served.grant, served.token), 0.0)
            and served.grant not in self.lost
        ]

    def _count_events(self) -> None:
        for event in self.history.events():
            self.seen[f"{event.op} {event.ok}"] += 1
        for entry in self.history.applied():
            self.seen["write accepted" if entry.accepted else "write fenced"] += 1

    async def _main(self) -> float:
        # A memory store lives as long as somebody has it open.
        keep = await self._store.open(HostId("world"))
        disasters = asyncio.create_task(self.faults.disasters())
        machines = [asyncio.create_task(self._machine(name)) for name in MACHINES]
        await asyncio.sleep(CHAOS_S)
        self.stopping = True
        self.faults.heal()
        disasters.cancel()
        healed_at = self.simulation.now
        if self.faults.plan.crash and self.simulation.stream("end").random() < 0.5:
            for machine in list(self.simulation.hosts.values()):
                machine.crash()
        await asyncio.gather(*machines)
        await self._look(keep)
        await self._probe()
        self.history.freeze()
        await keep.close()
        return healed_at

    async def _look(self, driver: Driver) -> None:
        """What a ttl after the end of all work is still owned or queued for."""
        await asyncio.sleep(TTL_S)
        for key in (*LOCKS, SEMAPHORE):
            for record in await driver.leases.get(key):
                if record.active:
                    self.outcome.left.append(f"{key!r} is still owned by {record.owner}")
                if record.waiters:
                    self.outcome.left.append(f"{record.waiters} wait for {key!r}")

    async def _machine(self, name: str) -> None:
        draw = self.simulation.stream(f"machine/{name}/restarts")
        while not self.stopping:
            machine = self.simulation.start_host(name)
            task = machine.spawn(self._host_main(machine), name="main")
            if await machine.join(task):
                task.result()
            else:
                self.history.crash(self.sessions.get(machine.name, machine.name))
                await asyncio.sleep(draw.uniform(0, 2 * TTL_S))

    async def _host_main(self, machine: SimHost) -> None:
        while not self.stopping:
            try:
                host = await self._store.connect(machine, OPTIONS)
            except OutliveError:
                self.seen["connect failed"] += 1
                await asyncio.sleep(0.1)
                continue
            self.sessions[machine.name] = proc = f"{machine.name}.{self.seen['connected']}"
            self.seen["connected"] += 1
            await self._work(machine, host, proc)
            # Nobody of this connection believes anything any more.
            self.history.crash(proc)
            await host.close()

    async def _work(self, machine: SimHost, host: Host, proc: str) -> None:
        """Let workers work, and cancel them wherever they stand when the time is over."""
        draw = self.simulation.stream(f"session/{proc}")
        workers = [Worker(self, machine, host, proc, number) for number in range(WORKERS)]
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        done, pending = await asyncio.wait(tasks, timeout=draw.uniform(0.2, 1.2) * CHAOS_S)
        for task in pending:
            self.seen["worker cancelled"] += 1
            task.cancel()
        if pending:
            ended, _ = await asyncio.wait(pending)
            done |= ended
        for task in done:
            if not task.cancelled():
                task.result()

    async def _probe(self) -> None:
        """After the chaos every slot of every key must be had within a ttl and the bound."""
        machine = self.simulation.start_host("probe")
        task = machine.spawn(self._probe_all(machine), name="probe")
        await machine.join(task)
        task.result()

    async def _probe_all(self, machine: SimHost) -> None:
        host = await self._store.connect(machine, OPTIONS)
        worker = Worker(self, machine, host, machine.name, 0)
        wanted = [(key, 1) for key in LOCKS] + [(SEMAPHORE, SLOTS)] * SLOTS
        leases = await asyncio.gather(
            *(
                worker.wait_for(key, limit, timeout=TTL_S + LIVENESS_BOUND_S + 1)
                for key, limit in wanted
            )
        )
        self.seen["probe"] += len([lease for lease in leases if lease is not None])
        await host.close()
