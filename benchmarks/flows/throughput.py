"""Flows a second with so many in flight, beside the raw writes, and beside DBOS where it is there.

One host starts its flows itself and awaits their results.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from benchmarks.flows.backend import Backend, Floor, OpenFloor
from benchmarks.flows.effort import Effort
from benchmarks.flows.peers import dbos
from benchmarks.flows.shapes import FlowsHost, open_host
from benchmarks.report import Row
from benchmarks.rounds import Outcome, alternate, percentile

NAME = "in-flight"
ALONE_NAME = "alone-p50"
CPU_NAME = "cpu-per-step"
DBOS_NAME = "to-dbos"
IN_FLIGHT = 16
CROWD = 256
STEPS = 10

_FLOOR_BAR = 0.5
_LATENCY_BAR = 2.5
_CPU_BAR_MS = 0.2
# As the crowd must not be slower than the few.
_CROWD_BAR = 1.0
# What is promised beside DBOS, by backend.
_PEER_BARS = {"sqlite": 20.0, "postgres": 10.0}

Measure = Callable[[Backend, Effort], Awaitable[list[Row]]]


@asynccontextmanager
async def _both(
    backend: Backend, open_floor: Callable[[], OpenFloor]
) -> AsyncGenerator[tuple[FlowsHost, Floor]]:
    """A host and the floor, each on a store of its own."""
    async with (
        open_host(backend.new_store()) as host,
        open_floor()(backend.new_store()) as floor,
    ):
        yield host, floor


def measurements(open_floor: Callable[[], OpenFloor]) -> dict[str, Measure]:
    """The measurements beside a floor, which is looked up when it is needed, and beside DBOS.

    Each has a host and a floor to itself: one that breaks costs no other.
    """
    one, ten = _steps(1), _steps(STEPS)
    return {
        f"{one}-{NAME}-{IN_FLIGHT}": partial(_in_flight, open_floor, 1, IN_FLIGHT),
        f"{ten}-{NAME}-{IN_FLIGHT}": partial(_in_flight, open_floor, STEPS, IN_FLIGHT),
        f"{one}-{NAME}-{CROWD}": partial(_in_flight, open_floor, 1, CROWD),
        f"{one}-{NAME}-{CROWD}-to-{IN_FLIGHT}": _beside_few,
        f"{one}-{ALONE_NAME}": partial(_latency, open_floor),
        CPU_NAME: partial(_cpu, open_floor),
        f"{one}-{DBOS_NAME}": partial(_beside_dbos, 1),
        f"{ten}-{DBOS_NAME}": partial(_beside_dbos, STEPS),
    }


async def _in_flight(
    open_floor: Callable[[], OpenFloor],
    steps: int,
    in_flight: int,
    backend: Backend,
    effort: Effort,
) -> list[Row]:
    async with _both(backend, open_floor) as (host, floor):
        found = await alternate(
            lambda: host.rate(steps, in_flight, effort.round_s),
            lambda: floor.rate(steps, in_flight, effort.round_s),
            rounds=effort.rounds,
        )
    return [_row(f"{backend.name}/{_steps(steps)}-{NAME}-{in_flight}", found, _FLOOR_BAR)]


async def _beside_few(backend: Backend, effort: Effort) -> list[Row]:
    async with open_host(backend.new_store()) as host:
        found = await alternate(
            lambda: host.rate(1, CROWD, effort.round_s),
            lambda: host.rate(1, IN_FLIGHT, effort.round_s),
            rounds=effort.rounds,
        )
    return [_row(f"{backend.name}/{_steps(1)}-{NAME}-{CROWD}-to-{IN_FLIGHT}", found, _CROWD_BAR)]


async def _beside_dbos(steps: int, backend: Backend, effort: Effort) -> list[Row]:
    async with (
        dbos(backend.new_store()) as peer,
        open_host(backend.new_store()) as host,
    ):
        found = await alternate(
            lambda: host.rate(steps, IN_FLIGHT, effort.round_s),
            lambda: peer(steps, IN_FLIGHT, effort.peer_flows),
            rounds=min(effort.rounds, 3),
        )
    return [_row(f"{backend.name}/{_steps(steps)}-{DBOS_NAME}", found, _PEER_BARS[backend.name])]


def _row(name: str, found: Outcome, bar: float) -> Row:
    ours, floor = found.typical.ours, found.typical.floor
    return Row(name=name, unit="flows/s", ours=ours, floor=floor, bar=bar)


async def _latency(
    open_floor: Callable[[], OpenFloor], backend: Backend, effort: Effort
) -> list[Row]:
    """The median of flows one after the other, taken by turns as rates are."""
    async with _both(backend, open_floor) as (host, floor):

        async def ours() -> float:
            return percentile(await host.latencies(1, effort.latencies // 10), 50)

        async def below() -> float:
            return percentile(await floor.latencies(1, effort.latencies // 10), 50)

        found = (await alternate(ours, below, rounds=10)).typical
    return [
        Row(
            name=f"{backend.name}/{_steps(1)}-{ALONE_NAME}",
            unit="ms",
            ours=found.ours,
            floor=found.floor,
            bar=_LATENCY_BAR,
            at_most=True,
        )
    ]


async def _cpu(open_floor: Callable[[], OpenFloor], backend: Backend, effort: Effort) -> list[Row]:
    """Processor time of all threads of the process, for each step of flows of ten.

    The same instructions take half as long again where the machine's caches are used by others: by
    turns with those of the floor, they can be told from instructions of ours that are new.
    """
    async with _both(backend, open_floor) as (host, floor):
        found = (
            await alternate(
                lambda: _cpu_ms(host.rate, STEPS, effort.round_s),
                lambda: _cpu_ms(floor.rate, STEPS, effort.round_s),
                rounds=effort.rounds,
            )
        ).typical
    name, ours = f"{backend.name}/{CPU_NAME}", found.ours
    return [
        Row(name=name, unit="ms", ours=ours, bar=_CPU_BAR_MS, at_most=True),
        Row(name=f"{name}-to-floor", unit="ms", ours=ours, floor=found.floor, at_most=True),
    ]


async def _cpu_ms(
    rate: Callable[[int, int, float], Awaitable[float]], steps: int, seconds: float
) -> float:
    """Milliseconds of the processor for each step, while flows of ``steps`` are run."""
    before, started = time.process_time(), time.perf_counter()
    done = await rate(steps, IN_FLIGHT, seconds) * (time.perf_counter() - started) * steps
    return (time.process_time() - before) * 1000 / done


def _steps(count: int) -> str:
    return "one-step" if count == 1 else f"{count}-steps"
