"""Statements of an enqueue, of a lone job from its claim to its end, and of a worker without jobs."""

from __future__ import annotations

import asyncio

import outlive
from benchmarks import sent
from benchmarks.report import Row
from benchmarks.work.effort import Effort
from benchmarks.work.jobs import PAYLOAD
from outlive.model.job import FINAL

NAME = sent.NAME
_QUEUE = "sent"
_UNSERVED = "sent-unserved"

# How often to look whether the job has ended.
_LOOK_S = 0.002

app = outlive.App("bench-sent")


@app.handler(_QUEUE)
async def nothing(payload: str) -> None:
    """Take the payload, and be done."""
    del payload


async def measure(backend: sent.Backend, effort: Effort) -> list[Row]:
    """What one host sends for each."""
    sent.check(backend)
    return [*await _acts(backend), await _idle(backend, effort.idle_s)]


async def _acts(backend: sent.Backend) -> list[Row]:
    """An enqueue; and a job that another host enqueues and looks after, which is not counted."""
    url = backend.new_store()
    async with (
        outlive.connect(url, name="bench-enqueuer") as other,
        backend.counting(url) as count,
        outlive.connect(url, app=app, name="bench") as host,
    ):

        async def enqueue() -> None:
            await host.work.enqueue(_UNSERVED, PAYLOAD)

        async def job() -> None:
            made = await other.work.enqueue(_QUEUE, PAYLOAD)
            while (await made.status()).state not in FINAL:
                await asyncio.sleep(_LOOK_S)
            # The next must find the host idle.
            await asyncio.sleep(sent.PAUSE_S)

        enqueued = await sent.of_act(backend, "enqueue", count, enqueue)
        async with host.running():
            return [enqueued, await sent.of_act(backend, "lone-job", count, job)]


async def _idle(backend: sent.Backend, seconds: float) -> Row:
    """Nobody else is there: what one host writes, the others look at."""
    url = backend.new_store()
    async with (
        backend.counting(url) as count,
        outlive.connect(url, app=app, name="bench") as host,
        host.running(),
    ):
        return await sent.of_idle(backend, count, seconds)
