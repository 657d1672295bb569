"""Steps that run elsewhere: in queues, and inside transactions; and flows by a timetable."""

from __future__ import annotations

import asyncio
import sqlite3

import pytest

import outlive
from outlive import App, Retry
from outlive.errors import StepFailed, UsageError
from tests.unit.bodies import stay
from tests.unit.work.conftest import until


async def test_a_step_with_a_queue_runs_on_any_host_that_has_it(fleet):
    flows, gpus = App("flows"), App("gpus")

    def define(app):
        @app.step(queue="gpu", retry=Retry(max_attempts=3, first=0.01))
        async def render(n: int) -> str:
            now = outlive.current()
            if now.attempt < 2:
                raise ValueError("again")
            return f"{n} by {now.host}, {now.flow} {now.step} {now.idempotency_key}"

        @app.step(queue="gpu")
        def refuse() -> None:
            raise ValueError("never")

        return render, refuse

    render, refuse = define(flows)
    define(gpus)

    @flows.flow
    async def flow() -> list[str]:
        found = [await render(7)]
        try:
            await refuse()
        except StepFailed as error:
            found.append(f"{error.type}: {error.message}")
        return found

    # The host of the flow has no slot for the queue, because it runs none of it.
    host = await fleet.host("flower", app=flows)
    host._handlers = list
    await fleet.go(host)
    handle = await host.flows.start(flow, id="f")
    await until(lambda: _waits(host, "gpu"))
    other = await fleet.host("gpu-1", app=gpus)
    running = asyncio.create_task(other.run())
    try:
        assert await handle.result(timeout=10) == [
            "7 by gpu-1, f render#0 f/render#0",
            "ValueError: never",
        ]
    finally:
        other.stop()
        await running


async def _waits(host, queue):
    return await host.work.count(queue=queue) == 1


async def test_a_cancelled_step_in_a_queue_is_cancelled_there(fleet):
    app, seen = App("a"), []

    @app.step(queue="slow")
    async def slow() -> None:
        await stay(seen)

    @app.flow
    async def flow() -> str:
        try:
            async with asyncio.timeout(0.1):
                await slow()
        except TimeoutError:
            return "late"
        return "no"

    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=5) == "late"
    await until(lambda: seen in ([], ["began", "cancelled"]))


async def test_a_queue_has_a_handler_or_steps_not_both(fleet):
    app = App("a")

    @app.handler("q")
    async def handle(payload: int) -> None: ...

    @app.step(queue="q")
    async def step() -> None: ...

    host = await fleet.host("a", app=app)
    with pytest.raises(UsageError, match="has both a handler and steps"):
        await host.run()


async def test_a_flow_starts_at_each_tick(fleet):
    app, seen = App("a"), []

    @app.step
    async def note(what: str) -> None:
        seen.append((what, outlive.current().flow))

    @app.flow
    async def report(what: str) -> None:
        await note(what)

    host, _ = await fleet.run(app)
    info = await host.flows.schedule("reports", report, "daily", every=1)
    assert info.every_s == 1
    await until(lambda: seen, 10)
    assert seen[0][0] == "daily"
    assert seen[0][1].startswith("reports@")


async def test_a_transactional_step_commits_with_its_record(tmp_path):
    app, path, tries = App("a"), tmp_path / "t.db", []

    @app.step(transactional=True, retry=Retry(max_attempts=3, first=0.01))
    def pay(amount: int) -> int:
        tx = outlive.current().tx
        tx.execute("INSERT INTO paid (amount) VALUES (?)", (amount,))
        tries.append(amount)
        if len(tries) == 1:
            raise ValueError("rolled back")
        return amount

    @app.flow
    async def flow() -> int:
        return await pay(5) + await pay(6)

    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE paid (amount INTEGER)")
    connection.close()
    async with outlive.connect(f"sqlite:///{path}", app=app) as host:
        running = asyncio.create_task(host.run())
        handle = await host.flows.start(flow)
        assert await handle.result(timeout=10) == 11
        host.stop()
        await running
    assert tries == [5, 5, 6]
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT amount FROM paid").fetchall() == [(5,), (6,)]
    connection.close()


async def test_a_flow_runs_on_sqlite_with_two_hosts(tmp_path):
    app = App("a")

    @app.step
    async def add(a: int, b: int) -> int:
        return a + b

    @app.flow
    async def total(n: int) -> int:
        found = 0
        for number in range(n):
            found = await add(found, number)
        await asyncio.sleep(0.01)
        return found + await outlive.wait_signal("more", int)

    url = f"sqlite:///{tmp_path / 't.db'}"
    async with (
        outlive.connect(url, app=app, name="one") as one,
        outlive.connect(url, app=app, name="two") as two,
    ):
        running = [asyncio.create_task(host.run()) for host in (one, two)]
        handles = await one.flows.start_many(total, range(20))
        for handle in handles:
            await two.flows.get(handle.id).signal("more", 1)
        found = [await handle.result(timeout=20) for handle in handles]
        assert found == [sum(range(n)) + 1 for n in range(20)]
        for host, task in zip((one, two), running, strict=True):
            host.stop()
            await task


@pytest.mark.parametrize("where", ["here", "inside of middleware", "in a queue"])
async def test_a_sync_step_that_stops_an_iteration_has_failed(fleet, where):
    app = App("a")
    if where == "inside of middleware":

        @app.middleware
        async def around(current, call):
            return await call()

    @app.step(queue="q" if where == "in a queue" else None, retry=Retry(max_attempts=1))
    def step() -> int:
        return next(iter([]))

    @app.flow
    async def flow() -> str:
        try:
            await step()
        except StepFailed as error:
            return f"{error.type}: {error.message}"
        return "no error"

    host, _ = await fleet.run(app)
    said = await (await host.flows.start(flow)).result(timeout=5)
    assert said == "RuntimeError: the function raised StopIteration"
