"""What becomes of flows that stand still, stop or begin anew while something is under way."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

import outlive
from outlive import App
from outlive.errors import FlowFailed, StepFailed
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
            await outlive.wait_signal("go")
            outlive.continue_as_new(2)
        return await working

    host, spy = await fleet.spied(app)
    handle = await host.flows.start(flow, 1)
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
            await outlive.wait_signal("go")
            outlive.continue_as_new(2)
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

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    await handle.suspend()
    live = host._desk.host.home.lives[handle.id]
    await until(lambda: live.suspended)
    end.set()
    await until(lambda: live.closed)
    await handle.resume()
    assert await handle.result(timeout=5) == "outlive.errors.InvalidPayload"


async def test_a_flow_that_is_suspended_during_a_commit_begins_nothing_after_it(fleet):
    app, began = App("a"), []

    @app.step
    async def step(n: int) -> None:
        began.append(n)

    @app.flow
    async def flow() -> None:
        for number in range(3):
            await step(number)

    host, spy = await fleet.spied(app)
    gate, apply = Gate(), spy._store.commit
    gate.shut = True

    async def commit(commits):
        answer = await apply(commits)
        await (gate() or asyncio.sleep(0))
        return answer

    spy.commit = host._desk.host.home.commits._method = commit
    handle = await host.flows.start(flow)
    live = host._desk.host.home.lives[handle.id]
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


async def test_a_child_that_was_refused_to_a_suspended_flow_is_told_behind_what_is_recorded(fleet):
    app, ends = App("a"), {name: asyncio.Event() for name in ("one", "two", "three")}

    @app.step
    async def step(name: str) -> None:
        if name in ends:
            await ends[name].wait()

    @app.flow
    async def other() -> None:
        await outlive.wait_signal("never")

    @app.flow
    async def flow() -> str:
        async def first() -> None:
            await step("one")
            with contextlib.suppress(FlowFailed):
                await outlive.start_child(other, id="taken")
            await step("after the child")

        async def second() -> None:
            await step("two")
            await step("after two")

        await asyncio.gather(first(), second(), step("three"))
        return await outlive.wait_signal("go", str)

    host, spy = await fleet.spied(app)
    await host.flows.start(other, id="taken")
    handle = await host.flows.start(flow)
    live = host._desk.host.home.lives[handle.id]
    await until(lambda: len(live.steps.running) == 3)
    gate = spy.before["commit"] = Gate()
    gate.shut = True
    ends["one"].set()
    await until(lambda: gate.reached)
    await handle.suspend()
    await until(lambda: live.suspended)
    gate.open()
    await until(lambda: live._intake.waiting)
    # Recorded ahead of the child's end, of which no code was told yet.
    ends["two"].set()
    await until(lambda: len(live.steps.running) == 1)
    await until(lambda: not live.committing)
    await handle.resume()
    await until(lambda: not live.suspended)
    ends["three"].set()
    await until(lambda: live.idle)
    # Its code is run again from its history.
    await handle.suspend()
    await until(lambda: live.closed)
    await handle.resume()
    await handle.signal("go", "went on")
    assert await handle.result(timeout=5) == "went on"


# -- steps with once ------------------------------------------------------------------------------


def payment(app: App):
    """A flow that pays once, and what was paid."""
    paid, release = [], asyncio.Event()

    @app.step
    async def ask() -> None:
        await release.wait()

    @app.step(once=True)
    async def pay(n: int) -> int:
        paid.append(n)
        return n

    @app.flow
    async def flow() -> int:
        await ask()
        return await pay(1)

    return flow, paid, release


async def paused_at_its_intent(host, spy, flow, release):
    """A flow on this host whose intent to pay is being written; ``gate`` holds it up."""
    handle = await host.flows.start(flow)
    live = host._desk.host.home.lives[handle.id]
    await until(lambda: live.steps.running)
    gate = spy.before["commit"] = Gate()
    gate.shut = True
    release.set()
    await until(lambda: gate.reached)
    return handle, live, gate


async def kinds_in(handle) -> list[str]:
    return [type(event).__name__ for row in await handle.history() for event in row.events]


async def test_a_step_with_once_whose_intent_is_recorded_runs_though_its_flow_is_suspended(fleet):
    app = App("a")
    flow, paid, release = payment(app)
    host, spy = await fleet.spied(app)
    handle, live, gate = await paused_at_its_intent(host, spy, flow, release)
    await handle.suspend()
    await until(lambda: live.suspended)
    gate.open()
    await until(lambda: live.closed)
    assert paid == [1]
    assert (await handle.status()).status == "suspended"
    await handle.resume()
    assert await handle.result(timeout=5) == 1
    assert paid == [1]
    assert await kinds_in(handle) == ["StepEnded", "StepIntended", "StepEnded", "Ended"]


async def test_a_step_with_once_whose_intent_is_recorded_runs_though_its_host_stops(fleet):
    app = App("a")
    flow, paid, release = payment(app)
    one, spy = await fleet.spied(app, "one")
    handle, live, gate = await paused_at_its_intent(one, spy, flow, release)
    one.stop()
    await until(lambda: live.leaving)
    gate.open()
    await until(lambda: one._desk.host is None)
    assert paid == [1]
    two, _ = await fleet.run(app, "two")
    assert await two.flows.get(handle.id).result(timeout=5) == 1
    assert paid == [1]


async def test_a_step_with_once_begins_no_more_when_the_grace_of_its_host_is_over(fleet):
    app = App("a")
    flow, paid, release = payment(app)
    one, spy = await fleet.spied(app, "one")
    handle, live, gate = await paused_at_its_intent(one, spy, flow, release)
    one.stop(now=True)
    await until(lambda: live._stopped)
    gate.open()
    await until(lambda: one._desk.host is None)
    two, _ = await fleet.run(app, "two")
    # The next host cannot tell that it had not begun.
    with pytest.raises(FlowFailed, match="StepOutcomeUnknown"):
        await two.flows.get(handle.id).result(timeout=5)
    assert paid == []


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
        new = outlive.patched("p") if asked == "before" else False
        await step()
        if asked == "behind":
            new = outlive.patched("p")
        return "new" if new else "old"

    one, stopped = await fleet.run(app, "one")
    handle = await one.flows.start(flow)
    await began.wait()
    one.stop()
    await stopped
    two, _ = await fleet.run(app, "two")
    assert await two.flows.get(handle.id).result(timeout=5) == "new"
