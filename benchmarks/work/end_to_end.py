"""Jobs from the store through a handler that does nothing to their durable end.

On SQLite beside a raw loop that commits a claim and a completion for each job; on PostgreSQL beside
Procrastinate, and two processes beside one.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from benchmarks.children import children
from benchmarks.leases.backend import Absent
from benchmarks.report import Row
from benchmarks.rounds import alternate
from benchmarks.work.backend import Backend
from benchmarks.work.crew import CONCURRENCY, PROGRAM, Crew
from benchmarks.work.effort import Effort
from benchmarks.work.jobs import open_jobs
from benchmarks.work.peers import procrastinate
from benchmarks.work.sqlite_floor import open_floor
from outlive.work.handler import HandlerOptions

NAME = "end-to-end"
PROCESSES_NAME = "two-processes"
FULL_PROCESSES_NAME = "two-processes-full"

# What is promised.
_RAW_BAR = 2.0
_PEER_BAR = 10.0
_PROCESSES_BAR = 1.5

DEFAULT_CONCURRENCY = HandlerOptions().concurrency


async def measure_sqlite(backend: Backend, effort: Effort) -> list[Row]:
    """Jobs a second beside the raw loop."""
    url = backend.new_store()
    async with (
        open_jobs(url) as jobs,
        children(PROGRAM, [[url]]) as runners,
        open_floor(backend.new_store()) as floor,
    ):
        await runners[0].hear()
        crew = Crew(jobs, runners, effort.round_s)
        outcome = await alternate(
            crew.rate, lambda: floor.one_by_one(effort.round_s), rounds=effort.rounds
        )
    return [
        Row(
            name=f"{backend.name}/{NAME}",
            unit="jobs/s",
            ours=outcome.typical.ours,
            floor=outcome.typical.floor,
            bar=_RAW_BAR,
        )
    ]


async def measure_postgres(backend: Backend, effort: Effort) -> list[Row]:
    """Jobs a second beside Procrastinate on the same server; without a floor if it is not there."""
    url = backend.new_store()
    name = f"{backend.name}/{NAME}"
    async with AsyncExitStack() as stack:
        jobs = await stack.enter_async_context(open_jobs(url))
        runners = await stack.enter_async_context(children(PROGRAM, [[url]]))
        await runners[0].hear()
        crew = Crew(jobs, runners, effort.round_s)
        try:
            peer = await stack.enter_async_context(procrastinate(backend.new_store()))
        except Absent:
            await crew.rate()
            return [Row(name=name, unit="jobs/s", ours=await crew.rate())]
        outcome = await alternate(
            crew.rate, lambda: peer(effort.peer_jobs), rounds=min(effort.rounds, 3)
        )
    found = outcome.typical
    return [Row(name=name, unit="jobs/s", ours=found.ours, floor=found.floor, bar=_PEER_BAR)]


async def measure_processes(backend: Backend, effort: Effort) -> list[Row]:
    """Two processes beside one, with as many slots as a handler has that asks for no more."""
    return [await _processes(PROCESSES_NAME, DEFAULT_CONCURRENCY, backend, effort)]


async def measure_full_processes(backend: Backend, effort: Effort) -> list[Row]:
    """The same with so many that one process and its server fill two cores.

    A second process can only share them.
    """
    return [await _processes(FULL_PROCESSES_NAME, CONCURRENCY, backend, effort)]


async def _processes(name: str, concurrency: int, backend: Backend, effort: Effort) -> Row:
    """Each on stores of their own."""
    alone_url, url = backend.new_store(), backend.new_store()
    slots = str(concurrency)
    async with (
        open_jobs(alone_url) as alone_jobs,
        open_jobs(url) as jobs,
        children(PROGRAM, [[alone_url, slots], [url, slots], [url, slots]]) as runners,
    ):
        for runner in runners:
            await runner.hear()
        alone = Crew(alone_jobs, runners[:1], effort.round_s)
        both = Crew(jobs, runners[1:], effort.round_s)
        found = (await alternate(both.rate, alone.rate, rounds=effort.rounds)).typical
    return Row(
        name=f"{backend.name}/{name}",
        unit="jobs/s",
        ours=found.ours,
        floor=found.floor,
        bar=_PROCESSES_BAR,
    )
