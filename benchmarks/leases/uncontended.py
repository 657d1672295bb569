"""One coroutine acquires and releases one key that nobody else wants.

The floor writes the same rows, history included, in one transaction for each operation.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time

import outlive
from benchmarks.leases.backend import Backend, Effort
from benchmarks.leases.redis_peer import redis_peers
from benchmarks.report import Row
from benchmarks.rounds import alternate

NAME = "uncontended"
_KEY = "uncontended"

# Enough to fill and recycle a write-ahead log several times. Until then each flush also makes a
# file longer, which costs more, and whoever gets through that sooner would look faster.
_WARM_UP_TASKS = 100
_WARM_UP_PAIRS = 20


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Operations per second of one coroutine."""
    url = backend.new_store()
    async with (
        outlive.connect(url, name="bench") as host,
        backend.floor(url) as floor,
        redis_peers() as redis,
    ):
        await warm_up(host)

        async def ours() -> float:
            return await pairs(host, _KEY, effort.round_s)

        async def below() -> float:
            return await floor.pairs(_KEY, effort.round_s)

        others = {NAME: {**floor.peers.get(NAME, {}), **redis}}
        peers = dataclasses.replace(floor, peers=others).peers_of(NAME, effort.round_s)
        outcome = await alternate(ours, below, rounds=effort.rounds, peers=peers)
    return [
        Row(
            name=f"{backend.name}/{NAME}",
            unit="ops/s",
            ours=outcome.typical.ours,
            floor=outcome.typical.floor,
            peers=outcome.peers,
            bar=backend.bars.get(NAME),
        )
    ]


async def warm_up(host: outlive.Host) -> None:
    """Bring the store to the state in which it will be from then on."""

    async def one(key: str) -> None:
        for _ in range(_WARM_UP_PAIRS):
            lease = await host.leases.acquire(key)
            await lease.release()

    await asyncio.gather(*(one(f"warm-{number}") for number in range(_WARM_UP_TASKS)))


async def pairs(host: outlive.Host, key: str, seconds: float) -> float:
    """Acquire and release ``key`` by turns; operations per second."""
    started = time.perf_counter()
    done = await count_pairs(host, key, started + seconds)
    return done / (time.perf_counter() - started)


async def count_pairs(host: outlive.Host, key: str, until: float) -> int:
    """Acquire and release ``key`` by turns until then; how many operations that were.

    Raises:
        RuntimeError: An acquire was refused, so that the number would mean something else.
    """
    done = 0
    while time.perf_counter() < until:
        lease = await host.leases.try_acquire(key)
        if lease is None:
            raise RuntimeError(f"nobody else wants {key!r}, and yet it was refused")
        await lease.release()
        done += 2
    return done
