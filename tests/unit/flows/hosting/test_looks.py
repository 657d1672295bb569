"""What a host does when somebody has operated on its flows: it reads how they stand, in order."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App
from outlive.flows.activation import LiveFlow
from tests.unit.flows.hosting.conftest import Gate
from tests.unit.work.conftest import until

pytestmark = pytest.mark.whitebox


def make_app(ends: asyncio.Event, ran: list[int]) -> App:
    app = App("looks")

    @app.step
    async def long() -> None:
        await ends.wait()

    @app.step
    async def charge(number: int) -> None:
        ran.append(number)

    @app.flow
    async def flow() -> None:
        async def other() -> None:
            number = 0
            while True:
                await outlive.wait_signal("go")
                await charge(number)
                number += 1

        task = asyncio.create_task(other())
        await long()
        task.cancel()

    return app


async def begun(fleet, ends, ran):
    """A flow that stays with its host, the store of which answers late when it is told to."""
    app = make_app(ends, ran)
    host, spy = await fleet.spied(app)
    handle = await host.flows.start(app.flows["flow"])
    live = host._desk.host.home.lives[handle.id]
    await until(lambda: live.steps.running)
    gate, store = Gate(), host._driver.instances

    async def get(id_, **options):
        record = await store.get(id_, **options)
        held = gate()
        if held is not None:
            await held
        return record

    spy.__dict__["get"] = get
    return host, handle, live, gate


async def test_an_older_look_does_not_resume_what_was_suspended_since(fleet, monkeypatch):
    ends, ran = asyncio.Event(), []
    host, handle, live, gate = await begun(fleet, ends, ran)
    told: list[bool] = []
    operated = LiveFlow.operated

    def note(live: LiveFlow, *, suspended: bool) -> None:
        told.append(suspended)
        operated(live, suspended=suspended)

    monkeypatch.setattr(LiveFlow, "operated", note)
    gate.shut = True
    host._desk.host._on_missed()
    await until(lambda: gate.reached)
    gate.shut = False
    await handle.suspend()
    # Its own look, if there is one already, has been answered then.
    for _ in range(100):
        await asyncio.sleep(0)
    gate.open()
    await until(lambda: len(told) == 2)
    assert told[-1]
    assert live.suspended
    await handle.resume()
    ends.set()
    await handle.result(timeout=5)


async def test_a_look_during_which_a_commit_was_answered_is_made_again(fleet):
    """The answer of a commit tells as well that a flow is suspended, and may be the newer one."""
    ends, ran = asyncio.Event(), []
    host, handle, live, gate = await begun(fleet, ends, ran)
    gate.shut = True
    host._desk.host._on_missed()
    await until(lambda: gate.reached)
    gate.shut = False
    version = live.row.version
    # Nobody rings for it.
    await host._driver.instances.suspend(handle.id)
    await handle.signal("go")
    await until(lambda: live.row.version > version)
    assert live.suspended
    gate.open()
    await until(lambda: not host._desk.host._looked_at)
    assert live.suspended
    ends.set()
    await until(lambda: live.closed)
    await handle.resume()
    await handle.result(timeout=5)
