"""A crowd under the orchestrator: many groups, many machines, and one of them slow.

Owns three measurements: events to *processed* beside XState's ``actor.send`` on as many actors, the
memory of each started machine, and what one slow machine costs the others.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from statistics import median

from benchmarks.charts.peers import xstate
from benchmarks.charts.shapes import FLAT
from benchmarks.children import children
from benchmarks.leases.backend import Absent
from benchmarks.report import Row
from benchmarks.rounds import alternate, percentile
from outlive.charts import Chart
from outlive.charts.orchestrator import Machine, Orchestrator

GROUPS = 1_000
MACHINES = 10_000

# What is promised: of XState's rate, milliseconds at the 99th percentile, bytes for each machine.
RATE_BAR = 3.0
DELAY_BAR_MS = 10.0
MEMORY_BAR = 600.0

_SLOW_S = 0.05
_SLOW_EVENTS = 1_000
_ASKED_AT_ONCE = 200
_BATCHES = 20


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure."""

    events: int
    rounds: int
    machines: int


FULL = Effort(events=1_000_000, rounds=5, machines=100_000)
QUICK = Effort(events=300_000, rounds=3, machines=100_000)


async def started(orchestrator: Orchestrator, chart: Chart) -> list[Machine]:
    """The crowd: ten machines in each of a thousand groups."""
    groups = [orchestrator.group(f"group-{number}") for number in range(GROUPS)]
    return [await groups[number % GROUPS].start(chart) for number in range(MACHINES)]


async def stress(effort: Effort) -> list[Row]:
    """Events per second, counted when they are handled."""
    orchestrator = Orchestrator()
    machines = await started(orchestrator, Chart.load(FLAT))

    async def ours() -> float:
        expected = orchestrator.metrics().processed + effort.events
        begun = time.perf_counter()
        for _ in range(effort.events // MACHINES):
            for machine in machines:
                machine.send("TOGGLE")
            await asyncio.sleep(0)
        await orchestrator.idle()
        elapsed = time.perf_counter() - begun
        if orchestrator.metrics().processed != expected:
            raise RuntimeError("not every event was handled")
        return effort.events / elapsed

    name = "crowd/xstate"
    async with AsyncExitStack() as stack:
        stack.push_async_callback(orchestrator.force_cleanup)
        try:
            peer = await stack.enter_async_context(xstate())
        except Absent:
            return [Row(name=name, unit="events/s", ours=await ours())]

        async def floor() -> float:
            return await peer("crowd", 1.0)

        found = (await alternate(ours, floor, rounds=effort.rounds)).typical
    return [Row(name=name, unit="events/s", ours=found.ours, floor=found.floor, bar=RATE_BAR)]


async def slow_machine(effort: Effort) -> list[Row]:
    """How much longer the others' 99th percentile is while one machine is slow."""
    orchestrator = Orchestrator()
    dice = random.Random(1)

    async def wait() -> None:
        await asyncio.sleep(_SLOW_S)

    slow_chart = Chart.load(
        {"id": "slow", "on": {"WORK": {"actions": "wait"}}}, actions={"wait": wait}
    )
    machines = await started(orchestrator, Chart.load(FLAT))
    delays: list[float] = []
    for _ in range(effort.rounds):
        before = await _p99_ms(machines, dice)
        slow = await orchestrator.start(slow_chart)
        for _ in range(_SLOW_EVENTS):
            slow.send("WORK")
        delays.append(await _p99_ms(machines, dice) - before)
        await slow.stop(drain=False)
    await orchestrator.force_cleanup()
    delay = median(delays)
    return [Row(name="crowd/slow-machine", unit="ms", ours=delay, bar=DELAY_BAR_MS, at_most=True)]


async def _p99_ms(machines: list[Machine], dice: random.Random) -> float:
    async def ask(machine: Machine) -> float:
        begun = time.perf_counter()
        await machine.request("TOGGLE")
        return (time.perf_counter() - begun) * 1000

    latencies: list[float] = []
    for _ in range(_BATCHES):
        asked = dice.sample(machines, _ASKED_AT_ONCE)
        latencies += await asyncio.gather(*(ask(machine) for machine in asked))
    return percentile(latencies, 99)


async def memory(effort: Effort) -> list[Row]:
    """Bytes of resident memory for each started machine."""
    async with children("benchmarks.charts.programs.crowd", [[]]) as (child,):
        child.tell(effort.machines)
        size = await child.hear()
    return [Row(name="crowd/memory", unit="bytes/machine", ours=size, bar=MEMORY_BAR, at_most=True)]


Measure = Callable[[Effort], Awaitable[list[Row]]]

MEASUREMENTS: dict[str, Measure] = {
    "crowd/stress": stress,
    "crowd/slow-machine": slow_machine,
    "crowd/memory": memory,
}
