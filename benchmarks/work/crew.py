"""Processes that run handlers end to end, and the backlog that they never get to the end of."""

from __future__ import annotations

import asyncio

from benchmarks.children import Child, boot_time
from benchmarks.work.jobs import Jobs

PROGRAM = "benchmarks.work.programs.runner"
QUEUE = "bench"

# Jobs that a runner has at once, unless it is told another number: as many as one claim brings.
CONCURRENCY = 100

# Hosts connect one after the other; so long before they begin together.
_LEAD_S = 0.05

# More than the fastest crew does in one round; one that empties the queue would be measured idle.
BACKLOG_PER_S = 30_000

# So many must be left in the end: the last jobs are claimed in smaller batches.
_LEFT_MIN = 1000


class Crew:
    """Some runners on one store, whose queue is filled up before each round."""

    def __init__(self, jobs: Jobs, runners: list[Child], seconds: float) -> None:
        self._jobs = jobs
        self._runners = runners
        self._seconds = seconds
        self._ready = 0

    async def rate(self) -> float:
        """Jobs a second of all runners together, for one round.

        Raises:
            RuntimeError: They came to the end of the queue.
        """
        wanted = int(BACKLOG_PER_S * self._seconds)
        await self._jobs.fill(QUEUE, wanted - self._ready)
        for runner in self._runners:
            runner.tell("connect")
            await runner.hear()
        start = boot_time() + _LEAD_S
        for runner in self._runners:
            runner.tell({"start": start, "seconds": self._seconds})
        said = await asyncio.gather(*(runner.hear() for runner in self._runners))
        served = sum(one["served"] for one in said)
        self._ready = wanted - served
        if self._ready < _LEFT_MIN:
            raise RuntimeError(f"the queue ran dry: {served} of {wanted} jobs were done")
        return served / max(one["elapsed_s"] for one in said)
