"""Actions that behave badly: cancelled ones, stubborn ones, those that would end the program."""

from __future__ import annotations

import asyncio

import pytest

from outlive.charts import Chart, assign
from outlive.charts.orchestrator import Orchestrator
from outlive.errors import ChartError, GroupReleased, UnknownTarget
from tests.unit.charts.orchestrator.charts_used import TOGGLE


@pytest.fixture
async def hub():
    made = Orchestrator(logging=False)
    yield made
    await made.force_cleanup()


def chart_of(action, **more) -> Chart:
    """A chart whose action for GO is ``action``, and that counts its PINGs."""
    return Chart.load(
        {
            "id": "bad",
            "context": {"pings": 0},
            "initial": "a",
            "states": {"a": {"on": {"END": "over"}}, "over": {"type": "final"}},
            "on": {"GO": {"actions": ["action", "after"]}, "PING": {"actions": "count"}},
        },
        actions={
            "action": action,
            "after": more.get("after", lambda: None),
            "count": assign(pings=lambda context: context["pings"] + 1),
        },
    )


async def test_an_action_whose_work_was_cancelled_elsewhere_is_an_error(hub):
    async def action() -> None:
        work = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(work.cancel)
        await work

    machine = await hub.start(chart_of(action))
    with pytest.raises(ChartError, match="was cancelled"):
        await machine.request("GO", timeout=5)
    assert (await machine.request("PING", timeout=5)).context["pings"] == 1


async def test_a_stubborn_action_does_nothing_to_the_next_life(hub):
    gate = asyncio.Event()
    done: list[str] = []

    async def action() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await gate.wait()

    machine = await hub.start(chart_of(action, after=lambda: done.append("after")))
    request = asyncio.ensure_future(machine.request("GO", timeout=5))
    await asyncio.sleep(0.01)
    stopping = asyncio.ensure_future(machine.stop(drain=False))
    await asyncio.sleep(0.01)
    with pytest.raises(UnknownTarget):
        await request
    await machine.start()
    gate.set()
    await stopping
    assert (await machine.request("PING", timeout=5)).context["pings"] == 1
    assert done == []


async def test_release_cancels_the_action_of_a_machine_that_has_ended(hub):
    ended: list[str] = []

    async def action(actor) -> None:
        await actor.request("END")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    group = hub.group("g")
    machine = await group.start(chart_of(action))
    request = asyncio.ensure_future(machine.request("GO", timeout=5))
    await asyncio.sleep(0.01)
    assert machine.snapshot.status == "done"
    await group.release()
    assert ended == ["cancelled"]
    with pytest.raises(GroupReleased):
        await request


class Exit(BaseException):
    """Something that is no Exception, like SystemExit."""


async def test_what_breaks_out_of_a_machine_stops_nobody(hub):
    def action() -> None:
        raise Exit

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    bad, good = await hub.start(chart_of(action)), await hub.start(TOGGLE)
    request = asyncio.ensure_future(bad.request("GO", timeout=5))
    await asyncio.sleep(0)
    good.send("FLIP")
    with pytest.raises(Exit):
        await request
    assert (await good.request("LOOK", timeout=5)).value == "on"
    assert (await bad.request("PING", timeout=5)).context["pings"] == 1
    assert [type(error) for error in reported] == [Exit]


async def test_a_listener_that_fails_harms_nobody(hub):
    machine = await hub.start(TOGGLE)
    hub.on_error(lambda *_: 1 / 0)
    hub.letters.listen(lambda _: 1 / 0)
    machine.subscribe(lambda _: 1 / 0)
    assert (await machine.request("FLIP")).value == "on"
    hub.default_group.send("nobody", "HELLO")
    assert len(hub.letters) == 1
