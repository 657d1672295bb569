"""What reaches a running flow from outside: signals, updates, queries, cancellation, children."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

import pytest

import outlive
from outlive import App
from outlive.errors import (
    FlowCancelled,
    FlowEnded,
    FlowFailed,
    FlowNotFound,
    UpdateFailed,
    UpdateRejected,
    UsageError,
)
from outlive.model.instance import LETTERS_MAX
from tests.unit.flows.hosting.conftest import Gate
from tests.unit.work.conftest import until


def approvals(app: App):
    @app.flow
    async def approval(names: int) -> list[str]:
        seen: list[str] = []

        @outlive.on_query("seen")
        def query() -> list[str]:
            return list(seen)

        def check(name: str) -> None:
            if not name:
                raise ValueError("a name is needed")

        @outlive.on_update("add", validator=check)
        def add(name: str) -> int:
            seen.append(name)
            return len(seen)

        while len(seen) < names:
            seen.append(await outlive.wait_signal("approved", str))
        return seen

    return approval


async def test_signals_are_read_once_in_order_also_before_the_wait(fleet):
    app = App("a")
    approval = approvals(app)
    outside = await fleet.host("outside")
    handle = await outside.flows.start("approval", {"names": 3})
    await handle.signal("approved", "ann")
    await handle.signal("approved", "bob", id="once")
    await handle.signal("approved", "bob", id="once")
    host, _ = await fleet.run(app)
    await until(lambda: handle.id in host._desk.host.home.lives)
    await handle.signal("approved", "cid")
    assert await host.flows.get(handle.id, approval).result(timeout=5) == ["ann", "bob", "cid"]
    with pytest.raises(FlowNotFound):
        await handle.signal("approved", "too late")


async def test_a_query_asks_the_live_run_or_a_replay_of_its_history(fleet):
    app = App("a")
    approvals(app)
    host, spy = await fleet.spied(app)
    handle = await host.flows.start("approval", 2)
    await handle.signal("approved", "ann")
    await until(lambda: len(spy.commits) == 1)
    assert await handle.query("seen") == ["ann"]
    assert spy.calls["history"] == 0
    other = await fleet.host("other", app=app)
    assert await other.flows.get(handle.id).query("seen") == ["ann"]
    stranger = await fleet.host("stranger")
    with pytest.raises(UsageError, match="not defined in this app"):
        await stranger.flows.get(handle.id).query("seen")
    with pytest.raises(UsageError, match="no query 'what'"):
        await handle.query("what")


@dataclass
class Basket:
    items: list[str]


async def test_the_answer_to_a_query_is_a_copy(fleet):
    app = App("a")

    @app.flow
    async def flow() -> list[str]:
        basket = Basket(["tea"])

        @outlive.on_query
        def shown() -> Basket:
            return basket

        @outlive.on_query
        def bare():
            return basket.items

        @outlive.on_query
        def strange() -> object:
            return asyncio

        await outlive.wait_signal("done")
        return basket.items

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    await until(lambda: host._desk.host.home.lives[handle.id].ready)
    answer = await handle.query("shown")
    assert answer == Basket(["tea"])
    answer.items.append("mine")
    (await handle.query("bare")).append("mine")
    with pytest.raises(UsageError, match="the answer to query 'strange'"):
        await handle.query("strange")
    await handle.signal("done")
    assert await handle.result(timeout=5) == ["tea"]


async def test_an_update_is_validated_recorded_and_replied_to(fleet):
    app = App("a")
    approvals(app)
    host, _ = await fleet.run(app)
    outside = await fleet.host("outside")
    handle = outside.flows.get((await host.flows.start("approval", 3)).id)
    assert await handle.update("add", "ann", timeout=5) == 1
    before = len(await handle.history())
    with pytest.raises(UpdateRejected, match="a name is needed"):
        await handle.update("add", "", timeout=5)
    with pytest.raises(UpdateRejected, match="has no such update"):
        await handle.update("what", timeout=5)
    assert len(await handle.history()) - before <= 2
    assert await handle.update("add", "bob", id="u1", timeout=5) == 2
    assert await handle.update("add", "bob", id="u1", timeout=5) == 2
    await handle.signal("approved", "cid")
    assert await handle.result(timeout=5) == ["ann", "bob", "cid"]


async def test_cancelling_reaches_the_code_its_steps_and_its_children(fleet):
    app, seen = App("a"), []

    @app.step
    async def forever(name: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append(name)
            raise

    @app.step
    async def clean(name: str) -> None:
        seen.append(f"clean {name}")

    @app.flow
    async def child() -> None:
        await forever("child")

    @app.flow
    async def parent() -> None:
        try:
            await asyncio.gather(forever("step"), child())
        except asyncio.CancelledError:
            await clean("parent")
            raise

    host, _ = await fleet.run(app)
    handle = await host.flows.start(parent, id="p")
    await until(lambda: len(host._desk.host.home.lives) == 2)
    await handle.cancel("enough")
    with pytest.raises(FlowCancelled, match="enough"):
        await handle.result(timeout=5)
    with pytest.raises(FlowCancelled):
        await host.flows.get("p/child#0").result(timeout=5)
    await until(lambda: set(seen) == {"step", "child", "clean parent"})


async def test_children_give_results_and_failures_to_their_parent(fleet):
    app = App("a")

    @app.flow
    async def half(n: int) -> int:
        if n % 2:
            raise ValueError(f"{n} is odd")
        return n // 2

    @app.flow
    async def parent(n: int) -> list[int | str]:
        found: list[int | str] = list(await asyncio.gather(*(half(2 * i) for i in range(n))))
        try:
            await half(3)
        except FlowFailed as error:
            found.append(error.message)
        left = outlive.start_child(half, 8, id="apart", on_parent_end="abandon")
        return [*found, left.id]

    host, _ = await fleet.run(app)
    handle = await host.flows.start(parent, 5)
    assert await handle.result(timeout=5) == [0, 1, 2, 3, 4, "3 is odd", "apart"]
    assert await host.flows.get("apart").result(timeout=5) == 4
    children = await host.flows.list(parent=handle.id)
    assert len(children) == 7


async def test_a_child_id_that_others_have_fails_in_the_parent(fleet):
    app = App("a")

    @app.flow
    async def child() -> int:
        return 1

    @app.flow
    async def parent() -> str:
        try:
            await outlive.start_child(child, id="taken")
        except FlowFailed as error:
            return error.type
        return "no"

    host, _ = await fleet.run(app)
    await (await host.flows.start(child, id="taken")).result(timeout=5)
    handle = await host.flows.start(parent)
    assert await handle.result(timeout=5) == "outlive.errors.FlowExists"


async def test_continue_as_new_keeps_the_id_and_what_nobody_read(fleet):
    app, keys = App("a"), []

    @app.step
    async def note(n: int) -> None:
        keys.append(outlive.current().idempotency_key)

    @app.flow
    async def loop(n: int) -> list[str]:
        await note(n)
        if n < 3:
            outlive.continue_as_new(n + 1)
        return [await outlive.wait_signal("s", str) for _ in range(2)]

    host, _ = await fleet.run(app)
    handle = await host.flows.start(loop, 0, id="l")
    await handle.signal("s", "a")
    await handle.signal("s", "b")
    assert await handle.result(timeout=5) == ["a", "b"]
    assert len(set(keys)) == 4
    info = await handle.status()
    assert info.input == {"n": 3}
    assert len(await handle.history()) < info.version


async def test_flows_signal_each_other(fleet):
    app = App("a")

    @app.flow
    async def waiter() -> int:
        return await outlive.wait_signal("n", int)

    @app.flow
    async def sender(to: str) -> None:
        outlive.signal(to, "n", 42)

    host, _ = await fleet.run(app)
    handle = await host.flows.start(waiter, id="w")
    await host.flows.start(sender, "w")
    assert await handle.result(timeout=5) == 42


async def test_an_update_that_fails_says_so_and_its_flow_goes_on(fleet):
    app = App("a")

    @app.flow
    async def flow(runs: int) -> str:
        @outlive.on_update
        async def fails() -> None:
            try:
                raise KeyError("inner")
            except KeyError as inner:
                raise ValueError("no") from inner

        @outlive.on_update
        async def waits() -> None:
            await outlive.wait_signal("never")

        await outlive.wait_signal("go")
        if runs == 0:
            return "ended"
        return outlive.continue_as_new(runs - 1)

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, 1, id="f")
    with pytest.raises(UpdateFailed, match="'fails' of flow 'f' failed: ValueError: no") as caught:
        await handle.update("fails", timeout=5)
    failed = caught.value
    assert (failed.id, failed.name) == ("f", "fails")
    assert (failed.type, failed.message) == ("ValueError", "no")
    assert isinstance(failed.cause, UpdateFailed)
    assert failed.cause.type == "KeyError"
    for said in ("continued as a new run", "the flow ended"):
        asked = asyncio.create_task(handle.update("waits", timeout=5))
        await until(lambda: host._desk.host.home.lives["f"].run.answering.updating)
        await handle.signal("go")
        with pytest.raises(UpdateFailed, match=said):
            await asked
    assert await handle.result(timeout=5) == "ended"


async def test_who_sends_to_a_flow_that_ended_learns_how_it_did(fleet):
    app = App("a")

    @app.flow
    async def flow() -> None:
        await outlive.wait_signal("go")

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, id="f")
    await handle.cancel()
    with pytest.raises(FlowCancelled):
        await handle.result(timeout=5)
    for send in (handle.cancel, partial(handle.signal, "go"), partial(handle.update, "x")):
        with pytest.raises(FlowEnded, match=r"has ended \(cancelled\)") as caught:
            await send()
        assert (caught.value.id, caught.value.status) == ("f", "cancelled")
    with pytest.raises(FlowNotFound, match="no flow 'g'") as caught:
        await host.flows.get("g").signal("go")
    assert not isinstance(caught.value, FlowEnded)


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_more_letters_than_a_claim_brings_are_read_at_once(tmp_path, url):
    app, count = App("a"), LETTERS_MAX + 20

    @app.flow
    async def collects() -> list[int]:
        return [await outlive.wait_signal("n", int) for _ in range(count)]

    place = f"sqlite:///{tmp_path}/h.db" if url == "sqlite" else f"memory://mail-{tmp_path.name}"
    async with outlive.connect(place) as guest:
        handle = await guest.flows.start("collects", id="f")
        for number in range(count):
            await handle.signal("n", number)
        async with outlive.connect(place, app=app) as host, host.running():
            assert await handle.result(timeout=10) == list(range(count))


async def test_letters_that_nobody_heard_of_are_read_first_when_the_flow_is_resumed(fleet):
    """It is suspended while more letters than one look brings are on their way to it."""
    app, ends, got = App("a"), asyncio.Event(), []

    @app.step
    async def work() -> None:
        await ends.wait()

    @app.flow
    async def collecting() -> None:
        async def collect() -> None:
            while True:
                got.append(await outlive.wait_signal("n", int))

        task = asyncio.create_task(collect())
        await work()
        task.cancel()

    host, spy = await fleet.spied(app)
    handle = await host.flows.start(collecting)
    live = host._desk.host.home.lives[handle.id]
    await until(lambda: live.steps.running)
    gate = Gate()
    gate.shut = True
    spy.before["letters"] = gate
    for number in range(LETTERS_MAX + 20):
        await handle.signal("n", number)
    await until(lambda: gate.reached)
    await handle.suspend()
    await until(lambda: live.suspended)
    gate.open()
    await until(lambda: not live._mailbox.looking)
    await handle.resume()
    await until(lambda: len(got) == LETTERS_MAX + 20)
    assert got == list(range(LETTERS_MAX + 20))
    ends.set()
    await handle.result(timeout=5)
