"""Steps of one key: in order, and to their end."""

from __future__ import annotations

import asyncio

import pytest

from outlive.drivers.azblob.turns import Turns
from outlive.errors import StoreUnavailable

pytestmark = pytest.mark.whitebox


async def test_steps_of_one_key_run_in_turn_and_others_beside_them():
    turns, order = Turns(abandons=False), []
    gate = asyncio.Event()

    async def step(name: str, *, wait: bool = False) -> None:
        if wait:
            await gate.wait()
        order.append(name)

    first = asyncio.ensure_future(turns.run("k", lambda: step("first", wait=True)))
    second = asyncio.ensure_future(turns.run("k", lambda: step("second")))
    await turns.run("other", lambda: step("other"))
    gate.set()
    await asyncio.gather(first, second)
    assert order == ["other", "first", "second"]


async def test_a_cancelled_caller_does_not_stop_its_step():
    turns, done = Turns(abandons=False), []
    gate = asyncio.Event()

    async def step() -> None:
        await gate.wait()
        done.append(True)

    caller = asyncio.ensure_future(turns.run("k", step))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    gate.set()
    await turns.run("k", lambda: asyncio.sleep(0))
    assert done == [True]


async def test_a_step_that_fails_does_not_stop_the_next():
    turns = Turns(abandons=False)

    async def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):
        await turns.run("k", fail)
    assert await turns.run("k", lambda: asyncio.sleep(0, "fine")) == "fine"


async def test_a_keeper_gives_its_step_up_at_once():
    turns, ended = Turns(abandons=True), []

    async def step() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    caller = asyncio.ensure_future(turns.run("k", step))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == [True]


async def test_closing_tells_those_who_wait():
    turns = Turns(abandons=False)
    waiting = [asyncio.ensure_future(turns.run("k", asyncio.Event().wait)) for _ in range(2)]
    await asyncio.sleep(0)
    await turns.close()
    await turns.close()
    for caller in waiting:
        with pytest.raises(StoreUnavailable):
            await caller
