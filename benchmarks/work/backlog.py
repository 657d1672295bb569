"""What a claim costs in front of a million ready jobs, beside one in front of a thousand."""

from __future__ import annotations

import time

from benchmarks.report import Row
from benchmarks.rounds import alternate
from benchmarks.work.backend import Backend
from benchmarks.work.effort import Effort
from benchmarks.work.jobs import Jobs, open_jobs

NAME = "backlog"
_SMALL = 1000
_BAR = 1.5
_QUEUE = "backlog"

# Claims of one round, given back after each, so that the backlog stays as long as it is.
_CLAIMS = 25


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Microseconds of a claim of one job; the floor is the short backlog."""
    async with (
        open_jobs(backend.new_store()) as long,
        open_jobs(backend.new_store()) as short,
    ):
        await short.fill(_QUEUE, _SMALL)
        await long.fill(_QUEUE, effort.backlog)
        found = (
            await alternate(
                lambda: _claim_us(long), lambda: _claim_us(short), rounds=effort.backlog_rounds
            )
        ).typical
    return [
        Row(
            name=f"{backend.name}/{NAME}-{effort.backlog}",
            unit="us/claim",
            ours=found.ours,
            floor=found.floor,
            bar=_BAR,
            at_most=True,
        )
    ]


async def _claim_us(jobs: Jobs) -> float:
    spent = 0.0
    for _ in range(_CLAIMS):
        started = time.perf_counter()
        claimed = await jobs.claim(_QUEUE, 1)
        spent += time.perf_counter() - started
        await jobs.give_back(claimed)
    return spent / _CLAIMS * 1e6
