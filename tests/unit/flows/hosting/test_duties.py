"""A host that runs for the length of a block, and what is defined while it does."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

import outlive
from outlive import App, blocking
from outlive.errors import UsageError
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
    host = await fleet.host("one", app=app)
    async with host.running() as same:
        assert same is host
        handle = await host.flows.start(flow)
        assert host._desk.runs_here(handle.id)
        assert await handle.result(timeout=5) == "flow"
    # Nothing is claimed behind it, and it can be run again.
    waits = await host.flows.start(flow)
    assert not host._desk.runs_here(waits.id)
    async with host.running():
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

    host = await fleet.host("one", app=app)
    async with host.running():
        handle = await host.flows.start(flow)
        await until(lambda: host._desk.host.home.lives[handle.id].steps.running)
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

    host = await fleet.host("one", app=app)
    with pytest.raises(ValueError, match="mine"):
        async with asyncio.timeout(10), host.running():
            handle = await host.flows.start(flow)
            await until(lambda: host._desk.host.home.lives[handle.id].steps.running)
            raise ValueError("mine")
    assert seen == ["began", "cancelled"]
    async with host.running(grace=0):
        pass


async def test_a_host_runs_once_at_a_time_and_only_with_an_app(fleet):
    host = await fleet.host("one", app=App("a"))
    async with host.running():
        with pytest.raises(UsageError, match="is already running"):
            await host.run()
        with pytest.raises(UsageError, match="is already running"):
            async with host.running():
                pass
    looker = await fleet.host("two")
    with pytest.raises(UsageError, match="pass an App to connect"):
        async with looker.running():
            pass


async def test_a_role_that_fails_cancels_the_block_and_is_raised(fleet):
    app = App("a")

    @app.leader("key", ttl=1, nonsense=True)
    async def lead(lease: outlive.Lease) -> None: ...

    host = await fleet.host("one", app=app)
    with pytest.raises((UsageError, TypeError), match="nonsense"):
        async with asyncio.timeout(10), host.running():
            await asyncio.sleep(60)
    assert not asyncio.current_task().cancelling()


def test_the_facade_runs_for_the_length_of_a_block():
    app = App("a")
    flow = _flow_of(app)
    with blocking.connect("memory://running-facade", app=app) as host:
        with host.running():
            assert host.flows.start(flow).result(timeout=5) == "flow"
        with pytest.raises(ValueError, match="mine"), host.running():
            raise ValueError("mine")


# -- what is defined meanwhile -------------------------------------------------------------------


async def test_a_flow_that_is_defined_while_the_host_runs_is_run(fleet):
    app = App("a")
    _flow_of(app, "first")
    host, _ = await fleet.run(app)
    # Started elsewhere before anybody here knew of it.
    other = await fleet.host("other")
    early = await other.flows.start("second", {}, id="early")
    second = _flow_of(app, "second")
    async with asyncio.timeout(2):
        assert await early.result() == "second"
        assert await (await host.flows.start(second)).result() == "second"


async def test_a_first_flow_may_come_late_and_from_another_thread(fleet):
    app = App("a")
    host = await fleet.host("one", app=app)
    async with host.running():
        handle = await host.flows.start("late", {})
        thread = threading.Thread(target=lambda: _flow_of(app, "late"))
        thread.start()
        thread.join()
        assert await handle.result(timeout=2) == "late"
    assert not app._running()


async def test_what_no_host_would_run_is_refused(fleet):
    app = App("a")
    host = await fleet.host("one", app=app)
    definitions = {
        "handler": lambda: app.handler("q")(lambda payload: payload),
        "leader": lambda: app.leader("key")(_lead),
        "every": lambda: app.every(60, key="tick")(_tick),
        "cron": lambda: app.cron("@daily", key="day")(_tick),
        "step": lambda: app.step(queue="q")(_tick),
    }
    async with host.running():
        for define in definitions.values():
            with pytest.raises(UsageError, match="before run"):
                define()
    assert [app.handlers, app.leaders, app.periodics, app.crons, app.steps] == [{}] * 5
    for define in definitions.values():
        if define is not definitions["step"]:
            define()


async def _lead(lease: outlive.Lease) -> None: ...


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

    host = await fleet.host("one", app=app)
    running = asyncio.create_task(host.run(grace=60))
    await until(lambda: host._desk.host is not None and host._desk.host.open)
    handle = await host.flows.start(flow)
    await began.wait()
    host.stop()
    await until(lambda: host._duties._stopping)
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: host._duties._signalled)
    await asyncio.sleep(0)
    assert not host._duties._hurry.is_set()
    release.set()
    await asyncio.wait_for(running, 10)
    (row,) = await handle.history()
    assert [event.step for event in row.events] == ["step#0"]
