"""A hundred coroutines acquire and release a key each.

The floor is again one operation in one transaction at a time: the ratio is what sharing commits
brings to a program that does many things at once.
"""

from __future__ import annotations

import asyncio
import time

import outlive
from benchmarks.leases.backend import Backend, Effort
from benchmarks.leases.uncontended import count_pairs, warm_up
from benchmarks.report import Row
from benchmarks.rounds import alternate

NAME = "concurrent"
COROUTINES = 100


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Operations per second of all coroutines together."""
    url = backend.new_store()
    async with outlive.connect(url, name="bench") as host, backend.floor(url) as floor:
        await warm_up(host)

        async def ours() -> float:
            return await crowd(host, effort.crowd_s)

        async def below() -> float:
            return await floor.pairs("concurrent", effort.crowd_s)

        peers = floor.peers_of(NAME, effort.crowd_s)
        outcome = await alternate(ours, below, rounds=effort.crowd_rounds, peers=peers)
    return [
        Row(
            name=f"{backend.name}/{NAME}-{COROUTINES}",
            unit="ops/s",
            ours=outcome.typical.ours,
            floor=outcome.typical.floor,
            peers=outcome.peers,
            bar=backend.bars.get(NAME),
        )
    ]


async def crowd(host: outlive.Host, seconds: float) -> float:
    """Let each coroutine acquire and release its own key; operations per second in all."""
    started = time.perf_counter()
    keys = [f"concurrent-{number}" for number in range(COROUTINES)]
    done = await asyncio.gather(*(count_pairs(host, key, started + seconds) for key in keys))
    return sum(done) / (time.perf_counter() - started)
