"""Schedules under chaos: hosts that die between looking and firing, replies that are lost.

Each tick becomes one job, none is left out, and none comes early, whatever hosts and network do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from msgspec.structs import replace

from outlive.drivers.memory import MemoryFactory
from outlive.drivers.memory.schedule_store import MemoryScheduleStore
from outlive.errors import OutliveError
from outlive.model.job import JobFilter
from outlive.model.schedule import CatchUp, Fired, Firing
from outlive.names import HostId
from outlive.telemetry.events import Telemetry
from outlive.testing.faults import FaultPlan, Faults
from outlive.testing.simulated_runtime import SimulatedRuntime, SimulatedStore
from outlive.testing.simulation import SimHost, Simulation
from outlive.work.definition import TICK_HEADER, Definition, JobPart
from outlive.work.scheduler import Scheduler

MACHINES = ("ant", "bee", "cat")
CHAOS_S = 40.0
# After the last fault, the longest sleep of a scheduler and one more tick.
PEACE_S = 45.0

SCHEDULES = {
    "seconds": Definition(every_us=2_000_000, catch_up=CatchUp.ALL, job=JobPart(queue="s")),
    "minutes": Definition(cron="*/5 * * * * *", catch_up=CatchUp.ALL, job=JobPart(queue="m")),
}

PERIODS_S = {"seconds": 2.0, "minutes": 5.0}

# A tick, and when its job was enqueued.
Tick = tuple[datetime, datetime]

SEEDS = range(60)
_names = itertools.count()


class Fleet:
    """Machines that run nothing but the scheduler, and come back when they die."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        plan = FaultPlan.drawn(self.simulation.stream("plan"), ttl_s=2.0)
        self.faults = Faults(self.simulation, plan)
        self.stopping = False
        self.seen: Counter[str] = Counter()
        url = f"memory://schedules-simulation-{next(_names)}"
        self.store = SimulatedStore(MemoryFactory(), url, self.faults)

    def run(self) -> dict[str, list[Tick]]:
        return self.simulation.run(lambda _: self._main())

    async def _main(self) -> dict[str, list[Tick]]:
        keep = await self.store.open(HostId("world"))
        disasters = asyncio.create_task(self.faults.disasters())
        machines = [asyncio.create_task(self._machine(name)) for name in MACHINES]
        await asyncio.sleep(CHAOS_S)
        self.faults.heal()
        disasters.cancel()
        await asyncio.sleep(PEACE_S)
        self.stopping = True
        for host in list(self.simulation.hosts.values()):
            host.crash()
        await asyncio.gather(*machines)
        assert keep.jobs is not None
        assert keep.schedules is not None
        jobs = await keep.jobs.list(JobFilter(), after=None, limit=1000)
        found = {
            name: [
                (datetime.fromisoformat(json.loads(job.headers)[TICK_HEADER]), job.enqueued_at)
                for job in jobs
                if job.queue == definition.job.queue
            ]
            for name, definition in SCHEDULES.items()
        }
        for name in SCHEDULES:
            record = await keep.schedules.get(name)
            assert record is not None
            assert record.fired == len(found[name])
        await keep.close()
        return found

    async def _machine(self, name: str) -> None:
        draw = self.simulation.stream(f"machine/{name}/restarts")
        while not self.stopping:
            host = self.simulation.start_host(name)
            task = host.spawn(self._serve(host), name="main")
            await host.join(task)
            self.seen["ended"] += 1
            await asyncio.sleep(draw.uniform(0, 3))

    async def _serve(self, host: SimHost) -> None:
        number = self.seen["started"]
        self.seen["started"] += 1
        runtime = SimulatedRuntime(host, self.faults, number=number)
        try:
            driver = await self.store.open_for(host, HostId(runtime.new_id()))
        except OutliveError:
            return
        assert driver.schedules is not None
        scheduler = Scheduler(
            runtime,
            driver.schedules,
            driver.wakeups,
            defined=SCHEDULES,
            telemetry=Telemetry(),
            log=logging.getLogger("outlive.test"),
        )
        await scheduler.run()


def check(seed: int) -> Counter[str]:
    fleet = Fleet(seed)
    found = fleet.run()
    for name, period_s in PERIODS_S.items():
        ticks = sorted(tick for tick, _ in found[name])
        early = [tick for tick, enqueued_at in found[name] if enqueued_at < tick]
        assert early == [], f"seed {seed}: ticks of {name!r} were fired early"
        apart = {later - earlier for earlier, later in pairwise(ticks)}
        assert apart == {timedelta(seconds=period_s)}, f"seed {seed}: {name!r} {apart}"
        lasted_s = (ticks[-1] - ticks[0]).total_seconds()
        # The first host to reach the store begins; the last tick may be fired as everything ends.
        assert lasted_s > CHAOS_S / 2 + PEACE_S - period_s, f"seed {seed}: {name!r} {lasted_s}"
    for fault, count in fleet.faults.counts.items():
        fleet.seen[f"fault {fault}"] += count
    return fleet.seen


def test_every_tick_becomes_one_job_whatever_happens():
    wanted = os.environ.get("OUTLIVE_SEED")
    seen: Counter[str] = Counter()
    for seed in SEEDS if wanted is None else [int(wanted)]:
        seen += check(seed)
    if wanted is None:
        for fault in ("host crash", "host pause", "reply lost", "duplicate", "store restart"):
            assert seen[f"fault {fault}"] > 0, f"no seed had a {fault}"


@pytest.mark.soak
def test_every_tick_becomes_one_job_over_many_seeds():
    for seed in range(1000, 3000):
        check(seed)


def test_a_store_that_fires_without_looking_at_the_version_is_caught(monkeypatch):
    sound = MemoryScheduleStore.fire

    async def careless(self: MemoryScheduleStore, firing: Firing) -> Fired:
        seen = await self.get(firing.name)
        return await sound(self, replace(firing, version=seen.version if seen else 0))

    monkeypatch.setattr(MemoryScheduleStore, "fire", careless)
    with pytest.raises(AssertionError):
        for seed in range(10):
            check(seed)
