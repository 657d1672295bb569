"""What comes due without a ring is looked at in its own time, however busy the host is."""

from __future__ import annotations

import asyncio
import itertools

import pytest

import outlive
from outlive.flows import desk
from outlive.ports.wakeups import MISSED

# A whole test is over within this; the polls of flows come much later.
PATIENCE_S = 20

_names = itertools.count()


@pytest.fixture
def url():
    return f"memory://own-time-{next(_names)}"


async def test_a_busy_queue_does_not_keep_a_job_of_another_from_its_time(url) -> None:
    app, late = outlive.App("a"), asyncio.Event()

    @app.handler("busy")
    async def busy(number: int) -> None:
        del number

    @app.handler("quiet")
    async def quiet(number: int) -> None:
        del number
        late.set()

    async with (
        asyncio.timeout(PATIENCE_S),
        outlive.connect(url, app=app, name="h") as host,
        host.running(),
        outlive.connect(url, name="guest") as guest,
    ):
        await guest.work.enqueue("quiet", 1, delay=0.3)
        # Shorter than the poll, and longer than the delay.
        for number in range(80):
            if late.is_set():
                break
            await guest.work.enqueue("busy", number)
            await asyncio.sleep(0.05)
        assert late.is_set()


async def test_a_flow_that_came_due_while_no_slot_was_free_begins_with_the_next(url) -> None:
    app, go = outlive.App("a"), asyncio.Event()

    @app.step
    async def work() -> None:
        await go.wait()

    @app.flow
    async def long() -> None:
        await work()

    @app.flow
    async def short() -> int:
        return 1

    options = outlive.FlowOptions(concurrency=1, poll=600)
    async with (
        asyncio.timeout(PATIENCE_S),
        outlive.connect(url, app=app, name="h", flows=options) as host,
        host.running(),
        outlive.connect(url, app=app, name="guest") as guest,
    ):
        handle = await guest.flows.start(short, delay=0.5)
        # The host knows when it is due.
        await asyncio.sleep(0.1)
        await host.flows.start(long)
        # It is looked for then, in vain: there is no slot.
        await asyncio.sleep(0.8)
        go.set()
        assert await handle.result() == 1


async def test_who_waits_for_a_flow_looks_when_rings_may_have_been_missed(url, monkeypatch) -> None:
    monkeypatch.setattr(desk, "POLL_S", 600.0)
    monkeypatch.setattr(desk, "_DOUBTS_S", ())
    app, go = outlive.App("a"), asyncio.Event()

    @app.step
    async def work() -> None:
        await go.wait()

    @app.flow
    async def waits() -> int:
        await work()
        return 1

    async with (
        asyncio.timeout(PATIENCE_S),
        outlive.connect(url, app=app, name="h") as host,
        host.running(),
        outlive.connect(url, app=app, name="guest") as guest,
    ):
        handle = await host.flows.start(waits)
        waiting = asyncio.ensure_future(guest.flows.get(handle.id).result())
        await asyncio.sleep(0.1)
        # Its ears are shut while the flow ends.
        listeners, guest._driver.wakeups._listeners = guest._driver.wakeups._listeners, []
        go.set()
        assert await handle.result() == 1
        await asyncio.sleep(0.1)
        assert not waiting.done()
        guest._driver.wakeups._listeners = listeners
        guest._driver.wakeups.deliver(MISSED)
        assert await waiting == 1
