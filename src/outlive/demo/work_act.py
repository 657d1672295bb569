"""The act of the queue: three workers share its jobs, one dies in the middle, and none is lost.

Starts real processes and ends only those. Every line printed is something that just happened.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from pathlib import Path

import outlive
from outlive.clock import SystemClock
from outlive.demo.instances import REGIONS, Instance, start, tell
from outlive.demo.job_worker import QUEUE, SESSION_TTL_S
from outlive.model.job import JobState

JOBS = 24
# More than the longest that the act takes: two session ttls and the work itself.
_PATIENCE_S = 20.0
_LOOK_S = 0.1

_clock = SystemClock()


async def run_queue(file: Path) -> bool:
    """The whole act; whether every job was done."""
    tell(f"\n5. Three workers share a queue of {JOBS} jobs")
    workers: list[Instance] = []
    async with outlive.connect(f"sqlite:///{file}", name="demo") as host:
        await host.work.enqueue_many(QUEUE, range(1, JOBS + 1))
        try:
            for region in REGIONS:
                # One by one, so that each is ended whatever becomes of the next.
                workers.append(await start(file, region, "job_worker"))  # noqa: PERF401
            for worker in workers:
                await worker.hear("began")
            await _kill_one(host, workers[0])
            jobs = await _await_all(host)
        finally:
            for worker in workers:
                await worker.end()
    return _sum_up(jobs)


async def _kill_one(host: outlive.Host, victim: Instance) -> None:
    """Kill a worker in mid-job, and wait until its jobs are with others."""
    victim.signal(signal.SIGKILL)
    killed_at = _clock.monotonic()
    await victim.process.wait()
    orphans = {
        job.id: job.token
        for job in await host.work.list(queue=QUEUE, state=JobState.CLAIMED)
        if job.claimed_by == victim.region
    }
    tell(
        f"   {victim.region:9} is killed (SIGKILL) in the middle of {len(orphans)} jobs; "
        f"its session ends in {SESSION_TTL_S:g} s"
    )
    async with asyncio.timeout(_PATIENCE_S):
        while orphans:
            await asyncio.sleep(_LOOK_S)
            for id, token in list(orphans.items()):  # noqa: A001 - it is one
                job = await host.work.get(id)
                if job.token > token:
                    del orphans[id]
                    after_s = _clock.monotonic() - killed_at
                    tell(
                        f"   {job.claimed_by:9} took job {job.payload} over after {after_s:.2f} s, "
                        f"with token {job.token}"
                    )


async def _await_all(host: outlive.Host) -> list[outlive.JobInfo]:
    async with asyncio.timeout(_PATIENCE_S):
        while True:
            jobs = await host.work.list(queue=QUEUE, limit=JOBS)
            if all(job.ended_at is not None for job in jobs):
                return jobs
            await asyncio.sleep(_LOOK_S)


def _sum_up(jobs: list[outlive.JobInfo]) -> bool:
    done = Counter(job.result for job in jobs if job.state is JobState.DONE)
    lost = sum(job.losses for job in jobs)
    shares = ", ".join(f"{host} {count}" for host, count in sorted(done.items()))
    tell(
        f"   {JOBS} jobs enqueued, {done.total()} done ({shares}), {JOBS - done.total()} missing; "
        f"{lost} claims were lost with their worker and repeated"
    )
    return done.total() == JOBS
