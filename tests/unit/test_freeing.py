"""What has ended is freed at once: nothing of it waits for a search for cycles.

That search runs by itself, whenever so many objects were made, and then stops everything. What is
left to it costs every user of the process, and memory until it comes.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import outlive
from outlive import App, FlowOptions
from tests.unit.work.conftest import Fleet, fleet, until  # noqa: F401 - the fixture

ROUNDS = 5


@contextmanager
def left_over() -> Generator[Counter[str], None, None]:
    """Counts our objects that were in a cycle when nobody needed them any more."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found.update(
            type(each).__name__
            for each in gc.garbage
            if type(each).__module__.startswith(("outlive", "_asyncio"))
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_cycles_are_found() -> None:
    class Knot:
        pass

    Knot.__module__ = "outlive"
    with left_over() as found:
        knot = Knot()
        knot.knot = knot
        del knot
    assert found == {"Knot": 1}


def flows_of(app: App):
    @app.step
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    @app.step
    def double(a: int) -> int:
        return a * 2

    @app.step(timeout=30.0, heartbeat=20.0, concurrency=1)
    async def guarded(a: int) -> int:
        outlive.current().heartbeat(a)
        return a

    @app.flow
    async def steps() -> int:
        return await add(1, 2)

    @app.flow
    async def threads() -> int:
        return await double(await guarded(3))

    @app.flow
    async def fan() -> int:
        return sum(await asyncio.gather(*(add(k, k) for k in range(5))))

    @app.flow
    async def timers() -> None:
        async with asyncio.timeout(60):
            await asyncio.sleep(0.01)

    @app.flow
    async def parents() -> int:
        return await steps()

    @app.flow
    async def first_of() -> int:
        waits = [asyncio.create_task(asyncio.sleep(60)), asyncio.create_task(asyncio.sleep(0.01))]
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        return len(done)

    return {flow.name: flow for flow in (steps, threads, fan, timers, parents, first_of)}


def catching_flows_of(app: App):
    @app.step
    async def refuse(a: int) -> int:
        await asyncio.sleep(0)
        raise ValueError(a)

    @app.flow
    async def catches() -> None:
        results = await asyncio.gather(refuse(1), refuse(2), return_exceptions=True)
        with pytest.raises(outlive.StepFailed):
            await refuse(len(results))

    @app.flow
    async def times_out() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(60), 0.01)

    return {flow.name: flow for flow in (catches, times_out)}


@pytest.mark.parametrize(
    "name",
    ["steps", "threads", "fan", "timers", "parents", "first_of", "catches", "times_out"],
)
async def test_nothing_of_a_flow_that_ended_is_left(fleet: Fleet, name: str) -> None:  # noqa: F811
    app = App("a")
    flow = (flows_of(app) | catching_flows_of(app))[name]
    host, _ = await fleet.run(app)
    await (await host.flows.start(flow)).result(timeout=5)
    await settle()
    with left_over() as found:
        for _ in range(ROUNDS):
            await (await host.flows.start(flow)).result(timeout=5)
        await settle()
    assert not found


@pytest.mark.parametrize("kind", ["code", "task", "step", "child"])
async def test_nothing_of_a_flow_that_failed_is_left(fleet: Fleet, kind: str) -> None:  # noqa: F811
    app = App("a")

    @app.step
    async def refuse() -> None:
        raise ValueError

    async def waits() -> None:
        await asyncio.sleep(0.01)
        raise ValueError

    @app.flow
    async def inner() -> None:
        await refuse()

    @app.flow
    async def failing() -> None:
        if kind == "code":
            raise ValueError
        await {"task": lambda: asyncio.gather(waits(), waits()), "step": refuse, "child": inner}[
            kind
        ]()

    host, _ = await fleet.run(app)

    async def fail() -> None:
        with pytest.raises(outlive.FlowFailed):
            await (await host.flows.start(failing)).result(timeout=5)

    await fail()
    await settle()
    with left_over() as found:
        for _ in range(ROUNDS):
            await fail()
        await settle()
    assert not found


async def test_nothing_of_a_transactional_step_is_left(tmp_path: Path) -> None:
    app = App("a")

    @app.step(transactional=True)
    def put(number: int) -> int:
        return number

    @app.flow
    async def putting(number: int) -> int:
        return await put(number)

    async with (
        outlive.connect(f"sqlite:///{tmp_path}/a.db", app=app) as host,
        host.running(),
    ):
        await (await host.flows.start(putting, 0)).result(timeout=5)
        await settle()
        with left_over() as found:
            for number in range(ROUNDS):
                await (await host.flows.start(putting, number)).result(timeout=5)
            # The writer lets go of the last transaction when it is asked for something else.
            assert await host.flows.list(limit=1)
            await settle()
    assert not found


async def test_nothing_of_a_flow_that_was_let_go_is_left(fleet: Fleet) -> None:  # noqa: F811
    app = App("a")

    @app.flow
    async def waiting() -> str:
        return await outlive.wait_signal("go", str)

    host, _ = await fleet.run(app, flows=FlowOptions(park_grace=0.02))

    async def parked() -> None:
        handle = await host.flows.start(waiting)
        await until(
            lambda: host._desk.host is not None and handle.id not in host._desk.host.home.lives
        )

    await parked()
    with left_over() as found:
        for _ in range(ROUNDS):
            await parked()
        await settle()
    assert not found


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_nothing_of_a_job_that_ended_is_left(fleet: Fleet, kind: str) -> None:  # noqa: F811
    app = App("a")

    @app.handler("async")
    async def awaited(number: int) -> int:
        await asyncio.sleep(0)
        return number

    @app.handler("sync", timeout=30.0)
    def threaded(number: int) -> int:
        time.sleep(0)
        return number

    handler = awaited if kind == "async" else threaded
    host, _ = await fleet.run(app)
    await (await host.work.enqueue(handler, 1)).result(timeout=5)
    await settle()
    with left_over() as found:
        for number in range(ROUNDS):
            assert await (await host.work.enqueue(handler, number)).result(timeout=5) == number
        await settle()
    assert not found


async def test_nothing_of_a_flow_that_was_cancelled_is_left(fleet: Fleet) -> None:  # noqa: F811
    app = App("a")
    begun: list[bool] = []

    @app.flow
    async def endless() -> None:
        begun.append(True)
        await asyncio.gather(outlive.wait_signal("go", str), asyncio.sleep(60))

    host, _ = await fleet.run(app)

    async def cancelled() -> None:
        handle = await host.flows.start(endless)
        await until(lambda: begun and begun.pop())
        await handle.cancel("no")
        with pytest.raises(outlive.FlowCancelled):
            await handle.result(timeout=5)

    await cancelled()
    await settle()
    with left_over() as found:
        for _ in range(ROUNDS):
            await cancelled()
        await settle()
    assert not found


async def test_nothing_of_a_lease_that_ended_is_left(fleet: Fleet) -> None:  # noqa: F811
    host = await fleet.host()
    async with host.leases.hold("key"):
        pass
    with left_over() as found:
        for _ in range(ROUNDS):
            async with host.leases.hold("key"):
                pass
        await settle()
    assert not found
