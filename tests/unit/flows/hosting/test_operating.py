"""What operators do to flows: suspend, resume, terminate, retry, list, purge."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App
from outlive.errors import Conflict, FlowFailed, FlowNotFound, FlowTerminated, UsageError
from outlive.flows import purging
from tests.unit.bodies import stay
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


async def test_a_suspended_flow_records_what_runs_and_begins_nothing(fleet):
    app, began, release = App("a"), [], asyncio.Event()

    @app.step
    async def step(n: int) -> int:
        began.append(n)
        if n == 0:
            await release.wait()
        return n

    @app.flow
    async def flow() -> int:
        return await step(0) + await step(1)

    host, _ = await fleet.spied(app)
    handle = await host.flows.start(flow, id="f")
    await until(lambda: began == [0])
    await handle.suspend()
    await handle.suspend()
    assert (await handle.status()).status == "suspended"
    await until(lambda: host._desk.host.home.lives["f"].suspended)
    release.set()
    await until(lambda: not host._desk.host.home.lives)
    assert began == [0]
    # What ran was recorded, so that it does not run again.
    assert len(await handle.history()) == 1
    await handle.resume()
    assert await handle.result(timeout=5) == 1
    assert began == [0, 1]
    with pytest.raises(Conflict, match="ended"):
        await handle.suspend()
    with pytest.raises(FlowNotFound):
        await host.flows.get("nobody").resume()


async def test_a_flow_resumed_while_its_step_runs_goes_on_in_place(fleet):
    app, release = App("a"), asyncio.Event()

    @app.step
    async def step(n: int) -> int:
        if n == 0:
            await release.wait()
        return n

    @app.flow
    async def flow() -> int:
        one, two = await asyncio.gather(step(0), step(1))
        return one + two + await step(2)

    host, spy = await fleet.spied(app)
    handle = await host.flows.start(flow, id="f")
    await until(lambda: len(spy.commits) == 1)
    await handle.suspend()
    live = host._desk.host.home.lives["f"]
    await until(lambda: live.suspended)
    await handle.resume()
    await until(lambda: not live.suspended)
    release.set()
    assert await handle.result(timeout=5) == 3
    assert spy.calls["history"] == 0


async def test_a_suspended_flow_fires_no_timer_and_reads_no_letter(fleet):
    app = App("a")

    @app.flow
    async def flow() -> str:
        try:
            return await outlive.wait_signal("go", str, timeout=0.1)
        except TimeoutError:
            return "late"

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, id="f")
    await handle.suspend()
    await until(lambda: not host._desk.host.home.lives)
    await handle.signal("go", "now")
    await asyncio.sleep(0.15)
    assert (await handle.status()).status == "suspended"
    await handle.resume()
    # Both are there when it goes on; either may come first, and one of them does.
    assert await handle.result(timeout=5) in ("now", "late")


async def test_terminate_ends_it_at_once_and_stops_its_steps(fleet):
    app, seen = App("a"), []

    @app.step
    async def forever() -> None:
        await stay(seen)

    @app.flow
    async def child() -> None:
        await forever()

    @app.flow
    async def parent() -> str:
        try:
            await child()
        except FlowTerminated as error:
            return str(error)
        return "no"

    host, _ = await fleet.run(app)
    handle = await host.flows.start(parent, id="p")
    await until(lambda: "p/child#0" in host._desk.host.home.lives)
    below = host.flows.get("p/child#0")
    await below.terminate("stuck")
    await below.terminate("stuck")
    with pytest.raises(FlowTerminated, match="stuck"):
        await below.result(timeout=5)
    assert "stuck" in await handle.result(timeout=5)
    await until(lambda: seen == ["began", "cancelled"])
    with pytest.raises(Conflict):
        await handle.terminate()


async def test_terminate_reaches_the_children_that_are_to_end_with_it(fleet):
    app, stopped = App("a"), []

    @app.step
    async def forever(name: str) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(name)
            raise

    @app.flow
    async def leaf(name: str) -> None:
        await forever(name)

    @app.flow
    async def child() -> None:
        await leaf("deep")

    @app.flow
    async def parent() -> None:
        bound = child()
        free = outlive.start_child(leaf, "free", on_parent_end="abandon")
        outlive.start_child(leaf, "unawaited", id="unawaited", on_parent_end="abandon")
        await asyncio.gather(bound, free)

    host, _ = await fleet.run(app)
    handle = await host.flows.start(parent, id="p")
    ids = ["p/child#0", "p/child#0/leaf#0", "p/leaf#0", "unawaited"]
    await until(lambda: all(id_ in host._desk.host.home.lives for id_ in ids))
    await handle.terminate("enough")
    with pytest.raises(FlowTerminated, match=r"^flow 'p' was terminated: enough$"):
        await handle.result(timeout=5)
    for id_ in ids[:2]:
        with pytest.raises(FlowTerminated, match="together with its parent 'p': enough"):
            await host.flows.get(id_).result(timeout=5)
    await until(lambda: stopped == ["deep"])
    assert [(await host.flows.get(id_).status()).status for id_ in ids[2:]] == ["running"] * 2


async def test_a_terminated_family_begins_again_when_its_first_is_retried(fleet):
    app, release = App("a"), asyncio.Event()

    @app.step
    async def work() -> str:
        await release.wait()
        return "done"

    @app.flow
    async def child() -> str:
        return await work()

    @app.flow
    async def parent() -> str:
        return await child()

    host, _ = await fleet.run(app)
    handle = await host.flows.start(parent, id="p")
    await until(lambda: "p/child#0" in host._desk.host.home.lives)
    await handle.terminate()
    release.set()
    await handle.retry()
    assert await handle.result(timeout=5) == "done"
    assert (await host.flows.get("p/child#0").status()).status == "terminated"


async def test_a_retried_flow_begins_the_children_again_that_its_end_had_cancelled(fleet):
    app, broken, began = App("a"), [True], []

    @app.step
    async def work(name: str) -> str:
        began.append(name)
        await (asyncio.sleep(60) if broken else asyncio.sleep(0))
        return name

    @app.step
    async def fails() -> None:
        await until(lambda: began)
        if broken:
            raise ValueError("no")

    @app.flow
    async def child() -> str:
        return await work("c")

    @app.flow
    async def parent() -> str:
        below = child()
        await fails()
        return await below

    host, _ = await fleet.run(app)
    handle = await host.flows.start(parent, id="p")
    with pytest.raises(FlowFailed):
        await handle.result(timeout=5)
    with pytest.raises(outlive.FlowCancelled):
        await host.flows.get("p/child#0").result(timeout=5)
    broken.clear()
    await handle.retry()
    assert await handle.result(timeout=5) == "c"
    assert began == ["c", "c"]


async def test_retry_goes_on_from_the_step_that_failed(fleet):
    app, calls, broken = App("a"), [], [True]

    @app.step
    async def first() -> int:
        calls.append("first")
        return 1

    @app.step
    async def second() -> int:
        calls.append("second")
        if broken[0]:
            raise ValueError("broken")
        return 2

    @app.flow
    async def flow() -> int:
        return await first() + await second()

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, id="f")
    with pytest.raises(FlowFailed, match="broken"):
        await handle.result(timeout=5)
    broken[0] = False
    again = host.flows.get("f", flow)
    await again.retry()
    assert await again.result(timeout=5) == 3
    assert calls == ["first", "second", "second"]
    with pytest.raises(Conflict, match="completed"):
        await again.retry()


async def test_a_history_is_read_in_parts(fleet):
    app = App("a")

    @app.step
    async def step(n: int) -> int:
        return n

    @app.flow
    async def flow() -> int:
        return sum([await step(n) for n in range(5)])

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow, id="f")
    await handle.result(timeout=5)
    whole = await handle.history()
    assert [commit.version for commit in whole] == [1, 2, 3, 4, 5]
    assert await handle.history(after=1, limit=2) == whole[1:3]
    assert await handle.history(after=3) == whole[3:]
    assert await handle.history(limit=9) == whole
    assert await handle.history(after=5, limit=1) == []


async def test_list_count_and_purge(fleet):
    app = App("a")

    @app.flow
    async def fine(n: int) -> int:
        outlive.set_attributes({"size": n})
        return n

    @app.flow
    async def waits() -> None:
        await outlive.wait_signal("never")

    host, _ = await fleet.run(app)
    for number in range(5):
        handle = await host.flows.start(fine, number, id=f"fine-{number}", attributes={"k": "v"})
        await handle.result(timeout=5)
    await host.flows.start(waits, id="waits")
    listed = await host.flows.list(name="fine", limit=3)
    assert [info.id for info in listed] == ["fine-0", "fine-1", "fine-2"]
    for after in (listed[-1], listed[-1].id):
        rest = await host.flows.list(name="fine", after=after)
        assert [info.outcome for info in rest] == [3, 4]
    assert [info.id for info in await host.flows.list(attributes={"size": 2})] == ["fine-2"]
    assert [info.id for info in await host.flows.list(status="running")] == ["waits"]
    assert await host.flows.count() == {"completed": 5, "running": 1}
    with pytest.raises(UsageError, match="attribute 'k' must be"):
        await host.flows.start(fine, 1, attributes={"k": [1]})
    with pytest.raises(UsageError, match="not a status"):
        await host.flows.list(status="what")
    for wrong in (None, [1]):
        with pytest.raises(UsageError, match="attribute 'size' must be filtered"):
            await host.flows.list(attributes={"size": wrong})
    # What has ended needs no repair.
    assert await host.flows.count(status="completed", stuck=True) == {}
    for call in (host.flows.list, host.flows.count, host.flows.purge):
        with pytest.raises(UsageError, match="name at least one status"):
            await call(status=[])
    with pytest.raises(UsageError, match="no flows selected"):
        await host.flows.purge()
    with pytest.raises(UsageError, match="terminate live flows"):
        await host.flows.purge(status="running")
    assert await host.flows.purge("waits") == 0
    assert await host.flows.purge("fine-0") == 1
    assert await host.flows.purge(status="completed", older_than=3600) == 0
    assert await host.flows.purge(status="completed") == 4
    assert [info.id for info in await host.flows.list(after=listed[-1])] == ["waits"]
    with pytest.raises(FlowNotFound):
        await host.flows.list(after=listed[-1].id)
    with pytest.raises(FlowNotFound):
        await host.flows.purge("fine-0")


async def test_few_with_long_histories_are_purged_in_one_step(fleet, monkeypatch):
    monkeypatch.setattr(purging, "REMOVED_ROWS_MAX", 7)
    app = App("a")

    @app.step
    async def step() -> None: ...

    @app.flow
    async def flow(steps: int) -> None:
        for _ in range(steps):
            await step()

    host, spy = await fleet.spied(app)
    asked: list[int] = []
    spy.before["purge"] = lambda ids: asked.append(len(ids))
    for steps in (1, 2, 3, 9, 1, 1):
        handle = await host.flows.start(flow, steps)
        await handle.result(timeout=10)
    assert await host.flows.purge(status="completed") == 6
    assert asked == [4, 2]


async def test_attributes_keep_the_same_rules_wherever_they_are_set(fleet):
    app = App("a")

    @app.flow
    async def fine(n: int) -> int:
        outlive.set_attributes({"size": n})
        return n

    host, _ = await fleet.run(app)
    for wrong in ({"": 1}, {"a\n": 1}, {1: 1}, {"at": host}, {str(n): n for n in range(100)}):
        with pytest.raises(UsageError):
            await host.flows.start(fine, 1, attributes=wrong)
    without = await host.flows.start(fine, 9, id="without", attributes={"k": None, "l": True})
    await without.result(timeout=5)
    assert (await without.status()).attributes == {"l": True, "size": 9}


@pytest.mark.parametrize("verb", ["cancel", "terminate"])
async def test_how_a_flow_ended_is_told_by_its_own_status(fleet, verb):
    app, begun = App("a"), []

    @app.flow
    async def kid() -> None:
        begun.append(outlive.flow_id())
        await outlive.wait_signal("never")

    @app.flow
    async def parent() -> None:
        await kid()

    @app.flow
    async def top() -> str:
        try:
            await parent()
        except outlive.FlowFailed as error:
            return f"{type(error.cause).__name__} of {error.cause.id}"
        return "nothing"

    host, _ = await fleet.run(app)
    handle = await host.flows.start(top, id="t")
    middle = host.flows.get("t/parent#0")
    await until(lambda: begun)
    await getattr(host.flows.get(begun[0]), verb)("enough")
    kind = outlive.FlowCancelled if verb == "cancel" else outlive.FlowTerminated
    with pytest.raises(kind, match=r"^flow 't/parent#0/kid#0' was .*: enough$"):
        await host.flows.get(begun[0]).result(timeout=5)
    with pytest.raises(outlive.FlowFailed, match=r"t/parent#0/kid#0' was .*: enough") as caught:
        await middle.result(timeout=5)
    assert type(caught.value.cause) is kind
    assert (await middle.status()).status == "failed"
    assert await handle.result(timeout=5) == f"{kind.__name__} of t/parent#0/kid#0"
