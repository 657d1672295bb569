"""A key passes from its owner to a waiter in another process.

Measured on the clock that all processes of a machine share, from the return of release to the
return of acquire. It is below zero where the waiter is faster than the owner's own reply.
"""

from __future__ import annotations

import asyncio
import random

import outlive
from benchmarks.children import ANSWER_LIMIT_S, Child, boot_time, children
from benchmarks.leases.backend import Backend, Effort
from benchmarks.report import Row
from benchmarks.rounds import percentile

NAME = "handover"
_PROGRAM = "benchmarks.leases.programs.waiter"
_KEY = "handover"

# How often to look whether the other process stands in the queue by now.
_LOOK_S = 0.001

# A waiter has gone to sleep within a few milliseconds of taking its place; the release must not
# find it awake, nor always in the same phase of anything.
_SETTLE_S = (0.003, 0.012)

# The first hand-overs find nothing prepared: statements, sockets, code.
_WARM_UP = 5


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """The median and the slowest hundredth of hand-overs."""
    url = backend.new_store()
    jitter = random.Random(1)
    delays_ms: list[float] = []
    async with (
        outlive.connect(url, name="bench-owner") as host,
        children(_PROGRAM, [[url, _KEY]]) as (waiter,),
    ):
        await waiter.hear()
        for number in range(_WARM_UP + effort.handovers):
            delay_s = await _hand_over(host, waiter, jitter)
            if number >= _WARM_UP:
                delays_ms.append(delay_s * 1000)
    name = f"{backend.name}/{NAME}"
    bar = backend.bars.get(NAME)
    return [
        Row(name=f"{name}-p50", unit="ms", ours=percentile(delays_ms, 50), bar=bar, at_most=True),
        Row(name=f"{name}-p99", unit="ms", ours=percentile(delays_ms, 99), at_most=True),
    ]


async def _hand_over(host: outlive.Host, waiter: Child, jitter: random.Random) -> float:
    lease = await host.leases.acquire(_KEY, timeout=ANSWER_LIMIT_S)
    waiter.tell("wait")
    # A waiter that has ended would never come.
    async with asyncio.timeout(ANSWER_LIMIT_S):
        while True:
            await asyncio.sleep(_LOOK_S)
            info = await host.leases.get(_KEY)
            if info is not None and info.waiters:
                break
    await asyncio.sleep(jitter.uniform(*_SETTLE_S))
    await lease.release()
    released = boot_time()
    answer = await waiter.hear()
    return answer["acquired"] - released
