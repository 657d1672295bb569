"""A fleet of the real leases feature under chaos: machines that die and return, then peace.

Owns the course of one seed, and its verdict.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from outlive.errors import OutliveError
from outlive.host import Host
from outlive.model.options import LeaseOptions
from outlive.ports.driver import Driver
from outlive.testing.faults import FaultPlan
from outlive.testing.simulation import SimHost
from tests.simulation.course import Course
from tests.simulation.oracles.lease_checker import LIVENESS_BOUND_S, Violation, check
from tests.simulation.worker import LOCKS, SEMAPHORE, SLOTS, TTL_S, Worker

WORKERS = 2
CHAOS_S = 9 * TTL_S
OPTIONS = LeaseOptions(ttl=TTL_S, acquire_retry=(0.3, 1.0))

# Nothing fails, and a machine's requests arrive in the order in which they were sent.
CALM = FaultPlan(ttl_s=TTL_S, latency_s=0.04, jitter=False)


class Fleet(Course):
    """One seeded run of several machines against one store."""

    ttl_s = TTL_S
    chaos_s = CHAOS_S

    def __init__(
        self, seed: int, *, fenced: bool = True, several: bool = True, **options: Any
    ) -> None:
        super().__init__(seed, **options)
        self.tokens: dict[str, int] = {}
        self.led_until: dict[tuple[str, int], float] = {}
        self.lost: set[str] = set()
        self.sessions: dict[str, str] = {}
        self.left: list[str] = []
        self.fenced = fenced
        self.several = several

    @property
    def now(self) -> float:
        """True time."""
        return self.simulation.now

    def stream(self, name: str) -> random.Random:
        """A random stream of its own."""
        return self.simulation.stream(name)

    def judge(self) -> None:
        for event in self.history.events():
            self.seen[f"{event.op} {event.ok}"] += 1
        for entry in self.history.applied():
            self.seen["write accepted" if entry.accepted else "write fenced"] += 1
        drifted = self.outcome.drifted
        found = check(self.history, drifted=drifted, healed_at=self.healed_at)
        self.outcome.violations += found + self._stepped_down_early()

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

    async def settle(self, keep: Driver) -> None:
        if self.faults.plan.crash and self.simulation.stream("end").random() < 0.5:
            for machine in list(self.simulation.hosts.values()):
                machine.crash()

    async def look(self, keep: Driver) -> None:
        """What a ttl after the end of all work is still owned or queued for; then use each key."""
        await asyncio.sleep(TTL_S)
        for key in (*LOCKS, SEMAPHORE):
            for record in await keep.leases.get(key):
                if record.active:
                    self.left.append(f"{key!r} is still owned by {record.owner}")
                if record.waiters:
                    self.left.append(f"{record.waiters} wait for {key!r}")
        await self._probe()
        self.history.freeze()

    def crashed(self, host: SimHost) -> None:
        self.history.crash(self.sessions.get(host.name, host.name))

    async def host_main(self, machine: SimHost) -> None:
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
        draw = self.stream(f"session/{proc}")
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
