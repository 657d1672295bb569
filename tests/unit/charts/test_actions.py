"""What actions and guards can say: conditions, parameters, decisions, delays."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from outlive.charts import (
    Actor,
    Chart,
    Environment,
    Event,
    LoopTimers,
    assign,
    choose,
    log,
    not_,
    or_,
    raise_,
    state_in,
)
from outlive.charts.effects import Emit, Log, Send, StartChild, StartTimer, StopTimer
from outlive.charts.events import matches
from outlive.errors import InvalidChart, UsageError


def acting(done: Any, **implementations: Any) -> Chart:
    return Chart.load(
        {"id": "m", "context": {"n": 0}, "on": {"GO": {"actions": done}}}, **implementations
    )


def effects_of(chart: Chart, event: Event | None = None) -> list[Any]:
    return list(chart.step(chart.begin()[0], event or Event("GO"))[1])


def test_a_function_that_asks_for_enqueue_decides_inside_the_step():
    def decide(context: Any, event: Event, enqueue: Any, check: Any) -> None:
        enqueue(assign(n=context["n"] + event["by"]))
        if check("big") and not check(not_("big")):
            enqueue("cheer")
        enqueue(log(lambda context: context["n"]))

    chart = acting(
        "decide",
        actions={"decide": decide, "cheer": lambda: None},
        guards={"big": lambda event: event["by"] > 1},
    )
    first, _ = chart.begin()
    after, effects = chart.step(first, Event("GO", {"by": 1}))
    assert (after.context["n"], list(effects)) == (1, [Log(1)])
    after, effects = chart.step(first, Event("GO", {"by": 2}))
    assert [type(each).__name__ for each in effects] == ["RunAction", "Log"]


def test_each_action_sees_the_context_that_the_one_before_left():
    chart = acting(
        ["inc", "branch"],
        actions={
            "inc": assign(lambda context: {"n": context["n"] + 1}),
            "branch": choose(
                (lambda context: context["n"] > 5, log("many")),
                (or_(state_in("#m"), "never"), [log("some"), "inc"]),
                (None, log("none")),
            ),
        },
        guards={"never": lambda: False},
    )
    after, effects = chart.step(chart.begin()[0], Event("GO"))
    assert (after.context["n"], list(effects)) == (2, [Log("some")])


def test_parameters_reach_actions_guards_and_what_they_compute():
    seen: list[Any] = []
    chart = Chart.load(
        {
            "id": "m",
            "context": {"n": 2},
            "on": {
                "GO": {
                    "guard": {"type": "over", "params": {"least": 1}},
                    "actions": [
                        {"type": "add", "params": {"by": 3}},
                        {"type": "tell", "params": lambda context: context["n"]},
                    ],
                }
            },
        },
        guards={"over": lambda context, params: context["n"] > params["least"]},
        actions={
            "add": assign(n=lambda context, params: context["n"] + params["by"]),
            "tell": lambda params: seen.extend([params]),
        },
    )
    actor = Actor(chart).start()
    actor.send("GO")
    assert (actor.snapshot.context["n"], seen) == (5, [5])


def test_what_a_document_writes_out_itself():
    chart = acting(
        [
            {"type": "xstate.assign", "params": {"n": 9}},
            {"type": "xstate.raise", "params": {"event": {"type": "X"}, "delay": 5, "id": "t"}},
            {"type": "xstate.cancel", "params": {"sendId": "t"}},
            {"type": "xstate.emit", "params": {"event": "E"}},
            {"type": "xstate.log", "params": {"value": "v", "label": "l"}},
            {"type": "xstate.sendParent", "params": {"event": "P"}},
            {"type": "xstate.spawnChild", "params": {"src": "job", "id": "k"}},
            {"type": "xstate.sendTo", "params": {"to": "k", "event": "S"}},
        ],
        services={"job": lambda: None},
    )
    after, effects = chart.step(chart.begin()[0], Event("GO"))
    assert after.context["n"] == 9
    assert list(effects) == [
        StartTimer("t", Event("X"), 5),
        StopTimer("t"),
        Emit(Event("E")),
        Log("v", "l"),
        Send(None, Event("P"), "parent"),
        StartChild("k", "job"),
        Send("k", Event("S")),
    ]
    with pytest.raises(InvalidChart, match="needs 'event'"):
        acting({"type": "xstate.raise", "params": {}})
    with pytest.raises(InvalidChart, match="unknown built-in action"):
        acting({"type": "xstate.explode", "params": {}})


def test_guards_that_a_document_combines():
    guard = {
        "type": "and",
        "guards": [
            {"type": "not", "guard": "shut"},
            {"type": "or", "guards": ["never", {"type": "stateIn", "state": "#m"}]},
        ],
    }
    chart = Chart.load(
        {"id": "m", "on": {"GO": {"guard": guard, "actions": []}}},
        guards={"shut": lambda event: event.get("shut", False), "never": lambda: False},
    )
    snapshot, _ = chart.begin()
    assert effects_of(chart) == []
    assert len(effects_of(chart, Event("GO", {"shut": True}))) == 1
    del snapshot


@pytest.mark.parametrize(
    ("delay", "ms"),
    [(5, 5), ("named", 7), (timedelta(seconds=1), 1000), (lambda event: event["ms"], 9)],
)
def test_delays_in_all_their_forms(delay, ms):
    chart = acting("late", actions={"late": raise_("X", delay=delay)}, delays={"named": 7})
    assert effects_of(chart, Event("GO", {"ms": 9})) == [StartTimer(None, Event("X"), ms)]


@pytest.mark.parametrize("delay", [float("nan"), "soon", True])
def test_what_is_no_delay_is_refused(delay):
    with pytest.raises((InvalidChart, UsageError)):
        acting("late", actions={"late": raise_("X", delay=delay)})
    chart = acting("late", actions={"late": raise_("X", delay=lambda: delay)})
    with pytest.raises(UsageError, match="a delay in milliseconds"):
        effects_of(chart)


@pytest.mark.parametrize(
    "function",
    [
        lambda: 1,
        lambda context: context["n"],
        lambda event: event["n"],
        lambda event, context: event["n"] + context["n"],
        lambda c, e: c["n"] + e["n"],
        lambda *, params: params,
        lambda context, event, params: params if context and event.data else None,
        lambda context, other=5: other if context else None,
        max,
    ],
)
def test_functions_are_given_what_they_ask_for(function):
    from outlive.charts.convention import PURE, adapt

    adapted = adapt(function, PURE, "a test")
    if function is not max:
        assert adapted({"n": 1}, Event("E", {"n": 2}), "p") in {1, 2, 3, 5, "p"}


@pytest.mark.parametrize(
    ("event", "descriptor", "answer"),
    [
        ("a.b", "a.*", True),
        ("a", "a.*", True),
        ("ab", "a.*", False),
        ("a.b.c", "a.*", True),
        ("a.b", "*.b", False),
        ("a.b", "a.*.c", False),
        ("a.b", "*", True),
        ("a.b", "a*", False),
    ],
)
def test_wildcards(event, descriptor, answer):
    assert matches(event, descriptor) is answer


async def test_real_timers_run_on_the_loop():
    chart = Chart.load({"id": "m", "initial": "a", "states": {"a": {"after": {"1": "b"}}, "b": {}}})
    actor = Actor(chart, environment=Environment(timers=LoopTimers())).start()
    async with asyncio.timeout(10):
        assert (await actor.wait_for(lambda snapshot: snapshot.matches("b"))).value == "b"


def test_real_timers_need_a_loop():
    chart = Chart.load({"id": "m", "initial": "a", "states": {"a": {"after": {"1": "b"}}, "b": {}}})
    with pytest.raises(UsageError, match="running event loop"):
        Actor(chart).start()
