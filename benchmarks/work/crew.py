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

# The first guess of what a crew does in a second. A crew that comes near the end of its queue does
# its round again with twice as many: it would be measured idle, and no constant fits all machines.
_BACKLOG_PER_S = 10_000

# So many must be left at the end: the last jobs are claimed in smaller batches.
_LEFT_MIN = 1000

# So often a backlog, or a round, is doubled before something else must be wrong.
_DOUBLINGS_MAX = 8


class Crew:
    """Some runners on one store, whose queue is filled up before each round."""

    def __init__(
        self,
        jobs: Jobs,
        runners: list[Child],
        seconds: float,
        *,
        backlog_per_s: int = _BACKLOG_PER_S,
    ) -> None:
        self._jobs = jobs
        self._runners = runners
        self._seconds = seconds
        self._backlog = int(backlog_per_s * seconds) + _LEFT_MIN
        self._ready = 0

    async def rate(self) -> float:
        """Jobs a second of all runners together, for a round with some that left enough.

        Raises:
            RuntimeError: They empty the queue, however long it is, or do none, however long they
                run.
        """
        for _ in range(_DOUBLINGS_MAX):
            await self._jobs.fill(QUEUE, self._backlog - self._ready)
            served, elapsed_s = await self._round()
            self._ready = self._backlog - served
            if served and self._ready >= _LEFT_MIN:
                return served / elapsed_s
            if served:
                self._backlog *= 2
            else:
                self._seconds *= 2
        raise RuntimeError(f"of {self._backlog} jobs {served} were done in {elapsed_s:.1f} s")

    async def _round(self) -> tuple[int, float]:
        for runner in self._runners:
            runner.tell("connect")
            await runner.hear()
        start = boot_time() + _LEAD_S
        for runner in self._runners:
            runner.tell({"start": start, "seconds": self._seconds})
        said = await asyncio.gather(*(runner.hear() for runner in self._runners))
        return sum(one["served"] for one in said), max(one["elapsed_s"] for one in said)
