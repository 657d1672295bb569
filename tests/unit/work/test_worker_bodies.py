"""Bodies of handlers that end in a way of their own: failures, as any other."""

from __future__ import annotations

import asyncio
import sys
import time

import pytest

import outlive
from outlive import App, JobFailed, Retry, UsageError


async def test_a_body_that_exits_has_failed(fleet):
    app = App("a")

    @app.handler("q", retry=Retry(max_attempts=1, on=(BaseException,)))
    async def handle(payload: int) -> None:
        sys.exit(3)

    host, _ = await fleet.run(app)
    with pytest.raises(JobFailed) as caught:
        await (await host.work.enqueue(handle, 1)).result(timeout=5)
    assert caught.value.state == "dead"


async def _cancels_itself() -> None:
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def _raises(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        (_cancels_itself, "cancelled"),
        (lambda: _raises(asyncio.CancelledError()), "cancelled"),
        (lambda: _raises(GeneratorExit()), "GeneratorExit"),
        (lambda: _raises(SystemExit("stops the process")), "stops the process"),
        (lambda: _raises(KeyboardInterrupt("by hand")), "by hand"),
        (lambda: _raises(StopIteration()), "StopIteration"),
    ],
)
async def test_a_body_that_ends_as_only_its_worker_may_end_it_has_failed(fleet, ends, said):
    app, ran = App("a"), []

    @app.handler("q", concurrency=1, retry=Retry(max_attempts=2, first=0))
    async def handle(payload: int) -> int:
        ran.append(payload)
        if payload == 0:
            await ends()
        return payload

    host, _ = await fleet.run(app)
    bad = await host.work.enqueue(handle, 0)
    with pytest.raises(JobFailed) as caught:
        await bad.result(timeout=5)
    assert caught.value.state == "dead"
    assert said in (await bad.status()).error["message"]
    # Its slot is free again, and the worker goes on.
    assert await (await host.work.enqueue(handle, 1)).result(timeout=5) == 1
    assert ran == [0, 0, 1]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_that_says_later_is_run_again_and_no_attempt_is_counted(fleet, kind):
    app, attempts = App("a"), []

    def work() -> int:
        attempts.append(outlive.current().attempt)
        if len(attempts) < 3:
            outlive.current().progress(len(attempts))
            raise outlive.Later(0.05)
        return len(attempts)

    async def is_async(payload: int) -> int:
        return work()

    def is_sync(payload: int) -> int:
        return work()

    handle = app.handler("q", retry=Retry(max_attempts=1))(
        is_sync if kind == "thread" else is_async
    )
    host, _ = await fleet.run(app)
    job = await host.work.enqueue(handle, 1)
    assert await job.result(timeout=5) == 3
    assert attempts == [1, 1, 1]
    info = await job.status()
    assert (info.attempts, info.losses, info.progress) == (0, 0, 2)
    assert await host.work.attempts(job.id) == []


async def test_a_delay_of_later_is_checked_where_it_is_raised():
    with pytest.raises(UsageError, match="delay"):
        outlive.Later(-1)


async def test_a_sync_body_that_stops_an_iteration_has_failed(fleet):
    app, ran = App("a"), []

    @app.handler("q", concurrency=1, retry=Retry(max_attempts=2, first=0))
    def handle(payload: int) -> int:
        ran.append(payload)
        return payload or next(iter([]))

    host, _ = await fleet.run(app)
    with pytest.raises(JobFailed):
        await (await host.work.enqueue(handle, 0)).result(timeout=5)
    assert await (await host.work.enqueue(handle, 1)).result(timeout=5) == 1
    assert ran == [0, 0, 1]


def test_a_loop_that_is_torn_down_under_its_jobs_ends_at_once():
    app, ended = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(payload)

    async def main() -> None:
        host = await outlive.connect("memory://torn-down", app=app, name="a").__aenter__()
        kept.append((host, asyncio.create_task(host.run())))
        await host.work.enqueue(handle, 1)
        await began.wait()

    began, kept = asyncio.Event(), []
    started = time.monotonic()
    asyncio.run(main())
    assert ended == [1]
    assert time.monotonic() - started < 5
