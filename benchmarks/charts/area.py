"""The area ``charts``: how fast machines handle events, and how little memory each takes.

Owns the list of measurements and their bars. XState on Node is the floor of the speeds; Python
peers have rows of their own. What cannot be had here is said in the report's last lines.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from benchmarks.charts import crowd
from benchmarks.charts import peers as others
from benchmarks.charts.shapes import BURST, SHAPES
from benchmarks.children import children
from benchmarks.leases.backend import Absent
from benchmarks.report import Report, Row
from benchmarks.rounds import alternate
from benchmarks.running import install, run_measurement
from outlive.charts import Actor, Chart

# What is promised: of XState's rate, of the best Python peer's rate, and bytes for each machine.
XSTATE_BAR = 2.0
PYTHON_BAR = 5.0
MEMORY_BAR = 600.0

_PEERS = {"xstate": (others.xstate, XSTATE_BAR), "python": (others.python_peers, PYTHON_BAR)}


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int
    round_s: float
    machines: int


FULL = Effort(rounds=15, round_s=0.4, machines=100_000)
QUICK = Effort(rounds=5, round_s=0.15, machines=100_000)


def actor_of(shape: str) -> Actor:
    """A started machine of one of the shapes."""
    chart = Chart.load(SHAPES[shape], guards={"positive": lambda context: context["n"] > 0})
    return Actor(chart).start()


async def _rate(actor: Actor, seconds: float) -> float:
    send = actor.send
    begun = now = time.perf_counter()
    done = 0
    while now < begun + seconds:
        for _ in range(BURST):
            send("TOGGLE")
        done += BURST
        now = time.perf_counter()
    return done / (now - begun)


async def _speed(shape: str, beside: str, effort: Effort) -> list[Row]:
    """One shape beside one peer; where that is not there, our rate alone."""
    actor, (open_peer, bar) = actor_of(shape), _PEERS[beside]
    async with AsyncExitStack() as stack:

        async def ours() -> float:
            return await _rate(actor, effort.round_s)

        name = f"{shape}/{beside}"
        try:
            peer = await stack.enter_async_context(open_peer())
        except Absent:
            return [Row(name=name, unit="events/s", ours=await ours())]

        async def floor() -> float:
            return await peer(shape, effort.round_s)

        found = (await alternate(ours, floor, rounds=effort.rounds)).typical
    return [Row(name=name, unit="events/s", ours=found.ours, floor=found.floor, bar=bar)]


async def _memory(effort: Effort) -> list[Row]:
    async with children("benchmarks.charts.programs.machines", [[]]) as (child,):
        child.tell(effort.machines)
        size = await child.hear()
    return [Row(name="memory", unit="bytes/machine", ours=size, bar=MEMORY_BAR, at_most=True)]


Measure = Callable[[Effort], Awaitable[list[Row]]]


def _of_crowd(measure: crowd.Measure) -> Measure:
    async def measured(effort: Effort) -> list[Row]:
        return await measure(crowd.FULL if effort is FULL else crowd.QUICK)

    return measured


_MEASUREMENTS: dict[str, Measure] = {
    **{f"{shape}/{peer}": partial(_speed, shape, peer) for shape in SHAPES for peer in _PEERS},
    "memory": _memory,
    **{name: _of_crowd(measure) for name, measure in crowd.MEASUREMENTS.items()},
}


def names() -> list[str]:
    """Every measurement."""
    return list(_MEASUREMENTS)


def chosen(only: str | None) -> list[str]:
    """The measurements that ``only`` is part of; all of them for ``None``."""
    return [name for name in names() if only is None or only in name]


def run(
    report: Report, *, only: str | None = None, quick: bool = False, peers: bool = False
) -> None:
    """Measure what is chosen, into ``report``; with ``peers`` those are installed first."""
    if peers:
        install(report, "XState", others.install_xstate)
        install(report, "the Python peers", others.install_python)
    report.absent += others.missing()
    for name in chosen(only):
        run_measurement(report, name, partial(_MEASUREMENTS[name], QUICK if quick else FULL))
