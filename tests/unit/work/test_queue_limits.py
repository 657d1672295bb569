"""Limits of queues: what handlers declare, what operators set, and which of them holds."""

from __future__ import annotations

import asyncio

from outlive import App, LimitsBy
from tests.unit.work.conftest import until


async def test_limits_of_the_fleet_are_declared_by_handlers(fleet):
    app = App("a")

    @app.handler("q", concurrency=10, queue_concurrency=2, rate=(1000, 60))
    async def handle(payload: int) -> None:
        await asyncio.sleep(0.02)

    host, _ = await fleet.run(app)
    jobs = await host.work.enqueue_many(handle, range(6))
    await asyncio.gather(*(job.result(timeout=20) for job in jobs))
    (queue,) = await host.work.queues()
    assert (queue.concurrency, queue.rate, queue.per_s) == (2, 1000, 60.0)


async def test_what_an_operator_set_stays_when_a_worker_starts(fleet, caplog):
    app = App("a")

    @app.handler("q", queue_concurrency=5, rate=(7, 2))
    async def handle(payload: int) -> int:
        return payload

    looker = await fleet.host()
    await looker.work.limit("q", concurrency=1)
    await looker.work.drain("q")
    await fleet.run(app)
    told = "(1 concurrent), not the limits of its handler (5 concurrent, 7 in 2 s)"
    await until(lambda: told in caplog.text)
    (queue,) = await looker.work.queues()
    # The rate that the operator left out is none.
    assert (queue.mode, queue.concurrency, queue.rate) == ("draining", 1, None)
    assert queue.limits_by is LimitsBy.OPERATOR
    # Lifted, they are the handler's again as soon as a worker starts.
    await looker.work.limit("q")
    (queue,) = await looker.work.queues()
    assert (queue.mode, queue.concurrency, queue.limits_by) == ("draining", None, None)
    await fleet.run(app, "another")
    await until(lambda: _limited(looker, 5))
    (queue,) = await looker.work.queues()
    assert (queue.rate, queue.per_s, queue.limits_by) == (7, 2.0, LimitsBy.HANDLER)
    assert caplog.text.count("not the limits of its handler") == 1


async def test_a_changed_declaration_holds_when_a_worker_starts(fleet, caplog):
    looker = await fleet.host()
    for number, declared in enumerate(
        ({"queue_concurrency": 5, "rate": 7}, {"queue_concurrency": 9}, {}, {"rate": (3, 60)})
    ):
        app = App("a")

        @app.handler("q", **declared)
        async def handle(payload: int) -> int:
            return payload

        host = await fleet.host(f"w{number}", app=app)
        async with host.running():
            assert await (await host.work.enqueue(handle, number)).result(timeout=20) == number
        (queue,) = await looker.work.queues()
        # Whoever declares nothing leaves what is there.
        assert (queue.concurrency, queue.rate) == ((5, 7), (9, None), (9, None), (None, 3))[number]
        assert queue.limits_by is LimitsBy.HANDLER
    assert caplog.messages == []


async def test_a_pause_while_a_worker_starts_is_not_lost(fleet, monkeypatch):
    app = App("a")

    @app.handler("q", queue_concurrency=5)
    async def handle(payload: int) -> None: ...

    looker = await fleet.host()
    host = await fleet.host("worker", app=app)
    put = host.work.store.put_queue

    async def paused_meanwhile(*args, **kwargs):
        await looker.work.pause("q")
        await put(*args, **kwargs)

    monkeypatch.setattr(host.work.store, "put_queue", paused_meanwhile)
    async with host.running():
        await until(lambda: _limited(looker, 5))
    assert (await looker.work.queues())[0].mode == "paused"


async def _limited(host, concurrency):
    return [queue.concurrency for queue in await host.work.queues()] == [concurrency]


async def test_jobs_that_wait_for_their_concurrency_key_use_up_no_rate(fleet):
    app = App("a")
    free, ran = asyncio.Event(), []

    @app.handler("q", rate=(4, 3600), concurrency_key=lambda name: name[0])
    async def handle(name: str) -> None:
        if name == "a0":
            await free.wait()
        ran.append(name)

    host, _ = await fleet.run(app)
    await host.work.enqueue_many(handle, ["a0", "a1", "a2", "a3", "a4", "b", "c", "d"])
    # With the one that runs they are all that the rate lets through.
    await until(lambda: sorted(ran) == ["b", "c", "d"])
    free.set()
    await until(lambda: "a0" in ran)
