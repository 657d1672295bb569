"""What becomes of flows when replies are lost, sessions end, hosts stop and code does not fit."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import outlive
from outlive import App, FlowOptions, Retry
from outlive.errors import ClaimLost, FlowFailed, OutcomeUnknown, StoreUnavailable
from tests.unit.bodies import stay
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


def counting(app: App, calls: list):
    @app.step
    async def step(n: int) -> int:
        calls.append(n)
        return n

    @app.flow
    async def flow(n: int) -> int:
        total = 0
        for number in range(n):
            total += await step(number)
        return total

    return flow


def every(number: int, error: Exception):
    """Raise ``error`` at each ``number``-th call."""
    calls = 0

    def fail(*_args, **_kwargs):
        nonlocal calls
        calls += 1
        if calls % number == 0:
            raise error

    return fail


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["start", "commit", "claim"])
async def test_a_lost_reply_costs_time_and_nothing_else(fleet, when, method):
    app, calls = App("a"), []
    flow = counting(app, calls)
    host, spy = await fleet.spied(app)
    wrong = StoreUnavailable("gone") if when == "before" else OutcomeUnknown("lost")
    getattr(spy, when)[method] = every(2, wrong)
    for number in range(4):
        while True:
            try:
                handle = await host.flows.start(flow, 3, id=f"f{number}")
                break
            except StoreUnavailable:
                assert (method, when) == ("start", "before")
        assert await handle.result(timeout=10) == 3
    assert calls == [0, 1, 2] * 4
    for number in range(4):
        versions = [commit.version for commit in await host.flows.get(f"f{number}").history()]
        assert versions == [1, 2, 3]


async def test_a_lost_session_drops_everything_and_the_host_goes_on(fleet):
    app, seen, release = App("a"), [], threading.Event()

    @app.step
    async def waits() -> str:
        seen.append("async began")
        try:
            await asyncio.sleep(0.2 if seen.count("async began") > 1 else 60)
        except asyncio.CancelledError:
            seen.append("async cancelled")
            raise
        return "async"

    @app.step
    def blocks() -> str:
        current = outlive.current()
        first = "sync began" not in seen
        seen.append("sync began")
        if not first:
            return "sync"
        while not outlive.cancelled():
            time.sleep(0.005)
        with pytest.raises(ClaimLost):
            _ = current.token
        seen.append("sync told")
        release.set()
        return "too late"

    @app.flow
    async def flow() -> list[str]:
        return list(await asyncio.gather(waits(), blocks()))

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    await until(lambda: {"async began", "sync began"} <= set(seen))
    await host._driver.hosts.close(host._sessions.now.id)
    host._sessions.doubt(host._sessions.now)
    await until(lambda: {"async cancelled", "sync told"} <= set(seen))
    assert await handle.result(timeout=10) == ["async", "sync"]
    assert (await handle.status()).token > 1
    assert release.is_set()


async def test_a_stale_owner_is_fenced_and_starts_nothing(fleet):
    app, calls, release = App("a"), [], asyncio.Event()

    @app.step
    async def step(n: int) -> int:
        calls.append(n)
        if len(calls) == 1:
            await release.wait()
        return n

    @app.flow
    async def flow() -> int:
        return await step(0) + await step(1)

    host, _ = await fleet.spied(app)
    handle = await host.flows.start(flow, id="f")
    await until(lambda: calls == [0])
    await host._driver.instances.terminate("f", outcome='{"type": "T", "message": "m"}')
    # The ring that tells of it is not needed: the commit is refused.
    release.set()
    with pytest.raises(FlowFailed):
        await handle.result(timeout=5)
    await until(lambda: not host._desk.host.home.lives)
    assert calls == [0]


async def test_a_host_that_stops_hands_its_flows_over_at_once(fleet):
    app, calls = App("a"), []

    @app.step
    async def step(n: int) -> int:
        calls.append((n, outlive.current().host))
        await asyncio.sleep(0.05)
        return n

    @app.flow
    async def flow() -> int:
        await step(0)
        await asyncio.sleep(0.02)
        return await step(1) + await step(2)

    one, running = await fleet.run(app, "one")
    handle = await one.flows.start(flow)
    await until(lambda: calls)
    two, _ = await fleet.run(app, "two")
    one.stop()
    await running
    # What ran was recorded, and is not repeated.
    assert await two.flows.get(handle.id).result(timeout=5) == 3
    assert calls == [(0, "one"), (1, "two"), (2, "two")]


async def test_a_timer_that_only_a_leaving_host_knew_of_rings_elsewhere(fleet):
    app = App("a")

    @app.flow
    async def flow() -> str:
        await asyncio.sleep(0.8)
        return "woken"

    two, _ = await fleet.run(app, "two")
    options = FlowOptions(park_grace=0)
    one, running = await fleet.run(app, "one", flows=options)
    await until(lambda: one._desk.host is not None and one._desk.host.open)
    # The other has looked, and will not of itself for a minute.
    other = two._desk.host
    await until(lambda: other._lookout.at - other._clock.monotonic() > 10)
    handle = await one.flows.start(flow)
    await until(lambda: one._desk.host.home.lives == {})
    assert (await handle.status()).status == "running"
    one.stop()
    await running
    assert await two.flows.get(handle.id).result(timeout=5) == "woken"


@pytest.mark.parametrize("what", ["flow", "session"])
async def test_a_host_that_stops_still_hears_what_is_taken_from_it(fleet, what):
    app, seen = App("a"), []

    @app.step
    async def long() -> None:
        await stay(seen)

    @app.flow
    async def whole() -> None:
        await long()

    host = await fleet.host(app=app, session_ttl=0.6)
    task = asyncio.create_task(host.run(grace=60))
    await until(lambda: host._desk.host is not None)
    handle = await host.flows.start(whole)
    await until(lambda: seen)
    runner = host._desk.host
    host.stop()
    await until(runner._ended.done)
    if what == "flow":
        await handle.terminate("enough")
    else:
        await host._driver.hosts.close(host.work.claimer.sessions.now.id)
    await asyncio.wait_for(task, 8)
    assert seen == ["began", "cancelled"]


async def test_a_step_that_does_not_end_in_the_grace_is_run_elsewhere(fleet):
    app, calls = App("a"), []

    @app.step
    async def step() -> str:
        calls.append(outlive.current().host)
        await asyncio.sleep(60 if len(calls) == 1 else 0)
        return outlive.current().host

    @app.flow
    async def flow() -> str:
        return await step()

    one = await fleet.host("one", app=app)
    running = asyncio.create_task(one.run(grace=0.05))
    await until(lambda: one._desk.host is not None and one._desk.host.open)
    handle = await one.flows.start(flow)
    await until(lambda: calls == ["one"])
    two, _ = await fleet.run(app, "two")
    one.stop()
    await running
    assert await two.flows.get(handle.id).result(timeout=5) == "two"


async def test_a_flow_that_only_waits_is_parked_and_wakes(fleet):
    app = App("a")

    @app.flow
    async def waits() -> str:
        return await outlive.wait_signal("go", str)

    @app.flow
    async def sleeps() -> str:
        await asyncio.sleep(0.3)
        return "woke"

    host, spy = await fleet.spied(app, flows=FlowOptions(park_grace=0.05))
    signalled = await host.flows.start(waits)
    slept = await host.flows.start(sleeps)
    await until(lambda: not host._desk.host.home.lives)
    await until(lambda: spy.calls["release"] >= 1)
    assert (await slept.status()).host is None
    await signalled.signal("go", "gone")
    assert await signalled.result(timeout=5) == "gone"
    assert await slept.result(timeout=5) == "woke"


async def test_a_parked_flow_is_left_alone_until_something_happens(fleet):
    app = App("a")

    @app.flow
    async def waits() -> str:
        return await outlive.wait_signal("go", str)

    host, spy = await fleet.spied(app, flows=FlowOptions(park_grace=0.02, poll=0.1))
    handle = await host.flows.start(waits)
    await until(lambda: not host._desk.host.home.lives)
    # Nothing was decided, so that only the one who let it go could say that it is not due.
    await until(lambda: [commit.release for commit in spy.commits] == [True])
    await asyncio.sleep(0.3)
    assert (await handle.status()).token == 1
    await handle.signal("go", "on")
    assert await handle.result(timeout=5) == "on"


async def test_an_idle_host_asks_next_to_nothing(fleet):
    app = App("a")

    @app.flow
    async def waits() -> None:
        await asyncio.sleep(3600)

    host, spy = await fleet.spied(app, flows=FlowOptions(park_grace=0.05))
    await host.flows.start_many(waits, [() for _ in range(500)])
    await until(lambda: spy.calls["commit"] >= 500 or len(spy.commits) == 500, 20)
    await until(lambda: not host._desk.host.home.lives, 20)

    async def asked_in(seconds: float) -> int:
        before = sum(spy.calls.values())
        await asyncio.sleep(seconds)
        return sum(spy.calls.values()) - before

    async def quiet() -> bool:
        return await asked_in(0.3) == 0

    # The last are on their way to the store still, and a look follows them.
    await until(quiet, 20)
    assert await asked_in(1.0) <= 1


async def test_a_stuck_flow_waits_for_code_that_fits_and_is_not_failed(fleet, monkeypatch):
    monkeypatch.setattr("outlive.flows.stuck._FIRST_S", 0.02)
    old, new = App("a"), App("a")

    def define(app, name):
        @app.step(name=name)
        async def step() -> str:
            return name

        @app.flow
        async def flow() -> str:
            found = await step()
            await outlive.wait_signal("go")
            return found

        return flow

    first = define(old, "one")
    define(new, "two")

    @new.flow(name="other")
    async def other() -> None: ...

    one, running = await fleet.run(old, "one")
    handle = await one.flows.start(first, id="f")
    await until(lambda: one._desk.host.home.lives["f"].row.version == 1)
    one.stop()
    await running
    broken = App("b")

    @broken.step(name="one")
    async def same(n: int) -> str:
        return str(n)

    @broken.flow(name="flow")
    async def changed() -> str:
        return await same(1)

    two, spoiled = await fleet.run(broken, "two")
    await handle.signal("go")
    stuck = "outlive.stuck"
    await until(lambda: _has(two, "f", stuck))
    assert (await handle.status()).status == "running"
    assert "NonDeterminism" in (await handle.status()).attributes[stuck]
    (found,) = await two.flows.list(stuck=True)
    assert (found.id, found.stuck) == ("f", found.attributes[stuck])
    assert await two.flows.count(stuck=True) == {"running": 1}
    commits = (await handle.status()).version
    await asyncio.sleep(0.2)
    # It is tried again now and then, and leaves no trace of that in its history.
    assert (await handle.status()).version == commits
    two.stop()
    await spoiled
    three, _ = await fleet.run(old, "three")
    assert await three.flows.get("f").result(timeout=5) == "one"
    assert stuck not in (await handle.status()).attributes
    assert await three.flows.list(stuck=True) == []


async def _has(host, flow, attribute):
    return attribute in (await host.flows.get(flow).status()).attributes


async def test_no_more_flows_are_active_than_the_host_allows(fleet):
    app, running, most = App("a"), 0, 0

    @app.step
    async def step() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    @app.flow
    async def flow() -> None:
        await step()

    host, _ = await fleet.run(app, flows=FlowOptions(concurrency=3))
    handles = [await host.flows.start(flow) for _ in range(20)]
    for handle in handles:
        await handle.result(timeout=10)
    assert most <= 3
    assert host._desk.host.home.active == 0


async def test_once_is_not_run_again_after_a_crash(fleet):
    app, calls = App("a"), []

    @app.step(once=True)
    async def pay() -> str:
        calls.append(outlive.current().host)
        await asyncio.sleep(60)
        return "paid"

    @app.flow
    async def flow() -> str:
        try:
            return await pay()
        except outlive.StepOutcomeUnknown:
            return "unknown"

    one, running = await fleet.run(app, "one")
    handle = await one.flows.start(flow)
    await until(lambda: calls == ["one"])
    two, _ = await fleet.run(app, "two")
    running.cancel()
    assert await two.flows.get(handle.id).result(timeout=5) == "unknown"
    assert calls == ["one"]


async def test_a_step_that_gets_no_thread_has_failed_and_holds_up_nobody(fleet):
    app, go = App("a"), threading.Event()

    @app.step(concurrency=1, retry=Retry(max_attempts=3, first=0.01, jitter=0))
    def slow(number: int) -> int:
        go.wait(5)
        return number

    @app.flow
    async def waiting(number: int) -> int:
        return await slow(number)

    host, _ = await fleet.run(app)
    first = await host.flows.start(waiting, 1)
    second = await host.flows.start(waiting, 2)
    await until(lambda: host._desk.host.home.executor._pool is not None)
    pool = host._desk.host.home.executor._pool
    submit, refused = pool.submit, []

    def refuse_once(*args):
        # As the pool does it: what it has no thread for stays in its queue.
        queued = submit(*args)
        if not refused:
            refused.append(True)
            raise RuntimeError("can't start new thread")
        return queued

    pool.submit = refuse_once
    go.set()
    assert [await each.result(timeout=5) for each in (first, second)] == [1, 2]
    assert refused
