"""What steps say of themselves: to their next attempt, and to those who look."""

from __future__ import annotations

import asyncio

import outlive
from outlive import App, Retry, RunningStep
from tests.unit.work.conftest import until


def _copying(app: App, seen: list, **options):
    """A flow with a step that fails at its first attempt, after it said how far it came."""

    @app.step(retry=Retry(max_attempts=4, first=0.05, factor=1, jitter=0), **options)
    async def copy() -> int:
        now = outlive.current()
        seen.append((now.host, now.attempt, now.heartbeat_details))
        if now.attempt == 1:
            now.heartbeat({"rows": 1})
            now.heartbeat({"rows": 7})
            now.heartbeat()
            await asyncio.sleep(0.01)
        if now.attempt < 3:
            # The second says nothing: what the first said still counts.
            raise ValueError("again")
        return now.heartbeat_details["rows"]

    @app.flow
    async def flow() -> int:
        return await copy()

    return flow


async def test_the_next_attempt_knows_what_the_last_said(fleet):
    app, seen = App("a"), []
    flow = _copying(app, seen)
    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=10) == 7
    assert seen == [("worker", 1, None), ("worker", 2, {"rows": 7}), ("worker", 3, {"rows": 7})]


async def test_the_next_attempt_in_a_queue_knows_it_as_well(fleet):
    app, seen = App("a"), []
    flow = _copying(app, seen, queue="copies")
    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=10) == 7
    assert seen == [("worker", 1, None), ("worker", 2, {"rows": 7}), ("worker", 3, {"rows": 7})]


async def test_a_step_in_a_queue_that_moves_goes_on_where_it_was(fleet):
    app, seen, begun = App("a"), [], asyncio.Event()

    @app.step(queue="copies")
    async def copy() -> int:
        now = outlive.current()
        seen.append((now.host, now.heartbeat_details))
        if now.heartbeat_details is None:
            for row in range(5):
                now.heartbeat(row)
            begun.set()
            await asyncio.sleep(60)
        return now.heartbeat_details

    @app.flow
    async def flow() -> int:
        return await copy()

    one = await fleet.host("one", app=app)
    running = asyncio.create_task(one.run(grace=0.05))
    handle = await one.flows.start(flow, id="f")
    await begun.wait()
    two, _ = await fleet.run(app, "two")
    one.stop()
    await running
    assert await two.flows.get(handle.id).result(timeout=10) == 4
    assert seen == [("one", None), ("two", 4)]


async def test_details_go_with_the_flow_to_another_host(fleet):
    app, seen = App("a"), []
    flow = _copying(app, seen)
    one, running = await fleet.run(app, "one")
    handle = await one.flows.start(flow, id="f")
    await until(lambda: seen)
    two = await fleet.host("two", app=app)
    one.stop()
    await running
    await fleet.go(two)
    assert await two.flows.get(handle.id).result(timeout=10) == 7
    assert seen[0] == ("one", 1, None)
    assert {each[2]["rows"] for each in seen[1:]} == {7}
    assert seen[-1][0] == "two"


async def test_who_looks_on_the_same_host_sees_it(fleet):
    app, release = App("a"), asyncio.Event()

    @app.step
    async def copy() -> None:
        outlive.current().heartbeat("half way")
        await release.wait()

    @app.flow
    async def flow() -> None:
        await copy()

    host, _ = await fleet.run(app)
    other = await fleet.host("other", app=app)
    handle = await host.flows.start(flow, id="f")
    await until(lambda: host._desk.host.home.lives["f"].steps.running["copy#0"].current.beats)
    expected = (RunningStep(step="copy#0", attempt=1, details="half way"),)
    assert (await handle.status()).steps == expected
    assert (await other.flows.get("f").status()).steps is None
    release.set()
    await handle.result(timeout=5)
    assert (await handle.status()).steps is None
