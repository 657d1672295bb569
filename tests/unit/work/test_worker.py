"""The worker: handlers run, their ends are stored, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from dataclasses import dataclass

import pytest

import outlive
from outlive import App, JobFailed, Retry, UsageError
from outlive.errors import UnsupportedByDriver
from tests.unit.work.conftest import until


async def _has_state(job, state: str) -> bool:
    return (await job.status()).state == state


@dataclass
class Mail:
    to: str


async def test_async_and_sync_handlers_run_and_return(fleet):
    app = App("a")

    @app.handler("async")
    async def sending(mail: Mail) -> str:
        return f"{mail.to}/{outlive.current().attempt}"

    @app.handler("sync")
    def storing(mail: Mail) -> dict[str, str]:
        return {"to": mail.to, "thread": threading.current_thread().name}

    host, _ = await fleet.run(app)
    one = await host.work.enqueue(sending, Mail("ann"))
    two = await host.work.enqueue(storing, Mail("bob"))
    assert await one.result(timeout=5) == "ann/1"
    assert (await two.result(timeout=5))["thread"].startswith("outlive-handler")


async def test_current_says_what_runs(fleet):
    app, seen = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> None:
        now = outlive.current()
        now.check()
        seen.append((now.job, now.queue, now.token, now.idempotency_key, now.host, now.headers))
        now.log.warning("working", extra={"step": 1})

    host, _ = await fleet.run(app, "web-1")
    job = await host.work.enqueue(handle, 1, headers={"tenant": "t"})
    await job.result(timeout=5)
    assert seen == [(job.id, "q", 1, job.id, "web-1", {"tenant": "t"})]
    with pytest.raises(UsageError, match="only inside a handler or a step"):
        outlive.current()


async def test_the_log_of_a_job_names_it(fleet, caplog):
    app = App("a")

    @app.handler("q")
    def handle(payload: int) -> None:
        outlive.current().log.warning("working", extra={"step": 1})

    host, _ = await fleet.run(app)
    job = await host.work.enqueue(handle, 1)
    with caplog.at_level(logging.WARNING, "outlive.work"):
        await job.result(timeout=5)
    (record,) = [record for record in caplog.records if record.message == "working"]
    assert (record.job, record.queue, record.attempt, record.step) == (job.id, "q", 1, 1)
    assert record.host == "worker"


async def test_no_more_run_at_once_than_there_are_slots(fleet):
    app, running, most = App("a"), 0, 0

    @app.handler("q", concurrency=3)
    async def handle(payload: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    host, _ = await fleet.run(app)
    await host.work.enqueue_many(handle, range(20))
    await until(lambda: host.work.count(queue="q", state="claimed"))
    assert await host.work.count(state="claimed") <= 3
    await until(lambda: host.work.count(state="done"), 10)
    await until(lambda: _all_done(host, 20))
    assert most == 3


async def _all_done(host, count):
    return await host.work.count(state="done") == count


async def test_a_failure_is_tried_again_by_the_policy(fleet):
    app, attempts = App("a"), []

    @app.handler("q", retry=Retry(max_attempts=3, first=0.01))
    async def handle(payload: int) -> str:
        attempts.append(outlive.current().attempt)
        if len(attempts) < 3:
            raise ConnectionError("away")
        return "done"

    host, _ = await fleet.run(app)
    job = await host.work.enqueue(handle, 1)
    assert await job.result(timeout=5) == "done"
    assert attempts == [1, 2, 3]
    log = await host.work.attempts(job.id)
    assert [each.outcome for each in log] == ["failed", "failed"]
    assert "ConnectionError" in log[0].error


async def test_a_job_that_was_enqueued_by_name_is_retried_as_its_handler_says(fleet):
    app, attempts = App("a"), []

    @app.handler("q", retry=Retry(max_attempts=2, first=0))
    async def handle(payload: int) -> None:
        attempts.append(outlive.current().attempt)
        raise ConnectionError("away")

    host, _ = await fleet.run(app)
    job = await host.work.enqueue("q", 1)
    with pytest.raises(JobFailed):
        await job.result(timeout=5)
    assert attempts == [1, 2]


async def test_the_handler_says_how_often_a_job_that_was_enqueued_by_name_may_be_lost(fleet):
    app, gate = App("a"), asyncio.Event()

    @app.handler("q", max_losses=1)
    async def handle(payload: int) -> None:
        await gate.wait()

    host, _ = await fleet.run(app)
    job = await host.work.enqueue("q", 1)
    await until(lambda: _has_state(job, "claimed"))
    assert (await job.status()).max_losses == 1
    gate.set()
    await job.result(timeout=5)


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_handler_that_runs_on_after_its_timeout_is_named(fleet, caplog, kind):
    app, gate, free = App("a"), asyncio.Event(), threading.Event()

    if kind == "async":

        @app.handler("q", timeout=0.05)
        async def handle(payload: int) -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await gate.wait()
            await gate.wait()
    else:

        @app.handler("q", timeout=0.05)
        def handle(payload: int) -> None:
            free.wait(10)

    host, _ = await fleet.run(app)
    job = await host.work.enqueue("q", 1)
    await until(lambda: "keeps its slot" in caplog.text)
    assert f"the handler of job {job.id} of queue 'q' still runs after its timeout" in caplog.text
    gate.set()
    free.set()


async def test_the_death_of_a_host_counts_against_the_jobs_it_ran_alone(fleet):
    app = App("a")

    @app.handler("q", concurrency=2)
    async def handle(payload: int) -> None:
        await asyncio.Event().wait()

    host, _ = await fleet.run(app)
    jobs = await host.work.enqueue_many(handle, range(5))
    await until(lambda: _has_state(jobs[1], "claimed"))
    driver = (await fleet.host()).driver
    await driver.hosts.close((await jobs[0].status()).session)
    await driver.jobs.reclaim(limit=10)
    assert [(await job.status()).losses for job in jobs] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("how", ["never", "used up", "own policy"])
async def test_a_failure_that_is_not_retried_is_dead(fleet, how):
    app, attempts = App("a"), []

    @app.handler("q", retry=Retry(first=0, max_attempts=2, never=(KeyError,)))
    async def handle(payload: int) -> None:
        attempts.append(payload)
        raise KeyError("x") if how == "never" else ValueError("x")

    host, _ = await fleet.run(app)
    options = {"retry": Retry(max_attempts=1)} if how == "own policy" else {}
    job = await host.work.enqueue(handle, 1, **options)
    with pytest.raises(JobFailed) as caught:
        await job.result(timeout=5)
    assert caught.value.state == "dead"
    assert len(attempts) == (2 if how == "used up" else 1)


async def test_a_policy_that_cannot_be_read_does_not_stop_the_worker(fleet, caplog):
    app = App("a")

    @app.handler("q", retry=Retry(max_attempts=1))
    async def handle(payload: int) -> None:
        raise ValueError

    host, _ = await fleet.run(app)
    new = host.work.prepare(handle, 1)
    await host.work.store.enqueue([outlive.model.job.msgspec.structs.replace(new, retry='{"x":1}')])
    with pytest.raises(JobFailed):
        await host.work.job(new.id).result(timeout=5)
    assert "unreadable retry policy" in caplog.text


async def test_an_invalid_payload_goes_to_the_dead_letters_with_its_reason(fleet):
    app, ran = App("a"), []

    @app.handler("q")
    async def handle(mail: Mail) -> None:
        ran.append(mail)

    host, _ = await fleet.run(app)
    job = await host.work.enqueue("q", {"to": 5})
    with pytest.raises(JobFailed) as caught:
        await job.result(timeout=5)
    assert "InvalidPayload" in caught.value.error["type"]
    assert "Expected `str`" in caught.value.error["message"]
    assert (ran, (await job.status()).attempts) == ([], 1)


async def test_a_result_that_cannot_be_stored_is_not_worked_for_twice(fleet):
    app, ran = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> object:
        ran.append(payload)
        return object()

    host, _ = await fleet.run(app)
    with pytest.raises(JobFailed) as caught:
        await (await host.work.enqueue(handle, 1)).result(timeout=5)
    assert "the result" in caught.value.error["message"]
    assert ran == [1]


@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_a_run_longer_than_its_timeout_fails(fleet, mode):
    app, told = App("a"), threading.Event()

    if mode == "async":

        @app.handler("q", timeout=0.05, retry=Retry(max_attempts=1))
        async def handle(payload: int) -> None:
            try:
                await asyncio.sleep(30)
            finally:
                told.set()

    else:

        @app.handler("q", timeout=0.05, retry=Retry(max_attempts=1))
        def handle(payload: int) -> str:
            now = outlive.current()
            while not now.cancelled:
                time.sleep(0.005)
            told.set()
            return "too late"

    host, _ = await fleet.run(app)
    with pytest.raises(JobFailed) as caught:
        await (await host.work.enqueue("q", 1)).result(timeout=5)
    assert caught.value.error["type"] == "TimeoutError"
    assert "0.05" in caught.value.error["message"]
    await until(told.is_set)


@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_cancelling_reaches_the_body(fleet, mode):
    app, began, told = App("a"), threading.Event(), threading.Event()

    if mode == "async":

        @app.handler("q")
        async def handle(payload: int) -> None:
            began.set()
            try:
                await asyncio.sleep(30)
            finally:
                told.set()

    else:

        @app.handler("q")
        def handle(payload: int) -> None:
            began.set()
            now = outlive.current()
            while not now.cancelled:
                time.sleep(0.005)
            told.set()
            raise RuntimeError("stopped")

    looker = await fleet.host()
    await fleet.run(app)
    job = await looker.work.enqueue("q", 1)
    await until(began.is_set)
    assert await job.cancel(reason="not needed")
    with pytest.raises(JobFailed) as caught:
        await job.result(timeout=5)
    assert caught.value.state == "cancelled"
    assert told.is_set()


async def test_cancelling_is_found_out_even_if_the_ring_is_lost(fleet):
    app, began = App("a"), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        began.set()
        await asyncio.sleep(30)

    host, _ = await fleet.run(app, session_ttl=0.4)
    host.work.claimer.bell.close()
    job = await host.work.enqueue("q", 1)
    await asyncio.wait_for(began.wait(), 6)
    await job.cancel()
    with pytest.raises(JobFailed):
        await job.result(timeout=5)


async def test_progress_is_kept_from_both_kinds_of_handlers(fleet):
    app, go = App("a"), threading.Event()

    @app.handler("async")
    async def one(payload: int) -> None:
        outlive.current().progress({"done": 1})
        await until(go.is_set)

    @app.handler("sync")
    def two(payload: int) -> None:
        outlive.current().progress(0.5)
        with pytest.raises(UsageError):
            outlive.current().progress(object())
        go.wait(10)

    host, _ = await fleet.run(app)
    jobs = [await host.work.enqueue(one, 1), await host.work.enqueue(two, 1)]
    for job, wanted in zip(jobs, ({"done": 1}, 0.5), strict=True):
        await until(lambda job=job, wanted=wanted: _progress_is(job, wanted))
    go.set()
    for job in jobs:
        await job.result(timeout=5)


async def _progress_is(job, wanted):
    return (await job.status()).progress == wanted


async def test_a_handler_that_exits_in_a_task_of_a_middleware_is_a_failed_attempt(fleet):
    app = App("w")

    @app.middleware
    async def apart(current, call):
        return await asyncio.create_task(call())

    @app.handler("q", retry=Retry(max_attempts=1))
    async def exits(payload):
        raise SystemExit(3)

    host, _ = await fleet.run(app)
    job = await host.work.enqueue("q", 1)
    with pytest.raises(JobFailed, match="SystemExit"):
        await job.result(timeout=10)


async def test_middleware_stands_around_every_run(fleet):
    app, steps = App("a"), []

    @app.middleware
    async def outer(current, call):
        steps.append(f"outer {current.job}")
        return f"<{await call()}>"

    @app.middleware
    async def inner(current, call):
        steps.append("inner")
        if current.attempt == 1:
            raise ValueError("not yet")
        return await call()

    @app.handler("async", retry=Retry(first=0))
    async def one(payload: int) -> str:
        return "async"

    @app.handler("sync", retry=Retry(first=0))
    def two(payload: int) -> str:
        return "sync"

    host, _ = await fleet.run(app)
    for handler in (one, two):
        job = await host.work.enqueue(handler, 1)
        assert await job.result(timeout=5) == f"<{handler.queue[0:]}>"
        assert steps[:2] == [f"outer {job.id}", "inner"]
        steps.clear()


async def test_jobs_of_one_concurrency_key_take_turns_in_the_fleet(fleet):
    app, running, most = App("a"), {}, {}

    @app.handler("q", concurrency_key=lambda n: None if n < 0 else f"k{n % 2}", key_concurrency=1)
    async def handle(payload: int) -> None:
        key = payload % 2
        running[key] = running.get(key, 0) + 1
        most[key] = max(most.get(key, 0), running[key])
        await asyncio.sleep(0.02)
        running[key] -= 1

    a, _ = await fleet.run(app, "w1")
    await fleet.run(app, "w2")
    await a.work.enqueue_many(handle, range(6))
    await until(lambda: _all_done(a, 6), 20)
    assert most == {0: 1, 1: 1}
    assert all(info.attempts == 0 for info in await a.work.list())


async def test_a_backend_without_limits_refuses_to_run_such_a_handler(fleet, monkeypatch):
    app = App("a")

    @app.handler("q", rate=5)
    async def handle(payload: int) -> None: ...

    host = await fleet.host(app=app)
    poor = outlive.host.Capabilities(
        **{
            **{name: getattr(host.capabilities, name) for name in host.capabilities.__slots__},
            "queue_limits": False,
        }
    )
    monkeypatch.setattr(host.work.operations, "_capabilities", poor)
    with pytest.raises(UnsupportedByDriver, match="limits"):
        await host.run()


async def test_a_ring_wakes_an_idle_worker(fleet):
    app = App("a")

    @app.handler("q")
    async def handle(payload: int) -> int:
        return payload

    await fleet.run(app)
    looker = await fleet.host()
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await (await looker.work.enqueue(handle, 1)).result(timeout=4)
    assert loop.time() - began < 4
    # One that comes due soon is waited for as exactly, though nobody rings when it does.
    await (await looker.work.enqueue(handle, 1, delay=0.1)).result(timeout=4)


def test_a_handler_is_defined_once_and_takes_one_payload():
    app = App("a")

    @app.handler("q")
    async def handle(payload: int) -> int:
        return payload + 1

    assert asyncio.run(handle(1)) == 2
    with pytest.raises(UsageError, match="already"):
        app.handler("q")
    for function in (os.getcwd, pow, 5):
        with pytest.raises(UsageError, match="the handler of queue 'other'"):
            app.handler("other")(function)
    for options in (
        {"concurrency": 0},
        {"timeout": 0},
        {"retry": 5},
        {"rate": 0},
        {"rate": (1, 2, 3)},
        {"max_losses": -1},
        {"queue_concurrency": 0},
        {"concurrency_key": "k"},
        {"key_concurrency": 0},
    ):
        with pytest.raises(UsageError):
            app.handler("other", **options)
    with pytest.raises(UsageError, match="async def"):
        app.middleware(print)


def test_types_that_cannot_be_found_are_named():
    app = App("a")

    @app.handler("q")
    async def handle(payload: Missing) -> None: ...  # noqa: F821

    with pytest.raises(UsageError, match="Missing"):
        _ = handle.takes
