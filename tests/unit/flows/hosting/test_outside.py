"""What flow code asks of a connection is refused before anything is sent, and the fix is named."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App, blocking
from outlive.errors import FlowFailed

ASKED = {
    "flows": (lambda host: host.flows.start("child", id="c"), "call the flow itself"),
    "leases": (lambda host: host.leases.acquire("key"), "hold the lease in a step"),
    "hold": (lambda host: host.leases.hold("key").__aenter__(), "hold the lease in a step"),
    "work": (lambda host: host.work.enqueue("q", 1), "call a step with queue="),
    "schedules": (lambda host: host.schedules.delete("s"), "do it in a step"),
    "run": (lambda host: host.run(), "do it in a step"),
    "close": (lambda host: host.close(), "do it in a step"),
    "health": (lambda host: host.health(), "do it in a step"),
    "connect": (lambda _: outlive.connect("memory://"), "do it in a step"),
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
        await ask(host)

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match=instead) as caught:
        await (await host.flows.start(flow)).result(timeout=5)
    assert caught.value.type == "outlive.errors.UsageError"
    assert not await host.flows.list(prefix="c")
    assert await host.leases.get("key") is None


async def test_what_was_taken_along_is_refused_too(fleet):
    app, said = App("a"), []

    @app.flow
    async def other() -> None:
        await outlive.wait_signal("go")

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
            except outlive.UsageError as error:
                said.append(str(error))

    host, _ = await fleet.run(app)
    flows, leases, work = host.flows, host.leases, host.work
    handle = await host.flows.start(other, id="other")
    await (await host.flows.start(flow)).result(timeout=5)
    assert len(said) == 5
    assert all(each.startswith("flow code cannot use ") for each in said)
    assert [each.id for each in await host.flows.list(name="other")] == ["other"]
    assert await work.count() == 0


async def test_a_step_may_ask_for_anything(fleet):
    app = App("a")

    @app.flow
    async def child() -> str:
        return "c"

    @app.step
    async def ask() -> str:
        async with host.leases.hold("key"):
            handle = await host.flows.start(child)
            return await handle.result(timeout=5)

    @app.flow
    async def flow() -> str:
        return await ask()

    host, _ = await fleet.run(app)
    async with asyncio.timeout(10):
        assert await (await host.flows.start(flow)).result() == "c"
