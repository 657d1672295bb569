"""Take-over in virtual time: the dead are found soon, and who stops does so before others begin."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import outlive
from outlive.drivers.memory import MemoryFactory
from outlive.model.options import CLOCK_DRIFT, LeaseOptions
from outlive.names import HostId
from outlive.testing.faults import FaultPlan, Faults
from outlive.testing.simulated_runtime import _SESSION_TTL_S as TTL_S
from outlive.testing.simulated_runtime import SimulatedStore
from outlive.testing.simulation import Simulation

# Nothing fails; an answer takes up to 40 ms.
CALM = FaultPlan(ttl_s=TTL_S, latency_s=0.04, jitter=False)
SEEDS = range(25)

_stores = itertools.count()


class World:
    """Two machines that run one app, and what their handlers did, in true time."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed, wall_jumps=False)
        faults = Faults(self.simulation, CALM)
        url = f"memory://takeover-{next(_stores)}"
        self.store = SimulatedStore(MemoryFactory(), url, faults)
        self.events: list[tuple[float, str, str]] = []
        self.calls = 0

    def note(self, machine: str, what: str) -> None:
        self.events.append((self.simulation.now, machine, what))

    def when(self, what: str) -> list[float]:
        return [at for at, _, said in self.events if said == what]

    def app(self, machine: str) -> outlive.App:
        app = outlive.App(machine)

        @app.handler("q")
        async def handle(payload: float) -> str:
            self.note(machine, "began")
            try:
                await asyncio.sleep(payload)
            except asyncio.CancelledError:
                self.note(machine, "cancelled")
                raise
            self.note(machine, "ended")
            return machine

        return app

    async def work_on(self, machine) -> None:
        host = await self.store.connect(machine, LeaseOptions(), app=self.app(machine.machine))
        try:
            await host.run()
        finally:
            await host.close()

    def start(self, machine: str):
        host = self.simulation.start_host(machine)
        host.spawn(self.work_on(host), name="work")
        return host


def run(seed: int, act):
    world = World(seed)

    async def main(simulation):
        # Outside of the faults: the test's own hand on the store.
        driver = await world.store.open(HostId("tester"))
        result = await act(world, driver)
        await driver.close()
        return result

    return world.simulation.run(main)


async def add(driver, *payloads: float) -> None:
    new = [
        outlive.model.job.NewJob(
            id=outlive.names.JobId(f"job-{number}"), queue="q", payload=str(payload)
        )
        for number, payload in enumerate(payloads)
    ]
    await driver.jobs.enqueue(new)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_work_of_a_dead_host_is_restarted_within_its_ttl_and_a_second(seed):
    async def act(world, driver):
        first = world.start("a")
        await asyncio.sleep(0.5)
        await add(driver, 1000.0)
        await asyncio.sleep(1.0)
        world.start("b")
        # Long enough for b to have been healthy for a whole ttl, and for any phase of a's beats.
        await asyncio.sleep(TTL_S * (2 + seed / len(SEEDS)))
        first.crash()
        died_at = world.simulation.now
        await asyncio.sleep(2 * TTL_S)
        return died_at, world.events

    died_at, events = run(seed, act)
    assert [(machine, what) for _, machine, what in events] == [("a", "began"), ("b", "began")]
    assert events[1][0] - died_at <= TTL_S + 1.0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stopped_host_stops_its_work_before_others_begin_it(seed):
    async def act(world, driver):
        first = world.start("a")
        await asyncio.sleep(0.5)
        await add(driver, 1000.0)
        await asyncio.sleep(1.0)
        world.start("b")
        await asyncio.sleep(TTL_S * (2 + seed / len(SEEDS)))
        # The network of the host is gone for good, as after a cable was pulled; it runs on.
        store = world.store.faults
        plain = store.call

        async def call(host, operation, **how):
            if host is first:
                await asyncio.sleep(1000)
            return await plain(host, operation, **how)

        store.call = call
        await asyncio.sleep(3 * TTL_S)
        return world.events

    events = run(seed, act)
    steps = [(machine, what) for _, machine, what in events]
    assert steps[:3] == [("a", "began"), ("a", "cancelled"), ("b", "began")]


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_a_host_that_was_paused_finds_its_work_lost_when_it_goes_on(seed):
    async def act(world, driver):
        first = world.start("a")
        await asyncio.sleep(0.5)
        await add(driver, 8 * TTL_S)
        world.start("b")
        await asyncio.sleep(2.5 * TTL_S)
        first.pause(3 * TTL_S)
        await asyncio.sleep(14 * TTL_S)
        record = await driver.jobs.get(outlive.names.JobId("job-0"))
        sessions = await driver.hosts.list(limit=10)
        return world.events, record, [each.name for each in sessions if each.alive]

    events, record, alive = run(seed, act)
    steps = [(machine, what) for _, machine, what in events]
    assert steps == [("a", "began"), ("b", "began"), ("a", "cancelled"), ("b", "ended")]
    assert (record.state, record.losses, record.claimed_by) == ("done", 1, "b")
    # The one that lost its session opened a new one and goes on.
    assert sorted(alive) == ["a", "b"]


