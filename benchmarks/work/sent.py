"""Statements of an enqueue, of a lone job from claim to end, and of a worker without jobs."""

from __future__ import annotations

import asyncio

import outlive
from benchmarks import sent
from benchmarks.children import ANSWER_LIMIT_S
from benchmarks.report import Row
from benchmarks.work.effort import Effort
from benchmarks.work.jobs import PAYLOAD
from outlive.model.job import FINAL

ENQUEUE_NAME = f"{sent.NAME}-enqueue"
JOB_NAME = f"{sent.NAME}-lone-job"
IDLE_NAME = f"{sent.NAME}-idle"
_QUEUE = "sent"

# How often to look whether a job has ended.
_LOOK_S = 0.002

# The host has settled a job and is idle again after this. On SQLite it polls twenty times a second.
_PAUSE_S = 0.15

app = outlive.App("bench-sent")


@app.handler(_QUEUE)
async def nothing(payload: str) -> None:
    """Take the payload, and be done."""
    del payload


async def measure_enqueue(backend: sent.Backend, effort: Effort) -> list[Row]:
    """Of one job, in a queue that has no worker."""
    del effort
    url = backend.new_store()
    async with sent.counting(backend, url) as count, outlive.connect(url, name="bench") as host:

        async def enqueue() -> None:
            await host.work.enqueue(_QUEUE, PAYLOAD)

        return [await sent.of_act(f"{backend.name}/{ENQUEUE_NAME}", count, enqueue)]


async def measure_job(backend: sent.Backend, effort: Effort) -> list[Row]:
    """Of a job for an idle worker. The host that enqueues and watches it is not counted."""
    del effort
    url = backend.new_store()
    async with (
        outlive.connect(url, name="bench-enqueuer") as other,
        sent.counting(backend, url) as count,
        outlive.connect(url, app=app, name="bench") as host,
        host.running(),
    ):

        async def job() -> None:
            made = await other.work.enqueue(_QUEUE, PAYLOAD)
            # It only reads: a wait would be written, and the counted host would look at that.
            async with asyncio.timeout(ANSWER_LIMIT_S):
                while True:
                    await asyncio.sleep(_LOOK_S)
                    if (await made.status()).state in FINAL:
                        break
            await asyncio.sleep(_PAUSE_S)

        return [await sent.of_act(f"{backend.name}/{JOB_NAME}", count, job)]


async def measure_idle(backend: sent.Backend, effort: Effort) -> list[Row]:
    """Of a host that is alone, because a host on SQLite reads after each write of another one."""
    url = backend.new_store()
    async with (
        sent.counting(backend, url) as count,
        outlive.connect(url, app=app, name="bench") as host,
        host.running(),
    ):
        return [await sent.of_idle(f"{backend.name}/{IDLE_NAME}", count, effort.idle_s)]
