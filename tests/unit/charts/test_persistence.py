"""Machines as JSON: what is kept, what starts again, and when timers fire."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from outlive.charts import Actor, Chart, Environment, Event, SimulatedClock, assign, send_to
from outlive.charts.interpreter import Interpreter
from outlive.charts.orchestrator import Orchestrator
from outlive.charts.persistence import snapshot_from_json
from outlive.errors import UsageError

TIMED = {
    "id": "timed",
    "initial": "a",
    "states": {"a": {"after": {"100": "b"}}, "b": {}},
}


def kept(actor: Interpreter) -> dict[str, Any]:
    return json.loads(json.dumps(actor.persist()))


@pytest.mark.parametrize(
    ("policy", "fires_after_ms"), [("absolute", 0), ("remaining", 40), ("restart", 100)]
)
def test_timers_survive_by_policy(policy, fires_after_ms):
    chart = Chart.load(TIMED)
    before = SimulatedClock()
    actor = Actor(chart, environment=Environment(timers=before)).start()
    before.advance(0.06)
    saved = kept(actor)
    actor.stop()
    # A restart that takes half a second: absolute times are past by then.
    later = SimulatedClock(before.now() + 0.5)
    again = Actor.restore(
        chart, saved, environment=Environment(timers=later), timers=policy
    ).start()
    if fires_after_ms:
        later.advance((fires_after_ms - 1) / 1000)
        assert again.snapshot.value == "a"
    later.advance(0.001)
    assert again.snapshot.value == "b"


def test_an_absolute_timer_fires_when_it_was_due():
    chart = Chart.load(TIMED)
    clock = SimulatedClock()
    actor = Actor(chart, environment=Environment(timers=clock)).start()
    clock.advance(0.06)
    again = Actor.restore(chart, kept(actor), environment=Environment(timers=clock)).start()
    actor.stop()
    clock.advance(0.039)
    assert again.snapshot.value == "a"
    clock.advance(0.001)
    assert again.snapshot.value == "b"


def test_no_entry_action_runs_again_and_history_is_kept():
    entered: list[str] = []
    chart = Chart.load(
        {
            "id": "m",
            "initial": "p",
            "context": {"n": 0},
            "states": {
                "p": {
                    "initial": "x",
                    "entry": "enter",
                    "on": {"OUT": {"target": "q", "actions": "inc"}},
                    "states": {"x": {"on": {"N": "y"}}, "y": {}, "h": {"type": "history"}},
                },
                "q": {"on": {"BACK": "p.h"}},
            },
        },
        actions={
            "enter": lambda: entered.append("p"),
            "inc": assign(n=lambda context: context["n"] + 1),
        },
    )
    actor = Actor(chart).start()
    actor.send("N")
    actor.send("OUT")
    again = Actor.restore(chart, kept(actor)).start()
    assert again.snapshot == actor.snapshot
    assert entered == ["p"]
    again.send("BACK")
    assert again.snapshot.value == {"p": "y"}
    assert again.snapshot.context == {"n": 1}


async def test_services_start_again_with_their_input_and_ended_ones_do_not():
    started: list[Any] = []

    async def job(input: Any) -> None:  # noqa: A002
        started.append(input)
        await asyncio.Event().wait()

    chart = Chart.load(
        {
            "id": "m",
            "invoke": [
                {"src": "job", "id": "long", "input": lambda: {"n": 3}},
                {"src": "short", "id": "short"},
            ],
        },
        services={"job": job, "short": lambda: started.append("short")},
    )
    actor = Actor(chart).start()
    await asyncio.sleep(0)
    saved = kept(actor)
    actor.stop()
    again = Actor.restore(chart, saved).start()
    await asyncio.sleep(0)
    assert started == ["short", {"n": 3}, {"n": 3}]
    assert again.snapshot.children["short"].done
    again.stop()
    await asyncio.sleep(0)


def test_child_machines_continue_where_they_were():
    kid = Chart.load(
        {
            "id": "kid",
            "initial": "x",
            "states": {"x": {"after": {"10": "y"}}, "y": {"on": {"E": "z"}}, "z": {}},
        }
    )
    chart = Chart.load({"id": "m", "invoke": {"src": "kid", "id": "k"}}, services={"kid": kid})
    clock = SimulatedClock()
    environment = Environment(timers=clock)
    actor = Actor(chart, environment=environment).start()
    clock.advance(0.005)
    saved = kept(actor)
    actor.stop()
    again = Actor.restore(chart, saved, environment=environment).start()
    clock.advance(0.005)
    child = (again.children or {})["k"]
    assert isinstance(child, Actor)
    assert child.snapshot.value == "y"


def test_a_watched_child_shows_itself_again():
    kid = Chart.load({"id": "kid", "on": {"E": {"actions": []}}})
    chart = Chart.load(
        {
            "id": "m",
            "context": {"seen": 0},
            "invoke": {"src": "kid", "id": "k", "onSnapshot": {"actions": "see"}},
        },
        services={"kid": kid},
        actions={"see": assign(seen=lambda context: context["seen"] + 1)},
    )
    actor = Actor(chart).start()
    again = Actor.restore(chart, kept(actor)).start()
    assert (actor.snapshot.context["seen"], again.snapshot.context["seen"]) == (1, 2)


def test_an_ended_machine_stays_ended():
    chart = Chart.load({"id": "m", "initial": "f", "states": {"f": {"type": "final"}}, "output": 5})
    again = Actor.restore(chart, kept(Actor(chart).start())).start()
    assert (again.snapshot.status, again.snapshot.output) == ("done", 5)
    again.send("X")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 99},
        {"chart": "other"},
        {"status": "odd"},
        {"value": "nowhere"},
        {"value": {"a": "deep"}},
        {"context": []},
        {"history": {"x": ["y"]}},
    ],
)
def test_what_does_not_fit_the_chart_is_refused(change):
    chart = Chart.load(TIMED)
    clock = SimulatedClock()
    saved = kept(Actor(chart, environment=Environment(timers=clock)).start())
    with pytest.raises(UsageError):
        Actor.restore(chart, {**saved, **change})


def test_a_value_that_says_less_means_the_initial_states():
    chart = Chart.load(
        {
            "id": "m",
            "type": "parallel",
            "states": {"l": {"initial": "x", "states": {"x": {}, "y": {}}}, "r": {}},
        }
    )
    snapshot = snapshot_from_json(chart, {"status": "active", "value": {}})
    assert snapshot.value == {"l": "x", "r": {}}
    snapshot = snapshot_from_json(chart, {"status": "active", "value": {"l": "y"}})
    assert snapshot.value == {"l": "y", "r": {}}


def test_what_is_not_at_rest_cannot_be_kept():
    with pytest.raises(UsageError, match="is busy or was not started"):
        Actor(Chart.load(TIMED)).persist()


async def test_a_machine_of_an_orchestrator_keeps_its_child_charts():
    child = Chart.load(
        {"id": "child", "initial": "a", "states": {"a": {"on": {"GO": "b"}}, "b": {}}}
    )
    parent = Chart.load(
        {
            "id": "parent",
            "invoke": {"src": "child", "id": "kid"},
            "on": {"GO": {"actions": "pass"}},
        },
        actions={"pass": send_to("kid", "GO")},
        services={"child": child},
    )
    async with Orchestrator().group("g") as group:
        machine = await group.start(parent)
        await machine.request("GO")
        saved = kept(machine)
    again = Actor.restore(parent, saved).start()
    assert again.persist()["machines"]["kid"]["value"] == "b"


REMEMBERING = {
    "id": "m",
    "initial": "a",
    "states": {
        "a": {"on": {"GO": "p"}},
        "p": {"initial": "q", "states": {"q": {}, "h": {"type": "history"}}},
    },
}
A_TIMER = {"id": "t", "event": "GO", "delay": 1, "dueAt": 1.0, "remaining": 1.0}


@pytest.mark.parametrize(
    "odd",
    [
        {"value": 5},
        {"value": ["a"]},
        {"value": {"p": 7}},
        {"value": {"p": "h"}},
        {"history": {"m.p.h": 5}},
        {"history": {"m.p.h": [{}]}},
        {"history": {"m.p.h": ["m.a"]}},
        {"history": {"m.a": ["m.a"]}},
        {"children": {"x": "y"}},
        {"children": {"x": {}}},
        {"children": {"x": {"src": []}}},
        {"timers": 5},
        {"timers": ["x"]},
        {"timers": [{}]},
        {"timers": [{**A_TIMER, "id": {}}]},
        {"timers": [{**A_TIMER, "event": None}]},
        {"timers": [{**A_TIMER, "dueAt": "soon"}]},
        {"timers": [{**A_TIMER, "dueAt": float("nan")}]},
        {"timers": [{**A_TIMER, "scope": "everywhere"}]},
        {"deferred": 5},
    ],
)
def test_what_is_no_machine_is_refused(odd):
    chart = Chart.load(REMEMBERING)
    saved = kept(Actor(chart).start())
    assert Actor.restore(chart, saved)
    with pytest.raises(UsageError):
        Actor.restore(chart, {**saved, **odd})


def test_a_machine_is_restored_from_an_object_by_a_known_policy():
    chart = Chart.load(REMEMBERING)
    with pytest.raises(UsageError, match="object"):
        Actor.restore(chart, [])
    with pytest.raises(UsageError, match="sometimes"):
        Actor.restore(chart, kept(Actor(chart).start()), timers="sometimes")


@pytest.mark.parametrize("value", [object(), float("nan"), {(1, 2): 3}])
def test_data_that_is_no_json_is_not_kept(value):
    actor = Actor(Chart.load({"id": "m", "context": {"it": value}})).start()
    with pytest.raises(UsageError, match="not JSON"):
        actor.persist()


def test_data_cannot_take_the_place_of_an_events_type():
    assert Event("PAY", {"type": "card"}).to_json() == {"type": "PAY"}
