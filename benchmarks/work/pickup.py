"""A job for a handler in another process that has nothing to do.

Measured on the clock that all processes of a machine share, from the return of ``enqueue`` to the
first line of the handler. It is below zero where the handler is faster than the enqueuer's reply.
"""

from __future__ import annotations

import asyncio
import random

import outlive
from benchmarks.children import boot_time, children
from benchmarks.report import Row
from benchmarks.rounds import percentile
from benchmarks.work.backend import Backend
from benchmarks.work.effort import Effort

NAME = "pickup"
QUEUE = "pickup"
_PROGRAM = "benchmarks.work.programs.picker"
_BAR_MS = 5.0

# The other process has written the end of the last job and gone to sleep within some
# milliseconds; the next job must find it so, and in no particular phase of anything.
_SETTLE_S = (0.03, 0.09)

# The first find nothing prepared: statements, sockets, code.
_WARM_UP = 5


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """The median and the slowest hundredth."""
    url = backend.new_store()
    jitter = random.Random(1)
    delays_ms: list[float] = []
    async with (
        outlive.connect(url, name="bench-enqueuer") as host,
        children(_PROGRAM, [[url]]) as (picker,),
    ):
        await picker.hear()
        for number in range(_WARM_UP + effort.pickups):
            await asyncio.sleep(jitter.uniform(*_SETTLE_S))
            await host.work.enqueue(QUEUE, number)
            returned = boot_time()
            answer = await picker.hear()
            # A host that stood still for longer than its ttl is given a job again.
            while answer["number"] < number:
                answer = await picker.hear()
            if number >= _WARM_UP:
                delays_ms.append((answer["picked"] - returned) * 1000)
    name = f"{backend.name}/{NAME}"
    return [
        Row(
            name=f"{name}-p50", unit="ms", ours=percentile(delays_ms, 50), bar=_BAR_MS, at_most=True
        ),
        Row(name=f"{name}-p99", unit="ms", ours=percentile(delays_ms, 99), at_most=True),
    ]
