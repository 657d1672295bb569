"""Flows that are to begin later: nothing begins them before, and a wish to cancel ends them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import outlive
from outlive import App, FlowCancelled, FlowTerminated
from outlive.errors import UsageError
from outlive.model.instance import LETTERS_MAX, InstanceStatus
from outlive.testing import World
from tests.unit.work.conftest import until


def greeting(app: App, ran: list[str]):
    @app.flow
    async def greets() -> str:
        ran.append("began")
        outlive.on_query("name")(lambda: "x")
        outlive.on_update("rename")(lambda name: name)
        try:
            return await outlive.wait_signal("hello", str)
        finally:
            ran.append("cleaned up")

    return greets


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_letters_wait_with_a_flow_until_it_is_due(tmp_path, url):
    app, ran = App("a"), []
    flow = greeting(app, ran)
    place = f"sqlite:///{tmp_path}/h.db" if url == "sqlite" else f"memory://delays-{tmp_path.name}"
    async with outlive.connect(place, app=app) as host:
        task = asyncio.create_task(host.run())
        await until(lambda: host._desk.host is not None and host._desk.host.open)
        handle = await host.flows.start(flow, delay=0.5)
        await handle.signal("hello", "you")
        with pytest.raises(TimeoutError):
            await handle.update("rename", "y", timeout=0.1)
        info = await handle.status()
        assert (info.status, ran) == (InstanceStatus.PENDING, [])
        assert await handle.result(timeout=5) == "you"
        assert ran == ["began", "cleaned up"]
        host.stop()
        await task


async def test_a_flow_that_is_cancelled_before_its_time_ends_at_once_and_never_begins(fleet):
    app, ran = App("a"), []
    flow = greeting(app, ran)
    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, delay=3600, id="f")
    await handle.signal("hello", "you")
    await handle.cancel("not needed")
    with pytest.raises(FlowCancelled, match="not needed"):
        await handle.result(timeout=5)
    assert ran == []
    # Replayed, it does the same, and answers nothing.
    with pytest.raises(UsageError, match="has no query"):
        await handle.query("name")
    assert ran == []
    (commit,) = await handle.history()
    assert [type(event).__name__ for event in commit.events] == ["CancelRequested", "Ended"]
    # Retried, it begins, as if nobody had cancelled it.
    await handle.retry()
    await until(lambda: ran == ["began"])
    await handle.signal("hello", "again")
    assert await handle.result(timeout=5) == "again"


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_a_wish_to_cancel_behind_many_letters_ends_a_flow_before_it_begins(tmp_path, url):
    app, ran = App("a"), []
    flow = greeting(app, ran)
    place = f"sqlite:///{tmp_path}/h.db" if url == "sqlite" else f"memory://wish-{tmp_path.name}"
    async with outlive.connect(place) as guest:
        handle = await guest.flows.start("greets", id="f", delay=3600)
        for number in range(2 * LETTERS_MAX):
            await handle.signal("hello", str(number))
        await handle.cancel("not needed")
        async with outlive.connect(place, app=app) as host, host.running():
            with pytest.raises(FlowCancelled, match="not needed"):
                await handle.result(timeout=10)
            assert ran == []
            # Without one, it begins when it is due, with the first letter.
            handle = await guest.flows.start("greets", id="g", delay=0.3)
            for number in range(LETTERS_MAX):
                await handle.signal("hello", str(number))
            assert await host.flows.get("g", flow).result(timeout=10) == "0"


async def test_a_flow_that_others_had_before_sees_that_it_is_cancelled(fleet):
    app, ran = App("a"), []
    flow = greeting(app, ran)
    one, stopped = await fleet.run(app, "one")
    handle = await one.flows.start(flow, id="f")
    await until(lambda: ran == ["began"])
    one.stop()
    await stopped
    outside = await fleet.host("outside")
    await outside.flows.get("f").cancel("enough")
    ran.clear()
    two, _ = await fleet.run(app, "two")
    with pytest.raises(FlowCancelled, match="enough"):
        await two.flows.get("f").result(timeout=5)
    assert ran == ["began", "cleaned up"]
    assert handle.id == "f"


@pytest.mark.parametrize("seconds", [0.2, 4, 6, 45, 90, 3000, 90_000])
@pytest.mark.parametrize("by", ["delay", "at", "delay of many"])
def test_a_flow_begins_at_its_time_on_a_host_that_has_nothing_to_do(seconds, by):
    app = App("a")

    @app.flow
    async def late() -> tuple[float, float]:
        began = outlive.now().timestamp()
        await asyncio.sleep(100)
        return began, outlive.now().timestamp()

    async def story(world: World) -> tuple[float, float]:
        await world.serve(app)
        async with await world.connect() as host:
            # The host has looked, and looks again in a minute.
            await asyncio.sleep(3)
            due = world.now + timedelta(seconds=seconds)
            if by == "at":
                handle = await host.flows.start(late, at=due)
            elif by == "delay":
                handle = await host.flows.start(late, delay=seconds)
            else:
                (handle,) = await host.flows.start_many(late, [()], delay=seconds)
            began, ended = await handle.result()
            return began - due.timestamp(), ended - due.timestamp()

    began, ended = World().run(story)
    # Its naps are counted from then on; clocks that drift are allowed for.
    assert 0 <= began < 0.5
    assert 100 <= ended < 101


@pytest.mark.parametrize("by", ["cancel", "terminate", "fork"])
def test_the_time_of_a_flow_that_begins_before_it_was_due_is_that_of_its_beginning(by):
    app = App("a")

    @app.flow
    async def naps() -> float:
        began = outlive.now()
        for _ in range(2):
            await asyncio.sleep(10)
        return (outlive.now() - began).total_seconds()

    async def story(world: World) -> tuple[float, float]:
        await world.serve(app)
        async with await world.connect() as host:
            handle = await host.flows.start(naps, delay=3600)
            if by == "fork":
                handle = await handle.fork(at=0)
            else:
                await getattr(handle, by)()
                with pytest.raises((FlowCancelled, FlowTerminated)):
                    await handle.result()
                await handle.retry()
            asked = world.now
            took = await handle.result()
            return took, (world.now - asked).total_seconds()

    took, passed = World().run(story)
    assert 20 <= took <= passed < 25
