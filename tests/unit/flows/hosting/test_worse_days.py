"""What becomes of flows at moments that nobody plans for: each of these stranded or misled one."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import pytest

import outlive
from outlive import App, FlowOptions
from outlive.errors import FlowCancelled, FlowFailed, StepFailed, UpdateRejected
from outlive.ports.wakeups import MISSED
from tests.unit.flows.hosting.conftest import Gate
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox

# -- steps ----------------------------------------------------------------------------------------


async def test_a_step_with_wrong_arguments_gives_its_turn_to_the_next(fleet):
    app = App("a")

    @app.step(concurrency=1)
    async def half(n: int) -> int:
        return n // 2

    @app.flow
    async def flow(n: Any) -> int:
        return await half(n)

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match="InvalidPayload"):
        await (await host.flows.start(flow, "many")).result(timeout=5)
    assert await (await host.flows.start(flow, 4)).result(timeout=5) == 2


async def test_a_transactional_step_with_wrong_arguments_fails(tmp_path):
    app = App("a")

    @app.step(transactional=True)
    def half(n: int) -> int:
        return n // 2

    @app.flow
    async def flow(n: Any) -> int:
        return await half(n)

    async with running(tmp_path, app) as host:
        with pytest.raises(FlowFailed, match="InvalidPayload"):
            await (await host.flows.start(flow, "many")).result(timeout=5)


async def test_a_transactional_step_with_a_wrong_result_fails_and_can_be_replayed(tmp_path):
    app = App("a")

    @app.step(transactional=True)
    def number() -> int:
        return "none"

    @app.flow
    async def flow() -> str:
        with contextlib.suppress(StepFailed):
            await number()
        return await outlive.wait_signal("go", str)

    async with running(tmp_path, app, flows=FlowOptions(park_grace=0.02)) as host:
        handle = await host.flows.start(flow)
        await until(lambda: not host._desk.host.home.lives)
        await handle.signal("go", "on")
        assert await handle.result(timeout=5) == "on"


async def test_a_transactional_step_that_exits_fails(tmp_path):
    app = App("a")

    @app.step(transactional=True)
    def leave() -> None:
        raise SystemExit(3)

    @app.flow
    async def flow() -> None:
        await leave()

    async with running(tmp_path, app) as host:
        with pytest.raises(FlowFailed, match="SystemExit"):
            await (await host.flows.start(flow)).result(timeout=5)


async def test_an_error_with_a_note_that_cannot_be_stored_ends_its_step(fleet):
    app = App("a")

    @app.step
    async def fails() -> None:
        error = ValueError("bad")
        error.add_note("file \udc80" + "x" * 5_000_000)
        raise error

    @app.flow
    async def flow() -> None:
        await fails()

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match="bad"):
        await (await host.flows.start(flow)).result(timeout=5)


async def test_an_error_with_arguments_of_nearly_the_limit_ends_its_step(fleet):
    app = App("a")

    class Long(Exception):
        pass

    @app.step(errors=(Long,))
    async def fails() -> None:
        raise Long("x" * (1024 * 1024 - 100))

    @app.flow
    async def flow() -> str:
        try:
            await fails()
        except (Long, StepFailed) as error:
            return type(error).__name__
        return ""

    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=5) in ("Long", "StepFailed")


# -- starting -------------------------------------------------------------------------------------


def late_starts(spy) -> Gate:
    """Let starts be applied at once, and answered when the gate is opened."""
    gate, apply = Gate(), spy._store.start
    gate.shut = True

    async def start(news):
        answer = await apply(news)
        await (gate() or asyncio.sleep(0))
        return answer

    spy.start = start
    return gate


async def test_a_start_whose_caller_is_cancelled_is_not_left_behind(fleet):
    app = App("a")

    @app.flow
    async def flow() -> str:
        return "ran"

    host, spy = await fleet.spied(app)
    gate = late_starts(spy)
    starting = asyncio.create_task(host.flows.start(flow, id="f"))
    await until(lambda: gate.reached)
    starting.cancel()
    await asyncio.wait([starting])
    gate.open()
    assert await host.flows.get("f").result(timeout=5) == "ran"


async def test_a_start_that_is_answered_when_the_host_has_stopped_is_run_by_others(fleet):
    app = App("a")

    @app.flow
    async def flow() -> str:
        return "ran"

    one, spy = await fleet.spied(app, "one")
    gate = late_starts(spy)
    starting = asyncio.create_task(one.flows.start(flow, id="f"))
    await until(lambda: gate.reached)
    one.stop()
    await until(lambda: one._desk.host is None)
    await fleet.run(app, "two")
    gate.open()
    handle = await starting
    assert await handle.result(timeout=5) == "ran"


# -- flow code ------------------------------------------------------------------------------------


async def test_a_task_of_flow_code_that_exits_fails_its_flow_and_no_host(fleet):
    app = App("a")

    async def leave() -> None:
        raise SystemExit(3)

    @app.flow
    async def flow() -> None:
        await asyncio.gather(leave())

    host, task = await fleet.run(app)
    with pytest.raises(FlowFailed):
        await (await host.flows.start(flow)).result(timeout=5)
    assert not task.done()


async def test_a_step_that_exits_fails_and_ends_no_host(fleet):
    app = App("a")

    @app.step
    async def leave() -> None:
        raise SystemExit(3)

    @app.flow
    async def flow() -> None:
        await leave()

    host, task = await fleet.run(app)
    with pytest.raises(FlowFailed, match="raised SystemExit"):
        await (await host.flows.start(flow)).result(timeout=5)
    assert not task.done()


@pytest.mark.parametrize("seconds", [math.inf, 1e14])
async def test_a_flow_may_sleep_for_ever(tmp_path, seconds):
    app = App("a")

    @app.flow
    async def flow() -> str:
        sleeping = asyncio.create_task(asyncio.sleep(seconds))
        found = await outlive.wait_signal("go", str)
        sleeping.cancel()
        return found

    async with running(tmp_path, app, flows=FlowOptions(park_grace=0.02)) as host:
        handle = await host.flows.start(flow)
        await until(lambda: not host._desk.host.home.lives)
        await handle.signal("go", "on")
        assert await handle.result(timeout=5) == "on"


async def test_a_timer_for_no_number_is_refused(fleet):
    app = App("a")

    @app.flow
    async def flow() -> None:
        await asyncio.sleep(math.nan)

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match=r"(?i)nan"):
        await (await host.flows.start(flow)).result(timeout=5)


# -- what others say ------------------------------------------------------------------------------


async def test_a_query_is_answered_while_the_history_is_read(fleet):
    app = App("a")

    @app.flow
    async def flow() -> None:
        @outlive.on_query
        def state() -> str:
            return "fine"

        await asyncio.sleep(3600)

    one, stopped = await fleet.run(app, "one")
    handle = await one.flows.start(flow)
    one.stop()
    await stopped
    two, spy = await fleet.spied(app, "two")
    gate = spy.before["history"] = Gate()
    gate.shut = True
    await handle.signal("wake")
    await until(lambda: gate.reached)
    asked = asyncio.create_task(two.flows.get(handle.id).query("state"))
    await asyncio.sleep(0.05)
    gate.open()
    assert await asked == "fine"


async def test_a_flow_that_was_cancelled_and_retried_can_be_cancelled_again(fleet):
    app = App("a")

    @app.flow
    async def flow() -> None:
        await outlive.wait_signal("never")

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    for _ in range(2):
        await handle.cancel()
        with pytest.raises(FlowCancelled):
            await host.flows.get(handle.id).result(timeout=3)
        await handle.retry()


async def test_a_letter_behind_many_signals_that_nobody_reads_is_read(fleet, monkeypatch):
    monkeypatch.setattr("outlive.flows.inbox.SIGNALS_MAX", 10)
    app = App("a")

    @app.flow
    async def flow() -> None:
        await outlive.wait_signal("never")

    host, spy = await fleet.spied(app)
    handle = await host.flows.start(flow)
    for number in range(320):
        await handle.signal("noise", number)
    await asyncio.sleep(0.2)
    before = spy.calls["letters"]
    await asyncio.sleep(0.3)
    assert spy.calls["letters"] - before <= 5
    await handle.cancel()
    with pytest.raises(FlowCancelled):
        await handle.result(timeout=3)


async def test_a_rejection_is_told_once(fleet):
    app = App("a")

    @app.flow
    async def flow() -> None:
        def no(n: int) -> None:
            raise ValueError(f"{n} is too many")

        @outlive.on_update("take", validator=no)
        def take(n: int) -> None: ...

        await outlive.wait_signal("never")

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    with pytest.raises(UpdateRejected) as caught:
        await handle.update("take", 7)
    assert caught.value.reason == "7 is too many"


async def test_attributes_that_a_flow_sets_do_not_keep_the_mark_of_a_stuck_one(fleet, monkeypatch):
    monkeypatch.setattr("outlive.flows.stuck._FIRST_S", 0.02)

    def define(app: App, *args: object):
        @app.step
        async def step(n: int = 0) -> None: ...

        @app.flow
        async def flow() -> None:
            await step(*args)
            await outlive.wait_signal("go")
            outlive.set_attributes({"colour": "red"})

        return flow

    good, bad = App("a"), App("a")
    flow = define(good)
    define(bad, 1)
    one, stopped = await fleet.run(good, "one")
    handle = await one.flows.start(flow, id="f")
    await until(lambda: one._desk.host.home.lives["f"].row.version == 1)
    one.stop()
    await stopped
    two, spoiled = await fleet.run(bad, "two")
    await handle.signal("go")

    async def stuck():
        return "outlive.stuck" in (await two.flows.get("f").status()).attributes

    await until(stuck)
    two.stop()
    await spoiled
    three, _ = await fleet.run(good, "three")
    await three.flows.get("f").result(timeout=5)
    assert (await three.flows.get("f").status()).attributes == {"colour": "red"}


@contextlib.asynccontextmanager
async def running(tmp_path, app, **options):
    """A host on a file that runs ``app``."""
    async with outlive.connect(f"sqlite:///{tmp_path}/h.db", app=app, **options) as host:
        task = asyncio.create_task(host.run())
        await until(lambda: host._desk.host is not None and host._desk.host.open)
        yield host
        host.stop()
        await task


# -- rings that are lost --------------------------------------------------------------------------


def endless() -> tuple[App, set[int]]:
    """A flow whose step ends only if it is stopped, and those that run."""
    app, running_now = App("a"), set[int]()

    @app.step
    async def step(n: int) -> None:
        running_now.add(n)
        try:
            await asyncio.Event().wait()
        finally:
            running_now.discard(n)

    @app.flow
    async def flow(n: int) -> None:
        await step(n)

    return app, running_now


async def test_what_operators_did_unheard_is_seen_when_rings_were_missed(fleet):
    app, running_now = endless()
    host, spy = await fleet.spied(app)
    operator = await fleet.host("operator")
    for n in range(4):
        await host.flows.start(app.flows["flow"], n, id=f"f{n}")
    await until(lambda: len(running_now) == 4)
    host._desk.bell.on_operate = None
    await operator.flows.get("f0").terminate("enough")
    await operator.flows.get("f1").suspend()
    looks, most = 0, 0

    async def look() -> None:
        nonlocal looks, most
        looks += 1
        most = max(most, looks)
        await asyncio.sleep(0)
        looks -= 1

    spy.before["get"] = lambda *_: look()
    lives = host._desk.host.home.lives
    host._driver.wakeups.deliver(MISSED)
    await until(lambda: "f0" not in lives and lives["f1"].suspended)
    assert running_now == {1, 2, 3}
    assert not lives["f2"].suspended
    # They are looked at one after the other: there may be thousands.
    assert most == 1


async def test_rings_that_are_missed_during_the_look_lead_to_another(fleet):
    app, running_now = endless()
    host, spy = await fleet.spied(app)
    operator = await fleet.host("operator")
    for n in range(2):
        await host.flows.start(app.flows["flow"], n, id=f"f{n}")
    await until(lambda: len(running_now) == 2)
    host._desk.bell.on_operate = None
    seen: list[str] = []
    gate = Gate()

    def look(flow):
        seen.append(flow)
        return gate() if len(seen) == 2 else None

    spy.before["get"] = look
    gate.shut = True
    host._driver.wakeups.deliver(MISSED)
    await until(lambda: gate.reached)
    # The first was looked at before.
    await operator.flows.get(seen[0]).terminate("enough")
    host._driver.wakeups.deliver(MISSED)
    gate.open()
    await until(lambda: len(running_now) == 1)
    assert seen[0] not in host._desk.host.home.lives


async def test_a_flow_that_is_ending_is_not_taken_for_one_that_others_ended(fleet, caplog):
    app, go = App("a"), asyncio.Event()

    @app.step
    async def work() -> None:
        await go.wait()
        raise ValueError("broken")

    @app.flow
    async def flow() -> None:
        await work()

    host, spy = await fleet.spied(app)
    handle = await host.flows.start(flow)
    live = host._desk.host.home.lives[handle.id]
    await until(lambda: live.steps.running and not live.committing)
    gate, looked = Gate(), asyncio.Event()
    gate.shut = True

    async def written_and_not_answered(commits):
        await spy._store.commit(commits)
        await gate()

    spy.before["commit"] = written_and_not_answered
    spy.after["get"] = lambda *_: looked.set()
    go.set()
    await until(lambda: gate.reached)
    host._driver.wakeups.deliver(MISSED)
    await looked.wait()
    gate.open()
    with pytest.raises(FlowFailed, match="broken"):
        await handle.result(timeout=5)
    # What follows from its end is done.
    await until(lambda: f"flow {handle.id} of 'flow' failed" in caplog.text)
