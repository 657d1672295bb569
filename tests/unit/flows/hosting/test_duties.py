"""A host that runs for the length of a block, and what is defined while it does."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

import holdfast
from holdfast import App, blocking
from holdfast.errors import UsageError
from tests.unit.bodies import stay
from tests.unit.work.conftest import until


def _flow_of(app: App, name: str = "flow"):
    @app.step(name=f"{name}-step")
    async def step() -> str:
        return name

    @app.flow(name=name)
    async def flow() -> str:
        return await step()

    return flow


# -- running -----------------------------------------------------------------------------------


async def test_a_flow_that_is_started_in_the_block_begins_here_at_once(fleet):
    app = App("a")
    flow = _flow_of(app)
    hf = await fleet.host("one", app=app)
    async with hf.running() as same:
        assert same is hf
        handle = await hf.flows.start(flow)
        assert hf._desk.runs_here(handle.id)
        assert await handle.result(timeout=5) == "flow"
    # Nothing is claimed behind it, and it can be run again.
    waits = await hf.flows.start(flow)
    assert not hf._desk.runs_here(waits.id)
    async with hf.running():
        assert await waits.result(timeout=5) == "flow"


async def test_the_end_of_the_block_waits_for_steps_that_run(fleet):
    app, ended = App("a"), []

    @app.step
    async def step() -> None:
        await asyncio.sleep(0.1)
        ended.append(True)

    @app.flow
    async def flow() -> None:
        await step()

    hf = await fleet.host("one", app=app)
    async with hf.running():
        handle = await hf.flows.start(flow)
        await until(lambda: hf._desk.host.home.lives[handle.id].steps.running)
    assert ended == [True]
    assert len(await handle.history()) == 1


async def test_a_block_that_raises_does_not_wait_for_the_grace(fleet):
    app, seen = App("a"), []

    @app.step
    async def step() -> None:
        await stay(seen)

    @app.flow
    async def flow() -> None:
        await step()

    hf = await fleet.host("one", app=app)
    with pytest.raises(ValueError, match="mine"):
        async with asyncio.timeout(10), hf.running():
            handle = await hf.flows.start(flow)
            await until(lambda: hf._desk.host.home.lives[handle.id].steps.running)
            raise ValueError("mine")
    assert seen == ["began", "cancelled"]
    async with hf.running(grace=0):
        pass


async def test_a_host_runs_once_at_a_time_and_only_with_an_app(fleet):
    hf = await fleet.host("one", app=App("a"))
    async with hf.running():
        with pytest.raises(UsageError, match="runs already"):
            await hf.run()
        with pytest.raises(UsageError, match="runs already"):
            async with hf.running():
                pass
    looker = await fleet.host("two")
    with pytest.raises(UsageError, match="connect with app="):
        async with looker.running():
            pass


async def test_a_role_that_fails_cancels_the_block_and_is_raised(fleet):
    app = App("a")

    @app.leader("key", ttl=1, nonsense=True)
    async def lead(lease: holdfast.Lease) -> None: ...

    hf = await fleet.host("one", app=app)
    with pytest.raises((UsageError, TypeError), match="nonsense"):
        async with asyncio.timeout(10), hf.running():
            await asyncio.sleep(60)
    assert not asyncio.current_task().cancelling()


def test_the_facade_runs_for_the_length_of_a_block():
    app = App("a")
    flow = _flow_of(app)
    with blocking.connect("memory://running-facade", app=app) as hf:
        with hf.running():
            assert hf.flows.start(flow).result(timeout=5) == "flow"
        with pytest.raises(ValueError, match="mine"), hf.running():
            raise ValueError("mine")


# -- what is defined meanwhile -------------------------------------------------------------------


async def test_a_flow_that_is_defined_while_the_host_runs_is_run(fleet):
    app = App("a")
    _flow_of(app, "first")
    hf, _ = await fleet.run(app)
    # Started elsewhere before anybody here knew of it.
    other = await fleet.host("other")
    early = await other.flows.start("second", {}, id="early")
    second = _flow_of(app, "second")
    async with asyncio.timeout(2):
        assert await early.result() == "second"
        assert await (await hf.flows.start(second)).result() == "second"


async def test_a_first_flow_may_come_late_and_from_another_thread(fleet):
    app = App("a")
    hf = await fleet.host("one", app=app)
    async with hf.running():
        handle = await hf.flows.start("late", {})
        thread = threading.Thread(target=lambda: _flow_of(app, "late"))
        thread.start()
        thread.join()
        assert await handle.result(timeout=2) == "late"
    assert not app._running()


async def test_what_no_host_would_run_is_refused(fleet):
    app = App("a")
    hf = await fleet.host("one", app=app)
    definitions = {
        "handler": lambda: app.handler("q")(lambda payload: payload),
        "leader": lambda: app.leader("key")(_lead),
        "every": lambda: app.every(60, key="tick")(_tick),
        "cron": lambda: app.cron("@daily", key="day")(_tick),
        "step": lambda: app.step(queue="q")(_tick),
    }
    async with hf.running():
        for define in definitions.values():
            with pytest.raises(UsageError, match="before run"):
                define()
    assert [app.handlers, app.leaders, app.periodics, app.crons, app.steps] == [{}] * 5
    for define in definitions.values():
        if define is not definitions["step"]:
            define()


async def _lead(lease: holdfast.Lease) -> None: ...


async def _tick() -> None: ...


# -- signals -----------------------------------------------------------------------------------


async def test_the_first_signal_leaves_a_host_that_stops_already_its_grace(fleet):
    app, began, release = App("a"), asyncio.Event(), asyncio.Event()

    @app.step
    async def step() -> str:
        began.set()
        await release.wait()
        return "ended"

    @app.flow
    async def flow() -> str:
        return await step()

    hf = await fleet.host("one", app=app)
    running = asyncio.create_task(hf.run(grace=60))
    await until(lambda: hf._desk.host is not None and hf._desk.host.open)
    handle = await hf.flows.start(flow)
    await began.wait()
    hf.stop()
    await until(lambda: hf._duties._stopping)
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: hf._duties._signalled)
    await asyncio.sleep(0)
    assert not hf._duties._hurry.is_set()
    release.set()
    await asyncio.wait_for(running, 10)
    (row,) = await handle.history()
    assert [event.step for event in row.events] == ["step#0"]
