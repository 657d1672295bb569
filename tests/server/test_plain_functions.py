"""Plain functions of an HTTP worker: they run in threads, are told to stop, and are waited for."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from outlive import Retry
from outlive.client import calling, cancelled
from outlive.client import worker as worker_module
from tests.server.test_client import real, until
from tests.server.test_client_claims import Fake
from tests.server.test_client_claims import working as working_alone
from tests.server.test_http_worker import enqueue, until_state, working

__all__ = ["real"]


async def test_a_plain_function_is_run_once_and_its_result_is_kept(real):
    jobs, ran = real[2], []

    def work(item):
        ran.append((item.id, threading.current_thread() is threading.main_thread()))
        return item.payload * 2

    async with working(real, work) as (client, worker, _):
        item = await client.enqueue("mail", 21)
        await until(lambda: worker.done == 1)
    assert ran == [(item, False)]
    assert (await jobs.get(item)).result == "42"


async def test_a_plain_function_that_raises_has_failed(real):
    jobs = real[2]

    def work(_):
        raise ValueError("no good")

    async with working(real, work):
        bad = await enqueue(jobs, "bad", Retry(max_attempts=2, first=0.01))
        await until_state(jobs, bad, "dead")
    found = json.loads((await jobs.get(bad)).error)
    assert (found["type"], found["message"]) == ("ValueError", "no good")


async def test_plain_functions_run_several_at_a_time_and_heartbeats_go_on():
    client, together, go = Fake(ttl=0.6), threading.Barrier(3), threading.Event()
    client.items = 3

    def work(_):
        together.wait(10)
        assert go.wait(10)

    async with working_alone(client, work, concurrency=3) as (worker, _):
        await until(lambda: any(len(items) == 3 for items, _ in client.beats))
        go.set()
        await until(lambda: worker.done == 3)
    assert client.released == []


class Revoking(Fake):
    """Its server has given all claims but the first one to others."""

    async def answer(self, items):
        states = {item.id: "ok" if item.id == "i1" else "lost" for item in items}
        return time.monotonic() + self.ttl, states


async def test_a_plain_function_whose_claim_was_lost_before_it_had_a_thread_never_begins(
    monkeypatch,
):
    monkeypatch.setattr(calling, "_THREADS_MAX", 1)
    client, go, ran = Revoking(ttl=0.6), threading.Event(), []
    client.items = 2

    def work(item):
        ran.append(item.id)
        assert go.wait(10)

    async with working_alone(client, work, concurrency=2) as (worker, _):
        await until(lambda: any(run.gone for run in worker._running.values()))
        go.set()
        await until(lambda: not worker._running)
    assert ran == ["i1"]


async def test_a_plain_function_does_not_begin_in_a_thread_after_the_deadline(monkeypatch):
    monkeypatch.setattr(calling, "_THREADS_MAX", 1)
    client, go, ran = Fake(ttl=30), threading.Event(), []
    client.items = 2

    def work(item):
        ran.append(item.id)
        assert go.wait(10)

    async with working_alone(client, work, concurrency=2) as (worker, _):
        await until(lambda: len(worker._running) == 2 and ran == ["i1"])
        # As if the process had been paused.
        worker._deadline = time.monotonic()
        go.set()
        await until(lambda: not worker._running)
    assert ran == ["i1"]


async def test_a_plain_function_sees_that_its_item_is_cancelled(real):
    jobs, began, ended = real[2], asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(_):
        loop.call_soon_threadsafe(began.set)
        while not cancelled():
            threading.Event().wait(0.01)
        loop.call_soon_threadsafe(ended.set)
        raise RuntimeError("stopped half way")

    assert not cancelled()
    async with working(real, work, ttl=5) as (client, _, _):
        item = await client.enqueue("mail", 1)
        await asyncio.wait_for(began.wait(), 10)
        await jobs.cancel([item], reason="not needed")
        await asyncio.wait_for(ended.wait(), 20)
        await until_state(jobs, item, "cancelled")


async def test_what_a_plain_function_returns_because_its_worker_stopped_is_no_result(real):
    jobs, began = real[2], asyncio.Event()
    loop = asyncio.get_running_loop()

    def work(_):
        loop.call_soon_threadsafe(began.set)
        while not cancelled():
            threading.Event().wait(0.01)
        return "half of it"

    async with working(real, work, grace=0) as (client, worker, running):
        item = await client.enqueue("mail", 1)
        await asyncio.wait_for(began.wait(), 10)
        worker.stop()
        await asyncio.wait_for(running, 10)
    record = await jobs.get(item)
    assert (record.state, record.attempts, worker.done) == ("ready", 0, 0)


async def test_a_worker_ends_though_a_thread_does_not(real, monkeypatch):
    monkeypatch.setattr(worker_module, "_CANCEL_PATIENCE_S", 0.1)
    jobs, began, go = real[2], asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work(_):
        loop.call_soon_threadsafe(began.set)
        assert go.wait(20)
        return "too late"

    async with working(real, work, grace=0.1) as (client, worker, running):
        item = await client.enqueue("mail", 1)
        await asyncio.wait_for(began.wait(), 10)
        worker.stop()
        await asyncio.wait_for(running, 5)
        assert (await jobs.get(item)).state == "ready"
        go.set()
    record = await jobs.get(item)
    assert (record.state, record.attempts, worker.done) == ("ready", 0, 0)


async def test_a_result_that_cannot_be_sent_is_not_worked_on_again(real):
    jobs, ran = real[2], []

    def work(item):
        ran.append(item.id)
        return {"price": float("nan")}

    async with working(real, work) as (client, _, _):
        item = await client.enqueue("mail", 1)
        await until_state(jobs, item, "dead")
    assert ran == [item]
    assert "nan" in (await jobs.get(item)).error


@pytest.mark.parametrize("work", [None, "mail", 3])
async def test_what_is_no_function_is_refused_at_once(work):
    with pytest.raises(worker_module.UsageError, match="function"):
        worker_module.HttpWorker(Fake(ttl=1), ["mail"], work)
