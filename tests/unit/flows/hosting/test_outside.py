"""What flow code asks of a connection is refused before anything is sent, and the fix is named."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import App, blocking
from holdfast.errors import FlowFailed

ASKED = {
    "flows": (lambda hf: hf.flows.start("child", id="c"), "call the flow itself"),
    "leases": (lambda hf: hf.leases.acquire("key"), "hold the lease in a step"),
    "hold": (lambda hf: hf.leases.hold("key").__aenter__(), "hold the lease in a step"),
    "work": (lambda hf: hf.work.enqueue("q", 1), "call a step with queue="),
    "schedules": (lambda hf: hf.schedules.delete("s"), "do it in a step"),
    "run": (lambda hf: hf.run(), "do it in a step"),
    "close": (lambda hf: hf.close(), "do it in a step"),
    "health": (lambda hf: hf.health(), "do it in a step"),
    "connect": (lambda _: holdfast.connect("memory://"), "do it in a step"),
    "blocking": (lambda _: blocking.connect("memory://"), "do it in a step"),
}


@pytest.mark.parametrize("asked", ASKED)
async def test_flow_code_is_told_what_to_do_instead(fleet, asked):
    app = App("a")
    ask, instead = ASKED[asked]

    @app.flow
    async def child() -> None: ...

    @app.flow
    async def flow() -> None:
        await ask(hf)

    hf, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match=instead) as caught:
        await (await hf.flows.start(flow)).result(timeout=5)
    assert caught.value.type == "holdfast.errors.UsageError"
    assert not await hf.flows.list(prefix="c")
    assert await hf.leases.get("key") is None


async def test_what_was_taken_along_is_refused_too(fleet):
    app, said = App("a"), []

    @app.flow
    async def other() -> None:
        await holdfast.wait_signal("go")

    @app.flow
    async def flow() -> None:
        for ask in (
            lambda: flows.start(other, id="never"),
            lambda: handle.signal("go"),
            handle.result,
            lambda: leases.try_acquire("key"),
            lambda: work.enqueue("q", 1),
        ):
            try:
                await ask()
            except holdfast.UsageError as error:
                said.append(str(error))

    hf, _ = await fleet.run(app)
    flows, leases, work = hf.flows, hf.leases, hf.work
    handle = await hf.flows.start(other, id="other")
    await (await hf.flows.start(flow)).result(timeout=5)
    assert len(said) == 5
    assert all(each.startswith("flow code cannot use ") for each in said)
    assert [each.id for each in await hf.flows.list(name="other")] == ["other"]
    assert await work.count() == 0


async def test_a_step_may_ask_for_anything(fleet):
    app = App("a")

    @app.flow
    async def child() -> str:
        return "c"

    @app.step
    async def ask() -> str:
        async with hf.leases.hold("key"):
            handle = await hf.flows.start(child)
            return await handle.result(timeout=5)

    @app.flow
    async def flow() -> str:
        return await ask()

    hf, _ = await fleet.run(app)
    async with asyncio.timeout(10):
        assert await (await hf.flows.start(flow)).result() == "c"
