"""Flows that were stuck and are not any more: nothing says so of them, whatever they wait for."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App
from outlive.testing import World


def make_app(*, fits: bool) -> App:
    """Code that did ``one``, or code that finds a history of it and asks for ``two``."""
    app = App("repaired")

    @app.step
    async def one() -> int:
        return 1

    @app.step
    async def two() -> int:
        return 2

    @app.step
    async def long() -> None:
        await asyncio.sleep(7200)

    @app.flow
    async def waits() -> str:
        await (one if fits else two)()
        return await outlive.wait_signal("go", str)

    @app.flow
    async def naps() -> str:
        await (one if fits else two)()
        await asyncio.sleep(3 * 86_400)
        return "slept"

    @app.flow
    async def works() -> str:
        await (one if fits else two)()
        await long()
        return "worked"

    return app


async def get_stuck(world, name):
    """A flow that two hosts left behind, the second of which had the wrong code."""
    await world.serve(make_app(fits=True), "right")
    host = await world.connect()
    handle = await host.flows.start(name, id="f")
    # Not yet parked: whoever takes it over replays it.
    await asyncio.sleep(2)
    world.crash("right")
    await world.serve(make_app(fits=False), "wrong")
    await asyncio.sleep(120)
    assert "NonDeterminism" in (await handle.status()).stuck
    assert [each.id for each in await host.flows.list(stuck=True)] == ["f"]
    return host, handle


@pytest.mark.parametrize("name", ["waits", "naps", "works"])
def test_a_repaired_flow_is_not_stuck_while_it_waits(name):
    async def story(world):
        host, handle = await get_stuck(world, name)
        world.crash("wrong")
        await world.serve(make_app(fits=True), "right again")
        await asyncio.sleep(120)
        assert (await handle.status()).stuck is None
        assert await host.flows.list(stuck=True) == []
        if name == "waits":
            await handle.signal("go", "went")
        return await handle.result()

    assert World().run(story) in {"went", "slept", "worked"}


def test_a_flow_that_is_stuck_once_more_for_the_same_reason_says_so():
    """A host of the wrong release does not take for written what another has wiped out."""

    async def story(world):
        host, handle = await get_stuck(world, "waits")
        await world.serve(make_app(fits=True), "right again")
        await asyncio.sleep(600)
        assert (await handle.status()).stuck is None
        world.crash("right again")
        await asyncio.sleep(300)
        await handle.signal("other", "wakes it")
        await asyncio.sleep(300)
        return (await handle.status()).stuck, await host.flows.count(stuck=True)

    stuck, count = World().run(story)
    assert "NonDeterminism" in stuck
    assert count == {"running": 1}


def test_a_copy_of_a_stuck_flow_is_not_stuck():
    async def story(world):
        host, handle = await get_stuck(world, "waits")
        await handle.fork(at=0, id="copy")
        return (await host.flows.get("copy").status()).attributes

    assert World().run(story) == {}
