"""Groups: who is in them, who reaches whom, and what releasing one does."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from outlive.charts import Actor, Chart, send_to
from outlive.charts.orchestrator import Orchestrator
from outlive.errors import GroupReleased, InvalidName, UnknownTarget, UsageError
from tests.unit.charts.orchestrator.charts_used import RECORDER, TOGGLE, gated


@pytest.fixture
async def hub():
    made = Orchestrator()
    yield made
    await made.force_cleanup()


async def test_a_group_is_a_token_with_id_name_and_birth(hub):
    first, second = hub.group("tenant"), hub.group("tenant")
    assert first.name == second.name == "tenant"
    assert first.id != second.id
    assert first.created_at <= second.created_at
    assert first
    assert not first.released
    await first.release()
    assert first.released
    assert hub.groups == (second,)


async def test_the_id_of_a_machine_says_base_group_and_guid(hub):
    group = hub.group("tenant")
    machine = await group.start(TOGGLE, id="order")
    assert re.fullmatch(rf"order#{group.id}#[0-9a-f]{{16}}", machine.id)
    assert machine.group is group
    assert group.get("order") is group.get(machine.id) is machine


async def test_ungrouped_machines_live_in_the_default_group(hub):
    machine = await hub.start(TOGGLE)
    assert machine.group is hub.default_group
    await hub.default_group.release()
    assert not hub.default_group.released


async def test_a_machine_is_restored_into_a_group(hub):
    first, second = hub.group("first"), hub.group("second")
    machine = await first.start(TOGGLE, id="light")
    await machine.request("FLIP")
    saved = machine.persist()
    await first.release()
    again = second.restore(TOGGLE, json.loads(json.dumps(saved)))
    assert not again.running
    await again.start()
    assert second.get("light") is again
    assert again.snapshot.value == "on"
    assert (await again.request("FLIP")).value == "off"
    with pytest.raises(UsageError, match="not of 'toggle'"):
        second.restore(TOGGLE, {**saved, "chart": "other"})


async def test_an_actor_moves_into_a_group(hub):
    actor = Actor(TOGGLE, id="light").start()
    actor.send("FLIP")
    group = hub.group("g")
    machine = await group.start(actor)
    assert actor.ended
    assert group.get("light") is machine
    assert machine.snapshot.value == "on"
    with pytest.raises(UsageError, match="busy or was not started"):
        group.register(Actor(TOGGLE))


async def test_register_start_stop_and_unregister_are_separate_acts(hub):
    group = hub.group("g")
    machine = group.register(TOGGLE)
    assert group.machines == (machine,)
    assert not machine.running
    with pytest.raises(UnknownTarget, match="not started"):
        await machine.send("FLIP")
    await machine.start()
    assert machine.running
    with pytest.raises(UsageError, match="is already running"):
        await machine.start()
    with pytest.raises(UsageError, match="still runs"):
        machine.unregister()
    await machine.stop()
    assert group.machines == (machine,)
    machine.unregister()
    machine.unregister()
    assert group.machines == ()


async def test_a_machine_that_was_never_started_can_be_stopped_and_released(hub):
    group = hub.group("g")
    machine = group.register(TOGGLE)
    await machine.stop()
    await machine.stop(drain=False)
    for waiting in (machine.request("FLIP"), machine.send("FLIP"), machine.settled()):
        with pytest.raises(UnknownTarget, match="not started"):
            await waiting
    assert (await machine.start()).running
    other = group.register(TOGGLE)
    await group.release()
    with pytest.raises(GroupReleased):
        await other.start()
    with pytest.raises(GroupReleased):
        await other.send("FLIP")


async def test_a_stopped_machine_starts_anew(hub):
    machine = await hub.start(RECORDER)
    await machine.request("NOTE", n=1)
    await machine.stop()
    assert machine.snapshot.status == "stopped"
    await machine.start()
    assert (await machine.request("NOTE", n=2)).context["seen"] == [2]


HOSTILE = ["order_2", "a#3#b", "#", "order#1#0000000000000000", "*", "../x", "order#2"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_id_reaches_across_groups(hub, name):
    mine, other = hub.group("mine"), hub.group("other")
    victim = await other.start(TOGGLE, id="order")
    for attempt in (name, victim.id, f"order#{other.id}", f"order#{other.id}#*"):
        with pytest.raises(UnknownTarget):
            mine.get(attempt)
        with pytest.raises(UnknownTarget):
            await mine.send(attempt, "FLIP")
    own = await mine.start(RECORDER, id=name)
    twin = await mine.start(RECORDER, id=victim.id)
    assert mine.get(name) is own
    assert mine.get(victim.id) is twin
    mine.broadcast("FLIP")
    await asyncio.sleep(0)
    assert victim.snapshot.value == "off"


async def test_namesakes_are_told_apart_by_their_whole_ids(hub):
    group = hub.group("g")
    machines = [await group.start(TOGGLE) for _ in range(3)]
    with pytest.raises(UnknownTarget, match="3 machines"):
        group.get("toggle")
    for machine in machines:
        assert group.get(machine.id) is machine
    for machine in machines[:2]:
        await machine.stop()
        machine.unregister()
    assert group.get("toggle") is machines[2]


def sender(target: str) -> Chart:
    return Chart.load(
        {"id": "sender", "on": {"GO": {"actions": "pass_on"}}},
        actions={"pass_on": send_to(target, {"type": "NOTE", "n": 7}, scope="machine")},
    )


async def test_a_machine_reaches_its_own_group_only(hub):
    mine, other = hub.group("mine"), hub.group("other")
    foreign = await other.start(RECORDER, id="recorder")
    one = await mine.start(sender("recorder"))
    with pytest.raises(UnknownTarget):
        await one.request("GO")
    near = await mine.start(RECORDER)
    await one.request("GO")
    await near.request("NOTE", n=8)
    assert near.snapshot.context["seen"] == [7, 8]
    assert foreign.snapshot.context["seen"] == []


async def test_a_link_lets_one_group_reach_another_and_not_back(hub):
    mine, other = hub.group("mine"), hub.group("other")
    far = await other.start(RECORDER)
    one = await mine.start(sender("recorder"))
    back = await other.start(sender("sender"), id="back")
    mine.link(other)
    await one.request("GO")
    assert (await far.request("NOTE", n=8)).context["seen"] == [7, 8]
    with pytest.raises(UnknownTarget):
        await back.request("GO")
    mine.unlink(other)
    with pytest.raises(UnknownTarget):
        await one.request("GO")
    with pytest.raises(UsageError):
        mine.link(Orchestrator().group("elsewhere"))


async def test_broadcast_reaches_every_machine_that_runs(hub):
    group, other = hub.group("g"), hub.group("other")
    machines = [await group.start(TOGGLE) for _ in range(5)]
    group.register(TOGGLE)
    bystander = await other.start(TOGGLE)
    assert group.broadcast("FLIP") == 5
    for machine in machines:
        assert (await machine.request("LOOK")).value == "on"
    assert bystander.snapshot.value == "off"


async def test_release_ends_everything_and_answers_those_who_wait(hub):
    gate = asyncio.Event()
    group = hub.group("g")
    slow = await group.start(gated(gate))
    handled = asyncio.ensure_future(slow.request("SLOW"))
    waiting = asyncio.ensure_future(slow.request("PING"))
    await asyncio.sleep(0.01)
    await group.release()
    for request in (handled, waiting):
        with pytest.raises(GroupReleased):
            await request
    assert slow.snapshot.status == "stopped"
    await group.release()
    with pytest.raises(GroupReleased):
        await slow.send("PING")
    with pytest.raises(GroupReleased):
        await group.start(TOGGLE)
    with pytest.raises(GroupReleased):
        group.broadcast("FLIP")
    assert hub.metrics().active_machines == 0


async def test_release_stops_timers_services_and_activities(hub):
    ended: list[str] = []

    async def service() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("service")

    def activity(send):
        return lambda: ended.append("activity")

    fired: list[str] = []
    chart = Chart.load(
        {
            "id": "c",
            "initial": "a",
            "states": {
                "a": {
                    "invoke": [{"src": "service"}, {"src": "activity"}],
                    "after": {"20": {"actions": "fire"}},
                }
            },
        },
        actions={"fire": lambda: fired.append("timer")},
        services={"service": service, "activity": activity},
    )
    async with hub.group("g") as group:
        await group.start(chart)
        await asyncio.sleep(0)
    await asyncio.sleep(0.04)
    assert sorted(ended) == ["activity", "service"]
    assert fired == []


async def test_a_clean_up_that_raises_does_not_stop_a_release(hub):
    def broken(send):
        def clean_up() -> None:
            raise RuntimeError("no")

        return clean_up

    chart = Chart.load({"id": "c", "invoke": {"src": "broken"}}, services={"broken": broken})
    heard: list[BaseException] = []
    hub.on_error(lambda _, error: heard.append(error))
    group = hub.group("g")
    machines = [await group.start(chart) for _ in range(3)]
    await group.release()
    assert [machine.running for machine in machines] == [False] * 3
    assert len(heard) == 3


async def test_an_action_may_release_its_own_group(hub):
    group = hub.group("g")

    async def leave() -> None:
        await group.release()

    chart = Chart.load({"id": "c", "on": {"GO": {"actions": "leave"}}}, actions={"leave": leave})
    machine = await group.start(chart)
    with pytest.raises(GroupReleased):
        await machine.request("GO")
    assert group.released


async def test_force_cleanup_releases_every_group(hub):
    for name in ("a", "b"):
        group = hub.group(name)
        await group.start(TOGGLE)
    await hub.start(TOGGLE)
    assert await hub.force_cleanup() == 3
    assert hub.groups == ()
    assert hub.metrics().machines == 0


@pytest.mark.parametrize("name", ["", "x" * 256, None, 7])
async def test_names_have_limits(hub, name):
    with pytest.raises(InvalidName):
        hub.group(name)
    if name is not None:
        with pytest.raises(InvalidName):
            hub.group("g").register(TOGGLE, id=name)