def test_a_host_that_closes_hands_over_at_once():
    async def act(world, driver):
        host = world.simulation.start_host("a")
        working = host.spawn(world.work_on(host), name="work")
        await asyncio.sleep(0.5)
        await add(driver, 1000.0)
        await asyncio.sleep(0.5)
        world.start("b")
        await asyncio.sleep(0.5)
        working.cancel()
        left_at = world.simulation.now
        await asyncio.sleep(TTL_S)
        record = await driver.jobs.get(outlive.names.JobId("job-0"))
        return left_at, world.events, record

    left_at, events, record = run(1, act)
    assert [what for _, _, what in events] == ["began", "cancelled", "began"]
    assert events[2][0] - left_at < 1.0
    assert record.losses == 0


def test_a_host_that_is_alone_does_not_wait_for_its_own_health():
    async def act(world, driver):
        first = world.start("a")
        await asyncio.sleep(0.5)
        await add(driver, 1000.0)
        await asyncio.sleep(1.0)
        first.crash()
        died_at = world.simulation.now
        await asyncio.sleep(0.9 * TTL_S)
        world.start("b")
        await asyncio.sleep(2 * TTL_S)
        return died_at, world.events

    died_at, events = run(3, act)
    assert events[1][0] - died_at <= TTL_S * (1 + CLOCK_DRIFT) + 1.0


async def three_hosts_and_an_outage(world, driver, outage_s):
    """Each of three hosts runs a job; then nobody reaches the store for a while."""
    for machine in ("a", "b", "c"):
        world.start(machine)
    await asyncio.sleep(3 * TTL_S)
    await add(driver, 100 * TTL_S, 100 * TTL_S, 100 * TTL_S)
    await asyncio.sleep(0.5)
    store = world.store.faults
    plain, back_at = store.call, world.simulation.now + outage_s

    async def call(host, operation, **how):
        await asyncio.sleep(max(0.0, back_at - world.simulation.now))
        return await plain(host, operation, **how)

    store.call = call
    await asyncio.sleep(outage_s + 4 * TTL_S)
    return back_at, world.events


def test_after_a_short_outage_nobody_takes_the_work_of_those_who_are_late():
    _, events = run(5, lambda *args: three_hosts_and_an_outage(*args, 0.4 * TTL_S))
    assert [what for _, _, what in events] == ["began"] * 3


def test_after_a_long_outage_everybody_has_stopped_and_all_work_begins_again():
    back_at, events = run(6, lambda *args: three_hosts_and_an_outage(*args, 2 * TTL_S))
    assert [what for _, _, what in events] == ["began"] * 3 + ["cancelled"] * 3 + ["began"] * 3
    assert events[5][0] < back_at < events[6][0]
    assert events[8][0] - back_at <= TTL_S + 1.0


def test_an_idle_fleet_asks_the_store_less_than_once_a_second_and_host():
    async def act(world, driver):
        del driver
        for machine in ("a", "b", "c", "d"):
            world.start(machine)
        await asyncio.sleep(2 * TTL_S)
        store = world.store.faults
        plain = store.call

        async def call(host, operation, **how):
            world.calls += 1
            return await plain(host, operation, **how)

        store.call = call
        await asyncio.sleep(100.0)
        return world.calls

    # Sessions of a simulation are 4 s instead of 10 s, and beat so much more often.
    assert run(7, act) / (4 * 100.0) < 10.0 / TTL_S
