"""Functions of an HTTP worker that end in a way of their own, or do not end."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

import outlive
from outlive import Retry
from outlive.client import Client, HttpWorker
from outlive.client import worker as worker_module
from outlive.clock import SystemClock
from outlive.model.job import NewJob
from outlive.runtime.runtime import Runtime
from tests.server.test_client import real, until

__all__ = ["real"]


@contextlib.asynccontextmanager
async def working(real, work, *, ttl=30, **options):
    url, token, _ = real
    async with Client(url, token, worker_id="w1", ttl=ttl) as client:
        worker = HttpWorker(client, ["mail"], work, **options)
        running = asyncio.create_task(worker.run())
        yield client, worker, running
        worker.stop()
        await asyncio.wait_for(running, 20)


async def enqueue(jobs, item: str, retry: Retry) -> str:
    """As a program beside the server does, which may say how an item is tried again."""
    policy, most = retry.to_json(), retry.max_attempts
    job = NewJob(id=item, queue="mail", payload=f'"{item}"', retry=policy, max_attempts=most)
    await jobs.enqueue([job])
    return item


async def until_state(jobs, item: str, state: str) -> None:
    async with asyncio.timeout(20):
        # What others do sets no event here.
        while (await jobs.get(item)).state != state:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def _cancel_oneself() -> None:
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (_cancel_oneself, "asyncio.exceptions.CancelledError"),
        (lambda: _raise(asyncio.CancelledError()), "asyncio.exceptions.CancelledError"),
        (lambda: _raise(GeneratorExit()), "GeneratorExit"),
        (lambda: _raise(SystemExit(3)), "SystemExit"),
        (lambda: _raise(KeyboardInterrupt()), "KeyboardInterrupt"),
    ],
)
async def test_a_function_that_ends_as_only_its_worker_may_end_it_has_failed(real, end, kind):
    jobs, ran = real[2], []

    async def work(item):
        ran.append(item.payload)
        if item.payload == "bad":
            await end()

    async with working(real, work) as (client, worker, _):
        bad = await enqueue(jobs, "bad", Retry(max_attempts=2, first=0.01))
        await until_state(jobs, bad, "dead")
        await client.enqueue("mail", "good")
        await until(lambda: worker.done == 1)
    assert ran == ["bad", "bad", "good"]
    assert json.loads((await jobs.get(bad)).error)["type"] == kind


async def test_a_function_that_says_later_is_run_again_and_no_attempt_is_counted(real):
    jobs, ran = real[2], []

    async def work(item):
        ran.append(item.attempt)
        if len(ran) < 3:
            raise outlive.Later(0.05)

    async with working(real, work) as (_, worker, _):
        item = await enqueue(jobs, "item", Retry(max_attempts=1))
        await until(lambda: worker.done == 1)
    assert ran == [1, 1, 1]
    assert (await jobs.get(item)).state == "done"


async def test_the_policy_of_an_item_sees_what_its_function_raised(real):
    jobs = real[2]

    async def work(_):
        raise ValueError("never again")

    async with working(real, work):
        refused = await enqueue(jobs, "refused", Retry(first=0.01, never=(ValueError,)))
        await until_state(jobs, refused, "dead")
        other = await enqueue(jobs, "other", Retry(never=(KeyError,)))
        await until_state(jobs, other, "retrying")
    record = await jobs.get(refused)
    assert record.attempts == 1
    assert json.loads(record.error) == {"type": "ValueError", "message": "never again"}


async def test_a_worker_ends_though_its_function_does_not(real, monkeypatch):
    monkeypatch.setattr(worker_module, "_CANCEL_PATIENCE_S", 0.1)
    jobs, began, go = real[2], asyncio.Event(), asyncio.Event()

    async def work(_):
        began.set()
        while not go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await go.wait()
        return "too late"

    async with working(real, work, grace=0.1) as (client, worker, running):
        item = await client.enqueue("mail", 1)
        await asyncio.wait_for(began.wait(), 10)
        worker.stop()
        await asyncio.wait_for(running, 5)
        assert (await jobs.get(item)).state == "ready"
        go.set()
        await asyncio.sleep(0.1)
    record = await jobs.get(item)
    assert (record.state, record.attempts, worker.done) == ("ready", 0, 0)


class _PausedClock(SystemClock):
    """The machine's clock, as a process sees it that stood still for a while."""

    stood_still_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stood_still_s


async def test_a_function_does_not_begin_after_the_deadline_of_its_claim(real):
    url, token, _ = real
    clock, claims, ran_at = _PausedClock(), [], []
    loop = asyncio.get_running_loop()

    def make_task(loop, coroutine, **options):
        if coroutine.__qualname__.endswith("._handle"):
            claims.append(coroutine)
            if len(claims) == 1:
                clock.stood_still_s = 3600.0
        return asyncio.Task(coroutine, loop=loop, **options)

    async def work(_):
        ran_at.append(len(claims))

    async with Client(url, token, worker_id="w1", ttl=30, runtime=Runtime(clock=clock)) as client:
        await client.enqueue("mail", "late")
        worker = HttpWorker(client, ["mail"], work)
        loop.set_task_factory(make_task)
        running = asyncio.create_task(worker.run())
        await until(lambda: worker.done == 1)
        worker.stop()
        await asyncio.wait_for(running, 20)
    assert ran_at == [2]
