"""The worker at narrow moments: stopped before it began, twice, or while the store is asked."""

from __future__ import annotations

import asyncio
import threading

import pydantic
import pytest

from outlive import App, JobState, Retry
from outlive.errors import StoreUnavailable
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


async def _is(job, state: str) -> bool:
    return (await job.status()).state == state


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_a_job_that_is_cancelled_before_its_first_step_frees_its_slot(
    fleet, monkeypatch, mode
):
    app, ran = App("a"), []

    if mode == "async":

        @app.handler("q", concurrency=1)
        async def handle(payload: int) -> int:
            ran.append(payload)
            return payload

    else:

        @app.handler("q", concurrency=1)
        def handle(payload: int) -> int:
            ran.append(payload)
            return payload

    host = await fleet.host("worker", app=app)
    ask, told = host.work.claimer.ask_to_the_end, []

    async def telling(*args, **kwargs):
        session, claimed = await ask(*args, **kwargs)
        if claimed.jobs and not told:
            told.append(claimed.jobs[0].id)
            await host.work.store.cancel(told, reason="not wanted")
            # Heard after the run was made, and before its task has had a turn.
            asyncio.get_running_loop().call_soon(host.work.claimer.bell.cancelled, told[0])
        return session, claimed

    monkeypatch.setattr(host.work.claimer, "ask_to_the_end", telling)
    first, second = await host.work.enqueue_many(handle, [1, 2])
    task = asyncio.create_task(host.run())
    assert await second.result(timeout=4) == 2
    assert await _is(first, "cancelled")
    assert ran == [2]
    await _ended(task)


async def test_a_loss_reaches_a_body_that_cleans_up_after_a_cancellation(fleet):
    app, seen = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> None:
        seen.append("began")
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            seen.append("cleans up")
            try:
                await asyncio.sleep(30)
            finally:
                seen.append("stopped")

    host, _ = await fleet.run(app, session_ttl=0.6)
    job = await host.work.enqueue(handle, 1)
    await until(lambda: seen)
    await job.cancel()
    await until(lambda: "cleans up" in seen)
    await host._driver.hosts.close(host.work.claimer.sessions.now.id)
    await until(lambda: "stopped" in seen)


async def test_a_claim_under_way_when_the_worker_is_cancelled_is_given_back(fleet, monkeypatch):
    app, asked = App("a"), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None: ...

    monkeypatch.setattr("outlive.work.worker._CANCEL_PATIENCE_S", 0.05)
    host = await fleet.host("worker", app=app)
    plain = host.work.store.claim

    async def slow(request):
        claimed = await plain(request)
        asked.set()
        await asyncio.sleep(0.3)
        return claimed

    monkeypatch.setattr(host.work.store, "claim", slow)
    job = await host.work.enqueue(handle, 1)
    task = asyncio.create_task(host.run())
    await asked.wait()
    await _ended(task)
    await until(lambda: _is(job, "ready"))


async def test_a_retry_that_comes_due_while_the_store_is_asked_is_in_time(fleet, monkeypatch):
    app, seen, fail_now = App("a"), [], asyncio.Event()

    @app.handler("q", concurrency=2, retry=Retry(first=0.3, jitter=0))
    async def handle(payload: int) -> None:
        seen.append(payload)
        if len(seen) == 1:
            await fail_now.wait()
            raise ValueError("once")

    host = await fleet.host("worker", app=app)
    plain = host.work.store.claim

    async def slow(request):
        claimed = await plain(request)
        if len(seen) == 1:
            # The store has answered, and does not know of the failure to come.
            fail_now.set()
            await asyncio.sleep(0.1)
        return claimed

    monkeypatch.setattr(host.work.store, "claim", slow)
    job = await host.work.enqueue(handle, 1)
    task = asyncio.create_task(host.run())
    await until(lambda: seen)
    await host.work.claimer.bell.ring("q")
    await job.result(timeout=3)  # without a look of its own, the next is after five seconds
    await _ended(task)


async def test_a_store_that_takes_no_writes_does_not_keep_the_worker_from_ending(
    fleet, monkeypatch, caplog
):
    app, began = App("a"), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        began.set()
        await asyncio.sleep(30)

    async def refusing(_):
        raise StoreUnavailable("planted")

    monkeypatch.setattr("outlive.work.worker._CANCEL_PATIENCE_S", 0.1)
    monkeypatch.setattr("outlive.work.worker._SETTLE_PATIENCE_S", 0.1)
    looker = await fleet.host()
    host = await fleet.host("worker", app=app)
    task = asyncio.create_task(host.run())
    job = await looker.work.enqueue("q", 1)
    await began.wait()
    with monkeypatch.context() as broken:
        broken.setattr(host._duties._worker._lanes.release, "_method", refusing)
        await asyncio.wait_for(_ended(task), 5)
    assert "timed out writing job results" in caplog.text
    await host.close()
    await until(lambda: _is(job, "ready"))


