"""The area ``charts``: how fast machines handle events, and how little memory each takes.

Owns the list of measurements and their bars. XState on Node is the floor of the speeds; Python
peers have rows of their own. What cannot be had here is said in the report's last lines.
"""

from __future__ import annotations

import asyncio
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from benchmarks.charts import crowd
from benchmarks.charts import peers as others
from benchmarks.charts.shapes import BURST, SHAPES
from benchmarks.children import children
from benchmarks.report import Report, Row, shown
from benchmarks.rounds import alternate
from outlive.charts import Actor, Chart

# What is promised: of XState's rate, of the best Python peer's rate, and bytes for each machine.
XSTATE_BAR = 2.0
PYTHON_BAR = 5.0
MEMORY_BAR = 600.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    rounds: int
    round_s: float
    machines: int


FULL = Effort(rounds=15, round_s=0.4, machines=100_000)
QUICK = Effort(rounds=5, round_s=0.15, machines=100_000)


@dataclass(slots=True)
class Peers:
    """Those that can be had here."""

    xstate: others.Rate | None = None
    python: others.Rate | None = None


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


async def _speed(shape: str, peers: Peers, effort: Effort) -> list[Row]:
    actor = actor_of(shape)
    rows: list[Row] = []

    async def ours() -> float:
        return await _rate(actor, effort.round_s)

    for name, peer, bar in (
        (f"{shape}/xstate", peers.xstate, XSTATE_BAR),
        (f"{shape}/python", peers.python, PYTHON_BAR),
    ):
        if peer is None:
            continue

        async def floor(peer: others.Rate = peer) -> float:
            return await peer(shape, effort.round_s)

        found = (await alternate(ours, floor, rounds=effort.rounds)).typical
        rows.append(Row(name=name, unit="events/s", ours=found.ours, floor=found.floor, bar=bar))
    return rows or [Row(name=shape, unit="events/s", ours=await ours())]


async def _memory(_peers: Peers, effort: Effort) -> list[Row]:
    async with children("benchmarks.charts.programs.machines", [[]]) as (child,):
        child.tell(effort.machines)
        size = await child.hear()
    return [Row(name="memory", unit="bytes/machine", ours=size, bar=MEMORY_BAR, at_most=True)]


Measure = Callable[[Peers, Effort], Awaitable[list[Row]]]


def _of_crowd(measure: crowd.Measure) -> Measure:
    async def measured(peers: Peers, effort: Effort) -> list[Row]:
        return await measure(peers.xstate, crowd.FULL if effort is FULL else crowd.QUICK)

    return measured


_MEASUREMENTS: dict[str, Measure] = {
    "flat": lambda peers, effort: _speed("flat", peers, effort),
    "parallel": lambda peers, effort: _speed("parallel", peers, effort),
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
        others.install()
    asyncio.run(_run(report, chosen(only), QUICK if quick else FULL))


async def _run(report: Report, wanted: list[str], effort: Effort) -> None:
    async with AsyncExitStack() as stack:
        found = Peers()
        try:
            found.xstate = await stack.enter_async_context(others.xstate())
        except others.Absent as error:
            report.absent.append(f"XState: {error}")
        try:
            found.python = await stack.enter_async_context(others.python_peers())
        except others.Absent as error:
            report.absent.append(f"Python peers: {error}")
        for name in wanted:
            print(f"measuring {name} …", file=sys.stderr, flush=True)
            try:
                rows = await _MEASUREMENTS[name](found, effort)
            except Exception as error:  # noqa: BLE001 - one that breaks must not cost the others
                traceback.print_exc()
                report.failures.append(f"{name}: {error!r}")
                continue
            report.rows += rows
            for row in rows:
                print(f"  {row.name}: {shown(row.ours)} {row.unit}", file=sys.stderr, flush=True)
