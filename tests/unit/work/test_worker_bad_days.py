"""The worker on the bad day: it is told to stop, loses its session, or gets no reply."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

import outlive
from outlive import App, JobState, Retry
from outlive.errors import OutcomeUnknown, StoreUnavailable, UsageError
from tests.unit.bodies import stay
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


async def _all_done(host, count):
    return await host.work.count(state="done") == count


async def test_stopping_lets_handlers_end(fleet):
    app, began = App("a"), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> str:
        began.set()
        await asyncio.sleep(0.1)
        return "ended"

    host = await fleet.host(app=app)
    task = asyncio.create_task(host.run(grace=10))
    job = await host.work.enqueue(handle, 1)
    await asyncio.wait_for(began.wait(), 5)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 5)
    assert await job.result(timeout=1) == "ended"


async def test_signals_are_left_to_a_program_that_listens(fleet):
    heard = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        host = await fleet.host(app=App("a"))
        task = asyncio.create_task(host.run())
        await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: heard)
        assert not task.done()
        host.stop()
        await asyncio.wait_for(task, 5)
        assert callable(signal.getsignal(signal.SIGTERM))
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("what", ["job", "session"])
async def test_a_host_that_stops_still_hears_what_is_taken_from_it(fleet, what):
    app, seen = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> None:
        await stay(seen)

    host = await fleet.host(app=app, session_ttl=0.6)
    task = asyncio.create_task(host.run(grace=60))
    job = await host.work.enqueue(handle, 1)
    await until(lambda: seen)
    host.stop()
    # It claims no more, and lets the handler end.
    await until(lambda: host._duties is None or host._duties._worker._ended.done())
    if what == "job":
        await job.cancel()
    else:
        await host._driver.hosts.close(host.work.claimer.sessions.now.id)
    await asyncio.wait_for(task, 8)
    assert seen == ["began", "cancelled"]


@pytest.mark.parametrize("how", ["signal", "stop"])
async def test_who_is_told_to_stop_a_second_time_waits_no_longer(fleet, how):
    app, seen = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> None:
        await stay(seen)

    host = await fleet.host(app=app)
    looker = await fleet.host("looker")
    task = asyncio.create_task(host.run(grace=600))
    job = await looker.work.enqueue("q", 1)
    await until(lambda: seen)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
    else:
        # As often as one likes: only who says so ends the grace.
        host.stop()
        host.stop()
    await until(host._duties._worker._ended.done)
    assert not task.done()
    if how == "signal":
        os.kill(os.getpid(), signal.SIGINT)
    else:
        host.stop(now=True)
    await asyncio.wait_for(task, 8)
    assert seen == ["began", "cancelled"]
    info = await job.status()
    assert (info.state, info.attempts, info.losses) == (JobState.READY, 0, 0)


@pytest.mark.parametrize("mode", ["async", "sync"])
async def test_stopping_gives_back_what_does_not_end_in_time(fleet, mode):
    app, began, go = App("a"), threading.Event(), threading.Event()

    if mode == "async":

        @app.handler("q")
        async def handle(payload: int) -> None:
            began.set()
            await asyncio.sleep(30)

    else:

        @app.handler("q")
        def handle(payload: int) -> None:
            began.set()
            go.wait(20)

    looker = await fleet.host()
    host = await fleet.host("worker", app=app)
    task = asyncio.create_task(host.run(grace=0.05))
    job = await looker.work.enqueue("q", 1)
    await until(began.is_set)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(task, 10)
    info = await job.status()
    assert (info.state, info.attempts, info.losses) == (JobState.READY, 0, 0)
    go.set()
    await asyncio.sleep(0.05)
    assert (await job.status()).state is JobState.READY


async def test_a_lost_session_cancels_what_runs_and_the_host_goes_on(fleet, caplog):
    app, seen = App("a"), []

    @app.handler("q")
    async def handle(payload: int) -> str:
        now = outlive.current()
        seen.append("began")
        if len(seen) == 1:
            try:
                await asyncio.sleep(30)
            finally:
                seen.append("cancelled")
                with pytest.raises(outlive.ClaimLost):
                    _ = now.token
        return "second run"

    host, _ = await fleet.run(app, session_ttl=0.6)
    job = await host.work.enqueue(handle, 1)
    await until(lambda: seen)
    await host._driver.hosts.close(host.work.claimer.sessions.now.id)
    assert await job.result(timeout=8) == "second run"
    assert seen == ["began", "cancelled", "began"]
    info = await job.status()
    assert (info.attempts, info.losses) == (0, 1)
    assert "lost its session" in caplog.text


class Flaky:
    """Every other call is answered by an error, after it was applied or instead."""

    def __init__(self, method, error):
        self.method, self.error, self.calls = method, error, 0

    async def __call__(self, *args, **kwargs):
        self.calls += 1
        if self.calls % 2:
            if self.error is OutcomeUnknown:
                await self.method(*args, **kwargs)
            raise self.error("planted")
        return await self.method(*args, **kwargs)


@pytest.mark.parametrize("error", [OutcomeUnknown, StoreUnavailable])
async def test_lost_replies_cost_no_job_and_run_none_twice(fleet, monkeypatch, error):
    app, ran = App("a"), []

    @app.handler("q", retry=Retry(first=0))
    async def handle(payload: int) -> None:
        ran.append(payload)
        if payload == 3 and ran.count(3) == 1:
            raise ValueError("once")

    host = await fleet.host("worker", app=app)
    for name in ("enqueue", "claim", "complete", "fail", "release"):
        if name != "enqueue" or error is OutcomeUnknown:
            flaky = Flaky(getattr(host.work.store, name), error)
            monkeypatch.setattr(host.work.store, name, flaky)
    task = asyncio.create_task(host.run())
    await host.work.enqueue_many(handle, range(20))
    await until(lambda: _all_done(host, 20), 20)
    assert sorted(ran) == sorted([*range(20), 3])
    task.cancel()
    await asyncio.wait([task])


async def test_an_unknown_claim_that_is_given_up_is_given_back(fleet, monkeypatch):
    host = await fleet.host()
    await host.work.enqueue("q", 1)
    plain, lost = host.work.store.claim, True

    async def losing(request):
        claimed = await plain(request)
        if lost:
            raise OutcomeUnknown("planted")
        return claimed

    monkeypatch.setattr("outlive.work.repeating.PATIENCE_S", 0.1)
    monkeypatch.setattr(host.work.store, "claim", losing)
    with pytest.raises(OutcomeUnknown):
        await host.work.claim("q")
    assert await host.work.count(state="claimed") == 1
    lost = False
    await until(lambda: _ready(host))


async def test_a_claim_that_is_carried_out_after_its_repeat_is_given_back(fleet, monkeypatch):
    host = await fleet.host()
    await host.work.enqueue_many("q", [1, 2])
    plain, late = host.work.store.claim, []

    async def losing(request):
        if not late:
            late.append(request)
            raise OutcomeUnknown("planted")
        return await plain(request)

    monkeypatch.setattr("outlive.work.strays._FIRST_S", 0.05)
    monkeypatch.setattr(host.work.store, "claim", losing)
    (claim,) = await host.work.claim("q")
    assert len((await plain(late[0])).jobs) == 1
    await until(lambda: _ready(host))
    await claim.complete()


async def _ready(host):
    return await host.work.count(state="ready") == 1


async def test_a_host_runs_once_at_a_time(fleet):
    app = App("a")

    @app.handler("q")
    async def handle(payload: int) -> int:
        return payload

    host, task = await fleet.run(app)
    assert await (await host.work.enqueue(handle, 0)).result(timeout=5) == 0
    with pytest.raises(UsageError, match="already running"):
        await host.run()
    # The first goes on, and after it another may begin.
    assert await (await host.work.enqueue(handle, 1)).result(timeout=5) == 1
    host.stop()
    await task
    again = asyncio.create_task(host.run())
    assert await (await host.work.enqueue(handle, 2)).result(timeout=5) == 2
    host.stop()
    await again
