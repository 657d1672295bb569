"""Copies of flows that begin with a part of another one's history."""

from __future__ import annotations

import pytest

import outlive
from outlive import App, Retry
from outlive.errors import FlowFailed, UsageError


async def test_fork_copies_a_part_of_the_history(fleet):
    app, calls = App("a"), []

    @app.step
    async def step(name: str, n: int) -> int:
        calls.append((name, n))
        return n

    @app.flow
    async def flow(n: int) -> int:
        return await step("a", n) + await step("b", n) + await step("c", n)

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, 1, id="f")
    assert await handle.result(timeout=5) == 3
    calls.clear()
    forked = await handle.fork(at="step#1", id="g", input=(10,))
    assert await forked.result(timeout=5) == 21
    assert calls == [("b", 10), ("c", 10)]
    calls.clear()
    forked = await handle.fork(at="step#2", input={"n": 5})
    assert await forked.result(timeout=5) == 7
    calls.clear()
    assert await (await handle.fork(at=2)).result(timeout=5) == 3
    assert calls == [("c", 1)]
    with pytest.raises(UsageError, match="the history has no step 'what#0'; known steps: "):
        await handle.fork(at="what#0")
    with pytest.raises(UsageError, match="version 99"):
        await handle.fork(at=99)
    with pytest.raises(UsageError, match=r"^the id of a flow must not be empty$"):
        await handle.fork(at=2, id="")


@pytest.mark.parametrize("by_child", [False, True])
async def test_who_forks_what_a_saga_has_undone_is_warned(fleet, caplog, by_child):
    app = App("a")

    @app.step
    async def reserve() -> None: ...

    @app.step
    async def unreserve() -> None: ...

    @app.step
    async def charge() -> None:
        raise ValueError("no money")

    @app.flow
    async def reserving() -> None:
        await reserve()

    @app.flow
    async def checkout() -> None:
        async with outlive.saga() as saga:
            await (reserving if by_child else reserve)()
            saga.add(unreserve)
            await charge()

    host, _ = await fleet.spied(app)
    handle = await host.flows.start(checkout, id="f")
    with pytest.raises(FlowFailed):
        await handle.result(timeout=10)
    await handle.fork(at=0 if by_child else "reserve#0", id="from-before-it")
    assert "is a fork of" not in caplog.text
    await handle.fork(at="charge#0", id="from-behind-it")
    said = [each.getMessage() for each in caplog.records]
    (told,) = [each for each in said if "is a fork of" in each]
    assert told.startswith(
        "flow from-behind-it is a fork of f, which ran undo steps (unreserve#0) when it ended: "
    )


async def test_a_fork_begins_its_step_with_the_first_attempt(fleet):
    app, attempts = App("a"), []

    @app.step
    async def sound() -> int:
        return 1

    @app.step(retry=Retry(max_attempts=3, first=0.001))
    async def flaky() -> int:
        attempts.append(outlive.current().attempt)
        if len(attempts) < 6:
            raise ValueError("not yet")
        return 2

    @app.flow
    async def flow() -> int:
        return await sound() + await flaky()

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    with pytest.raises(FlowFailed):
        await handle.result(timeout=5)
    forked = await handle.fork(at="flaky#0")
    assert await forked.result(timeout=5) == 3
    assert attempts == [1, 2, 3, 1, 2, 3]


async def test_who_lacks_the_code_forks_with_arguments_by_name(fleet):
    app = App("a")

    @app.flow
    async def flow(n: int) -> int:
        return n

    host, _ = await fleet.run(app)
    await (await host.flows.start(flow, 1, id="f")).result(timeout=5)
    other = (await fleet.host("other")).flows.get("f")
    with pytest.raises(UsageError, match="by name"):
        await other.fork(at=0, input=(2,))
    forked = await other.fork(at=0, input={"n": 2})
    assert await forked.result(timeout=5) == 2