async def test_a_failure_being_written_when_the_worker_stops_is_counted(fleet, monkeypatch, caplog):
    app, failing = App("a"), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        raise ValueError("no")

    monkeypatch.setattr("outlive.work.worker._CANCEL_PATIENCE_S", 0.05)
    looker = await fleet.host()
    host = await fleet.host("worker", app=app)
    plain = host.work.store.fail

    async def slow(failures):
        failing.set()
        await asyncio.sleep(0.3)
        return await plain(failures)

    monkeypatch.setattr(host.work.store, "fail", slow)
    task = asyncio.create_task(host.run())
    job = await looker.work.enqueue("q", 1)
    await failing.wait()
    await _ended(task)
    info = await job.status()
    assert (info.state, info.attempts) == (JobState.RETRYING, 1)
    assert "next attempt in" in caplog.text


async def test_no_role_outlives_a_run_that_is_cancelled_twice(fleet):
    app, leading, began = App("a"), [], asyncio.Event()

    @app.leader("boss")
    async def lead(lease) -> None:
        leading.append(lease.token)
        try:
            await asyncio.sleep(30)
        finally:
            leading.clear()

    @app.handler("q")
    async def handle(payload: int) -> None:
        began.set()
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.3)

    host = await fleet.host("worker", app=app)
    task = asyncio.create_task(host.run())
    await host.work.enqueue(handle, 1)
    await began.wait()
    await until(lambda: leading)
    task.cancel()
    await asyncio.sleep(0.05)
    await _ended(task)
    roles = {"lead-boss", "outlive-worker", "schedules"}
    await until(lambda: not roles & {each.get_name() for each in asyncio.all_tasks()})
    assert not leading


async def test_a_store_that_cannot_be_asked_for_a_key_costs_no_attempt(fleet, monkeypatch):
    app, asked = App("a"), []

    @app.handler("q", concurrency_key=str, retry=Retry(max_attempts=1))
    async def handle(payload: int) -> str:
        return "ran"

    host, _ = await fleet.run(app)
    plain = host.leases.try_acquire

    async def failing(*args, **kwargs):
        asked.append(args)
        if len(asked) == 1:
            raise StoreUnavailable("planted")
        return await plain(*args, **kwargs)

    monkeypatch.setattr(host.leases, "try_acquire", failing)
    job = await host.work.enqueue(handle, 1)
    assert await job.result(timeout=8) == "ran"
    assert (await job.status()).attempts == 0


async def test_a_thread_past_its_timeout_keeps_its_concurrency_key(fleet):
    app, go, running = App("a"), threading.Event(), []

    @app.handler("q", concurrency_key=lambda _: "k", timeout=0.1, retry=Retry(max_attempts=1))
    def handle(payload: int) -> int:
        running.append(payload)
        if payload == 1:
            go.wait(20)
        return payload

    host, _ = await fleet.run(app)
    first = await host.work.enqueue(handle, 1)
    await until(lambda: _is(first, "dead"))
    second = await host.work.enqueue(handle, 2)
    await until(lambda: _is(second, "scheduled"))
    assert running == [1]
    go.set()
    assert await second.result(timeout=8) == 2


class Awkward(pydantic.BaseModel):
    """A result whose own code fails when it is written down."""

    @pydantic.computed_field
    @property
    def size(self) -> int:
        raise KeyError("no size")


async def test_a_result_whose_own_code_fails_is_a_failure_of_the_job(fleet):
    app = App("a")

    @app.handler("q")
    async def handle(payload: int) -> Awkward:
        return Awkward()

    host, _ = await fleet.run(app)
    job = await host.work.enqueue(handle, 1)
    await until(lambda: _is(job, "dead"))
    assert "no size" in (await job.status()).error["message"]
    assert (await job.status()).state is JobState.DEAD


async def test_a_store_that_takes_all_completions_at_once_is_claimed_from_again(fleet, monkeypatch):
    """What holds claims back ends in one turn of the loop, with nothing left to end after it."""
    monkeypatch.setattr("outlive.work.worker._UNSETTLED_MAX", 10)
    app, ran, gate = App("a"), [], asyncio.Event()

    @app.handler("q", concurrency=10)
    async def handle(payload: int) -> None:
        ran.append(payload)

    host = await fleet.host("worker", app=app)
    complete = host.work.store.complete

    async def slow(batch):
        await gate.wait()
        return await complete(batch)

    monkeypatch.setattr(host.work.store, "complete", slow)
    await host.work.enqueue_many(handle, list(range(30)))
    task = asyncio.create_task(host.run())
    await until(lambda: len(ran) == 10)
    # Long enough for the worker to find that it may not claim.
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(ran) == 10
    gate.set()
    await until(lambda: len(ran) == 30)
    await _ended(task)
