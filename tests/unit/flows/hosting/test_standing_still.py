"""What becomes of flows that stand still, stop or begin anew while something is under way."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast import App
from holdfast.errors import StepFailed
from tests.unit.flows.hosting.conftest import Gate
from tests.unit.work.conftest import until

# -- new runs -------------------------------------------------------------------------------------


async def test_a_step_that_ends_after_its_run_is_not_taken_for_one_of_the_next(fleet):
    app, ends = App("a"), {}

    @app.step
    async def work(n: int) -> int:
        ends[n] = asyncio.Event()
        await ends[n].wait()
        return n

    @app.flow
    async def flow(n: int) -> int:
        working = work(n)
        if n == 1:
            await holdfast.wait_signal("go")
            holdfast.continue_as_new(2)
        return await working

    hf, spy = await fleet.spied(app)
    handle = await hf.flows.start(flow, 1)
    await until(lambda: 1 in ends)
    gate = spy.before["commit"] = Gate()
    gate.shut = True
    await handle.signal("go")
    await until(lambda: gate.reached)
    ends[1].set()
    await asyncio.sleep(0.05)
    gate.open()
    await until(lambda: 2 in ends)
    ends[2].set()
    assert await handle.result(timeout=5) == 2


async def test_a_host_that_stops_at_a_new_run_leaves_nothing_undone(fleet):
    app = App("a")

    @app.flow
    async def child() -> str:
        return "done"

    @app.flow
    async def flow(n: int) -> str:
        if n == 1:
            await holdfast.wait_signal("go")
            holdfast.continue_as_new(2)
        return await child()

    one, spy = await fleet.spied(app, "one")
    handle = await one.flows.start(flow, 1)
    gate = spy.before["commit"] = Gate()
    gate.shut = True
    await handle.signal("go")
    await until(lambda: gate.reached)
    one.stop()
    await asyncio.sleep(0.1)
    gate.open()
    await until(lambda: one._desk.host is None)
    two, _ = await fleet.run(app, "two")
    assert await two.flows.get(handle.id).result(timeout=5) == "done"


async def test_a_wrong_result_that_came_while_the_flow_was_suspended_can_be_replayed(fleet):
    app, end = App("a"), asyncio.Event()

    @app.step
    async def number() -> int:
        await end.wait()
        return "none"

    @app.flow
    async def flow() -> str:
        try:
            return str(await number())
        except StepFailed as error:
            return error.type

    hf, _ = await fleet.run(app)
    handle = await hf.flows.start(flow)
    await handle.suspend()
    live = hf._desk.host.home.lives[handle.id]
    await until(lambda: live.suspended)
    end.set()
    await until(lambda: live.closed)
    await handle.resume()
    assert await handle.result(timeout=5) == "holdfast.errors.InvalidPayload"


async def test_a_flow_that_is_suspended_during_a_commit_begins_nothing_after_it(fleet):
    app, began = App("a"), []

    @app.step
    async def step(n: int) -> None:
        began.append(n)

    @app.flow
    async def flow() -> None:
        for number in range(3):
            await step(number)

    hf, spy = await fleet.spied(app)
    gate, apply = Gate(), spy._store.commit
    gate.shut = True

    async def commit(commits):
        answer = await apply(commits)
        await (gate() or asyncio.sleep(0))
        return answer

    spy.commit = hf._desk.host.home.commits._method = commit
    handle = await hf.flows.start(flow)
    live = hf._desk.host.home.lives[handle.id]
    await until(lambda: gate.reached)
    await handle.suspend()
    await until(lambda: live.suspended)
    gate.open()
    await until(lambda: live.closed)
    assert began == [0]
    await handle.resume()
    await handle.result(timeout=5)
    assert began == [0, 1, 2]


@pytest.mark.parametrize("then", ["child", "end"])
async def test_steps_that_end_while_a_host_stops_are_replayed_one_after_the_other(fleet, then):
    app, end, began = App("a"), asyncio.Event(), []

    @app.step
    async def work(n: int) -> int:
        began.append(n)
        await end.wait()
        return n

    @app.flow
    async def double(n: int) -> int:
        return 2 * n

    async def line(n: int) -> int:
        return await double(await work(n))

    @app.flow
    async def flow() -> int:
        tasks = [asyncio.create_task(line(n)) for n in range(3)]
        if then == "end":
            await asyncio.wait([work(3), work(4)], return_when=asyncio.FIRST_COMPLETED)
            return 6
        return sum(await asyncio.gather(*tasks))

    one, stopped = await fleet.run(app, "one")
    handle = await one.flows.start(flow)
    await until(lambda: len(began) >= 3)
    one.stop()
    await until(lambda: not one._desk.host.open)
    end.set()
    await stopped
    two, _ = await fleet.run(app, "two")
    assert await two.flows.get(handle.id).result(timeout=5) == 6


# -- patches --------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", ["before", "behind"])
async def test_a_patch_beside_a_step_that_a_stopping_host_only_recorded_is_new(fleet, asked):
    app, began = App("a"), asyncio.Event()

    @app.step
    async def step() -> None:
        began.set()
        await asyncio.sleep(0.05)

    @app.flow
    async def flow() -> str:
        new = holdfast.patched("p") if asked == "before" else False
        await step()
        if asked == "behind":
            new = holdfast.patched("p")
        return "new" if new else "old"

    one, stopped = await fleet.run(app, "one")
    handle = await one.flows.start(flow)
    await began.wait()
    one.stop()
    await stopped
    two, _ = await fleet.run(app, "two")
    assert await two.flows.get(handle.id).result(timeout=5) == "new"
