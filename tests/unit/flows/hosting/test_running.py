"""Flows run through ``host.flows.start`` and ``host.run()``: steps, timers, results and cost."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import outlive
from outlive import App, Retry
from outlive.errors import FlowExists, FlowFailed, FlowNotFound, StepFailed, UsageError
from outlive.flows.events import StepEnded, StepRetrying, TimerFired
from tests.unit.flows.hosting.conftest import Gate
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


@dataclass
class Order:
    id: str
    amount: int


def shop(app: App):
    @app.step
    async def charge(order: Order) -> int:
        return order.amount

    @app.step
    def ship(order: Order) -> str:
        return f"{order.id} by {threading.current_thread().name}"

    @app.flow
    async def checkout(order: Order) -> dict[str, str | int]:
        paid = await charge(order)
        shipped = await ship(order)
        return {"paid": paid, "shipped": shipped}

    return checkout


async def test_a_flow_of_steps_runs_to_its_result(fleet):
    app = App("a")
    checkout = shop(app)
    host, _ = await fleet.run(app)
    handle = await host.flows.start(checkout, Order("o1", 5), id="order-1")
    result = await handle.result(timeout=5)
    assert result["paid"] == 5
    assert result["shipped"].startswith("o1 by outlive-step")
    assert (await handle.status()).status == "completed"


@pytest.mark.parametrize("steps", [0, 1, 2, 10])
async def test_a_flow_of_n_local_steps_costs_n_plus_one_commits_and_no_read(fleet, steps):
    app = App("a")

    @app.step
    async def add(a: int, b: int) -> int:
        return a + b

    @app.flow
    async def total(n: int) -> int:
        found = 0
        for number in range(n):
            found = await add(found, number)
        return found

    host, spy = await fleet.spied(app)
    await asyncio.sleep(0)
    before = spy.calls["claim"]
    handle = await host.flows.start(total, steps)
    assert await handle.result(timeout=5) == sum(range(steps))
    # The start, and one for each step; without steps there is one for the end.
    assert spy.calls["start"] == 1
    assert spy.calls["commit"] == max(steps, 1)
    assert spy.calls["claim"] - before <= 1
    assert not spy.calls.keys() - {"start", "commit", "claim"}


async def test_a_flow_started_elsewhere_is_claimed_by_who_can_run_it(fleet):
    app = App("a")
    checkout = shop(app)
    starter = await fleet.host("starter")
    handle = await starter.flows.start("checkout", {"order": {"id": "o", "amount": 1}})
    assert (await handle.status()).status == "pending"
    await fleet.run(app)
    assert (await handle.result(timeout=5))["paid"] == 1
    typed = starter.flows.get(handle.id, checkout)
    assert (await typed.result(timeout=5))["paid"] == 1


async def test_starting_an_id_twice_is_one_flow(fleet):
    app = App("a")
    checkout = shop(app)

    @app.flow
    async def other() -> None: ...

    host, _ = await fleet.run(app)
    one = await host.flows.start(checkout, Order("o", 1), id="same")
    two = await host.flows.start(checkout, Order("o", 2), id="same")
    assert await one.result(timeout=5) == await two.result(timeout=5)
    assert (one.entry, two.entry) == ("created", "existing")
    assert host.flows.get("same").entry is None
    with pytest.raises(FlowExists, match="'checkout'"):
        await host.flows.start(other, id="same")
    with pytest.raises(FlowNotFound):
        await host.flows.get("nobody").result(timeout=5)


async def test_timers_wait_and_flows_can_begin_later(fleet):
    app, began = App("a"), []

    @app.flow
    async def sleeper(seconds: float) -> float:
        start = outlive.now()
        await asyncio.sleep(seconds)
        return (outlive.now() - start).total_seconds()

    @app.flow
    async def noted() -> float:
        began.append(time.monotonic())
        return 1.0

    host, _ = await fleet.run(app)
    handle = await host.flows.start(sleeper, 0.05)
    assert 0.05 <= await handle.result(timeout=5) < 1
    fired = [event for step in await handle.history() for event in step.events]
    assert sum(isinstance(event, TimerFired) for event in fired) == 1
    asked = time.monotonic()
    later = await host.flows.start(noted, delay=0.1)
    at = await host.flows.start(noted, at=datetime.now(UTC) + timedelta(seconds=0.1))
    await later.result(timeout=5)
    await at.result(timeout=5)
    assert all(each - asked >= 0.09 for each in began)
    with pytest.raises(UsageError, match="not both"):
        await host.flows.start(noted, delay=1, at=datetime.now(UTC))
    with pytest.raises(UsageError, match="with a time zone"):
        await host.flows.start(noted, at=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_fan_out_goes_into_few_commits(fleet):
    app = App("a")

    @app.step
    async def square(n: int) -> int:
        await asyncio.sleep(0)
        return n * n

    @app.flow
    async def squares(n: int) -> int:
        return sum(await asyncio.gather(*(square(i) for i in range(n))))

    host, spy = await fleet.spied(app)
    handle = await host.flows.start(squares, 200)
    assert await handle.result(timeout=10) == sum(i * i for i in range(200))
    assert spy.calls["commit"] < 50


async def test_a_failed_step_is_retried_by_its_policy_and_told_with_its_type(fleet):
    app, calls = App("a"), []

    class Declined(Exception):
        pass

    @app.step(retry=Retry(max_attempts=3, first=0.01, jitter=0))
    async def flaky() -> int:
        calls.append(outlive.current().attempt)
        if len(calls) < 3:
            raise Declined("not yet")
        return len(calls)

    @app.step(retry=Retry(max_attempts=5, first=0.01, never=(Declined,)))
    def refused() -> None:
        raise Declined("no")

    @app.flow
    async def flow() -> str:
        await flaky()
        try:
            await refused()
        except StepFailed as error:
            return f"{error.type.rpartition('.')[2]}: {error.message}"
        return "never"

    host, _ = await fleet.run(app)
    handle = await host.flows.start(flow)
    assert await handle.result(timeout=5) == "Declined: no"
    assert calls == [1, 2, 3]
    events = [event for step in await handle.history() for event in step.events]
    assert [event.attempt for event in events if isinstance(event, StepRetrying)] == [1, 2]


async def test_retries_end_when_their_time_is_up(fleet):
    app, calls = App("a"), []

    @app.step(retry=Retry(max_attempts=1000, first=0.02, factor=1, jitter=0), retry_for=0.1)
    async def hopeless() -> None:
        calls.append(1)
        raise ValueError("no")

    @app.flow
    async def flow() -> None:
        await hopeless()

    host, _ = await fleet.run(app)
    with pytest.raises(FlowFailed, match="ValueError"):
        await (await host.flows.start(flow)).result(timeout=5)
    assert 1 < len(calls) <= 6


async def test_a_step_that_takes_too_long_or_is_silent_fails(fleet):
    app, seen = App("a"), []

    @app.step(timeout=0.03)
    async def slow() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @app.step(timeout=0.03)
    def slow_thread() -> None:
        while not outlive.cancelled():
            time.sleep(0.005)
        seen.append("told")

    @app.step(heartbeat=0.5)
    async def silent(*, beats: int) -> str:
        for number in range(beats):
            outlive.current().heartbeat({"at": number})
            await asyncio.sleep(0.02)
        await asyncio.sleep(30 if beats == 1 else 0)
        return "ended"

    @app.flow
    async def flow() -> list[str]:
        told = []
        for call in (slow(), slow_thread(), silent(beats=1), silent(beats=30)):
            try:
                told.append(await call)
            except StepFailed as error:
                told.append(error.message)
        return told

    host, _ = await fleet.run(app)
    told = await (await host.flows.start(flow)).result(timeout=5)
    assert told[:2] == ["the step did not end within 0.03 s"] * 2
    assert told[2:] == ["the step sent no heartbeat for 0.5 s", "ended"]
    await until(lambda: sorted(seen) == ["cancelled", "told"])


async def test_current_tells_a_step_what_it_is(fleet, caplog):
    app, seen = App("a"), []

    @app.step
    async def look() -> None:
        now = outlive.current()
        now.check()
        seen.append((now.flow, now.step, now.token, now.attempt, now.idempotency_key, now.host))
        now.log.warning("working")

    @app.flow
    async def flow() -> None:
        await look()
        await look()

    host, _ = await fleet.run(app, "web-1")
    await (await host.flows.start(flow, id="f")).result(timeout=5)
    assert seen == [
        ("f", "look#0", 1, 1, "f/look#0", "web-1"),
        ("f", "look#1", 1, 1, "f/look#1", "web-1"),
    ]
    records = [record for record in caplog.records if record.message == "working"]
    assert [(r.flow, r.step, r.host) for r in records] == [
        ("f", "look#0", "web-1"),
        ("f", "look#1", "web-1"),
    ]
    assert not outlive.cancelled()


async def test_no_more_of_a_step_run_at_once_than_it_allows(fleet):
    app, running, most = App("a"), 0, 0

    @app.step(concurrency=3)
    async def narrow() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1

    @app.flow
    async def flow() -> None:
        await asyncio.gather(*(narrow() for _ in range(20)))

    host, _ = await fleet.run(app)
    handles = [await host.flows.start(flow) for _ in range(2)]
    for handle in handles:
        await handle.result(timeout=5)
    assert most == 3


async def test_middleware_is_around_steps_too(fleet):
    app, seen = App("a"), []

    @app.middleware
    async def around(current, call):
        seen.append(current.step)
        return await call()

    @app.step
    async def one() -> int:
        return 1

    @app.step
    def two() -> int:
        return 2

    @app.flow
    async def flow() -> int:
        return await one() + await two()

    host, _ = await fleet.run(app)
    assert await (await host.flows.start(flow)).result(timeout=5) == 3
    assert seen == ["one#0", "two#0"]


async def test_a_flow_that_raises_fails_and_one_that_is_late_times_out(fleet):
    app = App("a")

    @app.flow
    async def wrong() -> None:
        raise ValueError("a mistake")

    @app.flow
    async def long() -> None:
        await asyncio.sleep(60)

    host, _ = await fleet.run(app)
    handle = await host.flows.start(wrong)
    with pytest.raises(FlowFailed, match="a mistake") as caught:
        await handle.result(timeout=5)
    assert caught.value.type == "ValueError"
    with pytest.raises(TimeoutError, match=r"did not end within 0.01 s: it is running"):
        await (await host.flows.start(long)).result(timeout=0.01)


async def test_who_waits_for_what_nobody_runs_is_told_so(fleet):
    host = await fleet.host("caller")
    handle = await host.flows.start("nowhere")
    with pytest.raises(TimeoutError, match="no host has claimed it; check that a host runs an app"):
        await handle.result(timeout=0.01)


@pytest.mark.parametrize("timeout", [0, 1e-6])
async def test_who_waits_for_no_time_finds_what_is_there(store_url, fleet, timeout):
    app = App("a")

    @app.flow
    async def flow() -> str:
        outlive.on_update("rename")(lambda name: name)
        return await outlive.wait_signal("hello", str)

    fleet.url = store_url
    host, _ = await fleet.run(app)
    looker = (await fleet.host("looker")).flows.get("f")
    with pytest.raises(FlowNotFound):
        await looker.result(timeout=timeout)
    handle = await host.flows.start(flow, id="f")
    with pytest.raises(TimeoutError, match=r"did not end within .* s: it is running"):
        await looker.result(timeout=timeout)
    assert await handle.update("rename", "y", id="u", timeout=5) == "y"
    assert await looker.update("rename", "y", id="u", timeout=timeout) == "y"
    await handle.signal("hello", "you")
    assert await handle.result(timeout=5) == "you"
    for each in (handle, looker, host.flows.get("f")):
        assert await each.result(timeout=timeout) == "you"


async def test_many_flows_start_in_one_call(fleet):
    app = App("a")

    @app.flow
    async def twice(n: int) -> int:
        return 2 * n

    host, spy = await fleet.spied(app)
    handles = await host.flows.start_many(twice, range(300))
    assert spy.calls["start"] == 1
    assert [await handle.result(timeout=10) for handle in handles] == [2 * n for n in range(300)]
    assert (await host.flows.count()) == {"completed": 300}
    with pytest.raises(UsageError, match="1 ids for 2"):
        await host.flows.start_many(twice, [1, 2], ids=["a"])


async def test_a_result_of_a_flow_that_runs_here_asks_nothing(fleet):
    app, release = App("a"), asyncio.Event()

    @app.step
    async def wait() -> int:
        await release.wait()
        return 7

    @app.flow
    async def flow() -> int:
        return await wait()

    host, spy = await fleet.spied(app)
    await host.flows.start(flow, id="f")
    waiting = asyncio.ensure_future(host.flows.get("f").result(timeout=5))
    await asyncio.sleep(0.01)
    release.set()
    assert await waiting == 7
    assert spy.calls["get"] == 0


async def test_many_wait_for_one_handle_and_who_leaves_takes_nobody_along(fleet):
    app = App("a")

    @app.flow
    async def waits() -> str:
        return await outlive.wait_signal("go", str)

    host, _ = await fleet.run(app)
    handle = await host.flows.start(waits)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await handle.result(timeout=0.01)
    waiting = host.flows._desk.waiters._waiting[handle.id]
    assert len(waiting) < 3
    leaving, *staying = [asyncio.create_task(handle.result()) for _ in range(3)]
    await until(lambda: sum(not each.left for each in waiting) == 3)
    leaving.cancel()
    await handle.signal("go", "now")
    assert await asyncio.wait_for(asyncio.gather(*staying), 5) == ["now", "now"]
    assert await handle.result() == "now"
    assert leaving.cancelled()


async def test_a_step_called_outside_of_a_flow_is_a_plain_call(fleet):
    app = App("a")
    checkout = shop(app)
    assert isinstance(checkout, outlive.flows.flow.Flow)
    assert await app.steps["charge"](Order("o", 3)) == 3
    assert StepEnded.__name__ == "StepEnded"


async def test_a_flow_that_may_begin_anywhere_is_left_to_hosts_with_room(fleet):
    app, ran = App("a"), []

    @app.step
    async def note() -> None:
        ran.append(outlive.current().host)

    @app.flow
    async def noting() -> None:
        await note()

    producer, spy = await fleet.spied(app, "producer")
    gate = spy.before["claim"] = Gate()
    gate.shut = True
    await fleet.run(app, "other")
    handles = [await producer.flows.start(noting, anywhere=True) for _ in range(5)]
    for handle in handles:
        await handle.result(timeout=20)
    # The producer, which claims nothing here, would have begun each of them itself.
    assert ran == ["other"] * 5
    gate.open()
