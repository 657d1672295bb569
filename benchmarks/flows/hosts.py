"""Two hosts on one database beside one host on another, each with its own flows in flight."""

from __future__ import annotations

import asyncio

from benchmarks.children import Child, boot_time, children
from benchmarks.flows.backend import Backend
from benchmarks.flows.effort import Effort
from benchmarks.flows.throughput import IN_FLIGHT
from benchmarks.report import Row
from benchmarks.rounds import alternate

NAME = "two-hosts"
_PROGRAM = "benchmarks.flows.programs.runner"
_BAR = 1.6

# So long before they begin together.
_LEAD_S = 0.05


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Flows of one step a second, of both hosts together."""
    alone, both = backend.new_store(), backend.new_store()
    arguments = [[alone, "alone"], [both, "one"], [both, "two"]]
    async with children(_PROGRAM, arguments) as hosts:
        for host in hosts:
            await host.hear()
        found = (
            await alternate(
                lambda: _rate(hosts[1:], effort.process_s),
                lambda: _rate(hosts[:1], effort.process_s),
                rounds=effort.process_rounds,
            )
        ).typical
    return [
        Row(
            name=f"{backend.name}/{NAME}",
            unit="flows/s",
            ours=found.ours,
            floor=found.floor,
            bar=_BAR,
        )
    ]


async def _rate(hosts: list[Child], seconds: float) -> float:
    told = {"start": boot_time() + _LEAD_S, "seconds": seconds, "in_flight": IN_FLIGHT}
    for host in hosts:
        host.tell(told)
    return sum(await asyncio.gather(*(host.hear() for host in hosts)))
