"""Claims of 1, 10 and 100 jobs, one after the other, beside the one statement that claims them."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.report import Row
from benchmarks.rounds import alternate
from benchmarks.work.backend import Backend, OpenFloor
from benchmarks.work.effort import Effort
from benchmarks.work.jobs import Jobs, open_jobs

NAME = "claims"
SIZES = (1, 10, 100)
_BAR = 0.8
_QUEUE = "claims"

REFILL = 20
"""Claims between two times that the queue is filled, alike for ours and the floor."""


async def measure(
    size: int, open_floor: Callable[[], OpenFloor], backend: Backend, effort: Effort
) -> list[Row]:
    """Jobs claimed a second, so many at a time."""
    async with (
        open_jobs(backend.new_store()) as jobs,
        open_floor()(backend.new_store()) as floor,
    ):
        found = (
            await alternate(
                lambda: _rate(jobs, size, effort.batch_s),
                lambda: floor.batches(size, effort.batch_s),
                rounds=effort.batch_rounds,
            )
        ).typical
    return [
        Row(
            name=f"{backend.name}/{NAME}-{size}",
            unit="jobs/s",
            ours=found.ours,
            floor=found.floor,
            bar=_BAR,
        )
    ]


async def _rate(jobs: Jobs, size: int, seconds: float) -> float:
    """Claim for a while, enqueueing between whiles; only the claims are timed."""
    done, spent = 0, 0.0
    while spent < seconds:
        await jobs.fill(_QUEUE, size * REFILL)
        started = time.perf_counter()
        for _ in range(REFILL):
            await jobs.claim(_QUEUE, size)
        spent += time.perf_counter() - started
        done += size * REFILL
    return done / spent
