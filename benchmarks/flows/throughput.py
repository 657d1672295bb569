"""Flows a second with so many in flight, beside the raw writes, and beside DBOS where it is there.

One host starts its flows itself and awaits their results.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from benchmarks.charts.peers import Absent
from benchmarks.flows.backend import Backend, Floor, OpenFloor
from benchmarks.flows.effort import Effort
from benchmarks.flows.peers import dbos
from benchmarks.flows.shapes import FlowsHost, open_host
from benchmarks.report import Row
from benchmarks.rounds import alternate, percentile

NAME = "in-flight"
IN_FLIGHT = 16
CROWD = 256
STEPS = (1, 10)

_FLOOR_BAR = 0.5
_LATENCY_BAR = 2.5
_CPU_BAR_MS = 0.2
# As the crowd must not be slower than the few.
_CROWD_BAR = 1.0
# What is promised beside DBOS, by backend.
_PEER_BARS = {"sqlite": 20.0, "postgres": 10.0}

Measure = Callable[[Backend, Effort], Awaitable[list[Row]]]


def measuring(open_floor: Callable[[], OpenFloor]) -> Measure:
    """The measurement beside a floor, which is looked up when it is needed."""

    async def measure(backend: Backend, effort: Effort) -> list[Row]:
        async with (
            open_host(backend.new_store()) as host,
            open_floor()(backend.new_store()) as floor,
        ):
            rows = [await _few(backend, effort, host, floor, steps) for steps in STEPS]
            rows += await _crowd(backend, effort, host, floor)
            rows.append(await _latency(backend, effort, host, floor))
            rows += await _cpu(backend, effort, host, floor)
        return rows + await _beside_dbos(backend, effort)

    return measure


async def _few(backend: Backend, effort: Effort, host: FlowsHost, floor: Floor, steps: int) -> Row:
    found = (
        await alternate(
            lambda: host.rate(steps, IN_FLIGHT, effort.round_s),
            lambda: floor.rate(steps, IN_FLIGHT, effort.round_s),
            rounds=effort.rounds,
        )
    ).typical
    return Row(
        name=f"{backend.name}/{_steps(steps)}-{NAME}-{IN_FLIGHT}",
        unit="flows/s",
        ours=found.ours,
        floor=found.floor,
        bar=_FLOOR_BAR,
    )


async def _crowd(backend: Backend, effort: Effort, host: FlowsHost, floor: Floor) -> list[Row]:
    async def ours() -> float:
        return await host.rate(1, CROWD, effort.round_s)

    beside_floor = await alternate(
        ours, lambda: floor.rate(1, CROWD, effort.round_s), rounds=effort.rounds
    )
    beside_few = await alternate(
        ours, lambda: host.rate(1, IN_FLIGHT, effort.round_s), rounds=effort.rounds
    )
    name = f"{backend.name}/{_steps(1)}-{NAME}-{CROWD}"
    return [
        Row(name=said, unit="flows/s", ours=found.ours, floor=found.floor, bar=bar)
        for said, found, bar in (
            (name, beside_floor.typical, _FLOOR_BAR),
            (f"{name}-to-{IN_FLIGHT}", beside_few.typical, _CROWD_BAR),
        )
    ]


async def _latency(backend: Backend, effort: Effort, host: FlowsHost, floor: Floor) -> Row:
    """The median of flows one after the other, taken by turns as rates are."""

    async def ours() -> float:
        return percentile(await host.latencies(1, effort.latencies // 10), 50)

    async def below() -> float:
        return percentile(await floor.latencies(1, effort.latencies // 10), 50)

    found = (await alternate(ours, below, rounds=10)).typical
    return Row(
        name=f"{backend.name}/{_steps(1)}-alone-p50",
        unit="ms",
        ours=found.ours,
        floor=found.floor,
        bar=_LATENCY_BAR,
        at_most=True,
    )


async def _cpu(backend: Backend, effort: Effort, host: FlowsHost, floor: Floor) -> list[Row]:
    """Processor time of all threads of the process, for each step of flows of ten.

    The same instructions take half as long again where the machine's caches are used by others: by
    turns with those of the floor, they can be told from instructions of ours that are new.
    """
    name, steps = f"{backend.name}/cpu-per-step", STEPS[-1]
    found = (
        await alternate(
            lambda: _cpu_ms(host.rate, steps, effort.round_s),
            lambda: _cpu_ms(floor.rate, steps, effort.round_s),
            rounds=effort.rounds,
        )
    ).typical
    return [
        Row(name=name, unit="ms", ours=found.ours, bar=_CPU_BAR_MS, at_most=True),
        Row(name=f"{name}-to-floor", unit="ms", ours=found.ours, floor=found.floor),
    ]


async def _cpu_ms(
    rate: Callable[[int, int, float], Awaitable[float]], steps: int, seconds: float
) -> float:
    """Milliseconds of the processor for each step, while flows of ``steps`` are run."""
    before, started = time.process_time(), time.perf_counter()
    done = await rate(steps, IN_FLIGHT, seconds) * (time.perf_counter() - started) * steps
    return (time.process_time() - before) * 1000 / done


async def _beside_dbos(backend: Backend, effort: Effort) -> list[Row]:
    """The same workload beside DBOS; nothing where it is not installed."""
    rows: list[Row] = []
    async with AsyncExitStack() as stack:
        try:
            peer = await stack.enter_async_context(dbos(backend.new_store()))
        except Absent:
            return []
        host = await stack.enter_async_context(open_host(backend.new_store()))
        for steps in STEPS:
            found = (
                await alternate(
                    lambda steps=steps: host.rate(steps, IN_FLIGHT, effort.round_s),
                    lambda steps=steps: peer(steps, IN_FLIGHT, effort.peer_flows),
                    rounds=min(effort.rounds, 3),
                )
            ).typical
            rows.append(
                Row(
                    name=f"{backend.name}/{_steps(steps)}-to-dbos",
                    unit="flows/s",
                    ours=found.ours,
                    floor=found.floor,
                    bar=_PEER_BARS[backend.name],
                )
            )
    return rows


def _steps(count: int) -> str:
    return "one-step" if count == 1 else f"{count}-steps"
