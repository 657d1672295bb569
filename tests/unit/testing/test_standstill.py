"""What a world takes for a story that can never end, and what goes on by itself."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive.testing import World, standstill
from outlive.testing.loop import Deadlock

LIMIT_S = 600.0

# Far longer than nothing may happen.
LATER_S = 3600.0


def make_app() -> outlive.App:
    app = outlive.App("still")

    @app.flow
    async def waits() -> str:
        return await outlive.wait_signal("go", str)

    @app.flow
    async def sleeps() -> str:
        await asyncio.sleep(LATER_S)
        return "slept"

    return app


@pytest.fixture
def world() -> World:
    world = World(limit=LIMIT_S)
    # Some ten times what these stories take: one that does not end fails soon.
    world.simulation.loop.steps_max = 200_000
    return world


@pytest.fixture
def _small_pages(monkeypatch):
    monkeypatch.setattr(standstill, "_PAGE", 2)


@pytest.mark.usefixtures("_small_pages")
@pytest.mark.parametrize("waiting", [2, 3, 4])
def test_a_flow_that_goes_on_counts_however_many_wait_before_it(world, waiting):
    async def story(world: World) -> str:
        await world.serve(make_app())
        async with await world.connect() as host:
            for _ in range(waiting):
                await host.flows.start("waits")
            return await (await host.flows.start("sleeps")).result()

    assert world.run(story) == "slept"


@pytest.mark.usefixtures("_small_pages")
def test_a_job_that_is_due_later_counts_however_many_wait_before_it(world):
    app = make_app()

    @app.handler("later")
    async def later(_: None) -> str:
        return "done"

    async def story(world: World) -> str:
        await world.serve(app)
        async with await world.connect() as host:
            for _ in range(2):
                await host.work.enqueue("nobody", None)
            return await (await host.work.enqueue("later", None, delay=LATER_S)).result()

    assert world.run(story) == "done"


@pytest.mark.usefixtures("_small_pages")
def test_more_than_a_page_of_flows_that_wait_stand_still(world):
    async def story(world: World) -> None:
        await world.serve(make_app())
        async with await world.connect() as host:
            handles = [await host.flows.start("waits", id=f"w{n}") for n in range(5)]
            await handles[0].result()

    with pytest.raises(Deadlock, match=r"(?s)'w0' of 'waits' waits for signal 'go'.*'w4' of"):
        world.run(story)


async def signalled(world: World, app: outlive.App, hosts: list[outlive.Host]) -> str:
    """Wait for a flow that something in ``app`` signals, through what is in ``hosts``."""
    await world.serve(app)
    async with await world.connect() as host:
        hosts.append(host)
        return await (await host.flows.start("waits", id="w")).result()


@pytest.mark.parametrize("by", ["cron", "every", "leader"])
def test_what_an_app_does_at_its_time_may_be_what_a_flow_waits_for(world, by):
    app, hosts = make_app(), list[outlive.Host]()

    async def act(*_: object) -> None:
        await hosts[0].flows.get("w").signal("go", by)

    if by == "cron":
        # The world begins at noon.
        app.cron("0 13 * * *", key="act")(act)
    elif by == "every":
        app.every(LATER_S, key="act")(act)
    else:

        @app.leader("act")
        async def lead(lease: outlive.Lease) -> None:
            await asyncio.sleep(LATER_S)
            await act(lease)

    assert world.run(lambda world: signalled(world, app, hosts)) == by


def test_a_schedule_that_ticks_whenever_the_world_looks_goes_on(world):
    app, hosts, ticks = make_app(), list[outlive.Host](), list[object]()

    # Ten looks are within the limit.
    @app.cron("* * * * *")
    async def act(tick: object) -> None:
        ticks.append(tick)
        if len(ticks) == 15:
            await hosts[0].flows.get("w").signal("go", "on")

    assert world.run(lambda world: signalled(world, app, hosts)) == "on"


def test_what_is_paused_or_has_crashed_does_nothing_any_more(world):
    app = make_app()

    @app.every(LATER_S)
    async def rarely() -> None: ...

    async def story(world: World) -> None:
        await world.serve(app, "ticks")
        await world.serve(make_app(), "runs")
        async with await world.connect() as host:
            await host.schedules.create("nightly", "nobody", cron="@daily")
            await host.schedules.pause("nightly")
            handle = await host.flows.start("waits", id="w")
            world.crash("ticks")
            await handle.result()

    with pytest.raises(Deadlock, match="'w' of 'waits' waits for signal 'go'"):
        world.run(story)
    assert world.simulation.now < 2 * LIMIT_S


async def wait_for_ever(world: World) -> None:
    await asyncio.Event().wait()


async def wait_unconnected(world: World) -> None:
    async with await world.connect() as host:
        await host.flows.start("waits", id="w")
    await wait_for_ever(world)


@pytest.mark.parametrize(
    ("story", "said"),
    [
        (wait_for_ever, "does not end:\nwhere its code waits:"),
        (wait_unconnected, "  flow 'w' of 'waits' is taken by no host\nno host has an app"),
    ],
)
def test_a_story_in_which_nobody_has_anything_to_do_ends_at_once(story, said):
    world = World()
    world.simulation.loop.steps_max = 1000
    with pytest.raises(Deadlock, match="nothing is ready and nothing is scheduled") as caught:
        world.run(story)
    assert said in str(caught.value)
    assert f"story#0/story at {story.__name__}" in str(caught.value)
