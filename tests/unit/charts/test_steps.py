"""The pure core: a step is a function, and a step that fails leaves nothing behind."""

from __future__ import annotations

import pytest

from outlive.charts import Chart, Event, assign, configuration, raise_, send_to
from outlive.charts.effects import (
    Finish,
    RunAction,
    Send,
    StartChild,
    StartTimer,
    StopChild,
    StopTimer,
    Unhandled,
)
from outlive.errors import MicrostepLimit, UnknownTarget

COUNTER = {
    "id": "counter",
    "initial": "on",
    "context": {"n": 0, "seen": []},
    "states": {
        "on": {
            "on": {
                "INC": {"actions": ["inc", "note"], "guard": "small"},
                "BAD": {"target": "off", "actions": ["inc", "broken"]},
                "OFF": "off",
            },
        },
        "off": {"type": "final", "output": "enough"},
    },
    "output": {"final": 1},
}


def counter() -> Chart:
    return Chart.load(
        COUNTER,
        actions={
            "inc": assign(n=lambda context: context["n"] + 1),
            "note": lambda: None,
            "broken": assign(n=lambda: 1 / 0),
        },
        guards={"small": lambda context: context["n"] < 2},
    )


def test_a_step_gives_another_snapshot_and_leaves_the_old_one():
    chart = counter()
    first, effects = chart.begin()
    assert list(effects) == []
    second, effects = chart.step(first, Event("INC"))
    assert (first.context["n"], second.context["n"]) == (0, 1)
    (effect,) = effects
    assert isinstance(effect, RunAction)
    assert (effect.name, effect.context["n"]) == ("note", 1)


def test_a_step_that_raises_leaves_the_snapshot_as_it_was():
    chart = counter()
    first, _ = chart.begin()
    with pytest.raises(ZeroDivisionError):
        chart.step(first, Event("BAD"))
    assert (first.value, first.context["n"]) == ("on", 0)


def test_an_error_in_a_guard_says_which_and_where():
    chart = Chart.load(COUNTER, missing=True, guards={"small": lambda context: context["gone"]})
    with pytest.raises(KeyError) as failed:
        chart.step(chart.begin()[0], Event("INC"))
    assert "in guard 'small'" in failed.value.__notes__
    assert "while event 'INC' was tried in state 'on'" in failed.value.__notes__


def test_unhandled_events_are_an_effect():
    chart = counter()
    first, _ = chart.begin()
    full = first
    for _ in range(2):
        full, _ = chart.step(full, Event("INC"))
    for snapshot, event in ((first, Event("NO")), (full, Event("INC"))):
        after, effects = chart.step(snapshot, event)
        assert after is snapshot
        assert list(effects) == [Unhandled(event)]


def test_a_finished_machine_stays_as_it_is():
    chart = counter()
    ended, effects = chart.step(chart.begin()[0], Event("OFF"))
    assert (ended.status, ended.output) == ("done", {"final": 1})
    assert list(effects) == [Finish("done", {"final": 1})]
    assert chart.step(ended, Event("INC")) == (ended, ())
    assert ended.next_events == ()


def test_machines_do_not_share_what_their_context_holds():
    chart = counter()
    chart.begin()[0].context["seen"].append("mine")
    assert chart.begin()[0].context["seen"] == []


def test_a_context_that_is_empty_cannot_be_changed_in_place():
    chart = Chart.load({"id": "m"})
    with pytest.raises(TypeError):
        chart.begin()[0].context["x"] = 1


def test_a_chart_that_never_rests_is_stopped():
    chart = Chart.load(
        {"id": "loop", "on": {"GO": {"actions": "again"}}},
        actions={"again": raise_("GO")},
        microsteps_max=50,
    )
    with pytest.raises(MicrostepLimit) as stopped:
        chart.step(chart.begin()[0], Event("GO"))
    assert (stopped.value.chart, stopped.value.limit) == ("loop", 50)


LIVING = {
    "id": "m",
    "initial": "a",
    "states": {
        "a": {
            "entry": "greet",
            "invoke": {"src": "job", "id": "job", "systemId": "worker"},
            "after": {"100": "b", "late": "b"},
            "on": {"GO": "b", "TELL": {"actions": "tell"}},
        },
        "b": {},
    },
}


def living() -> Chart:
    return Chart.load(
        LIVING,
        actions={"greet": send_to("job", "HELLO"), "tell": send_to("nobody", "X")},
        services={"job": lambda: None},
        delays={"late": lambda: 250},
    )


def test_timers_and_services_are_effects():
    chart = living()
    snapshot, effects = chart.begin()
    assert list(effects) == [
        StartTimer("xstate.after.100.m.a", Event("xstate.after.100.m.a"), 100.0),
        StartTimer("xstate.after.late.m.a", Event("xstate.after.late.m.a"), 250),
        StartChild("job", "job", None, "worker"),
        Send("job", Event("HELLO")),
    ]
    _, effects = chart.step(snapshot, Event("GO"))
    assert list(effects) == [
        StopTimer("xstate.after.100.m.a"),
        StopTimer("xstate.after.late.m.a"),
        StopChild("job"),
    ]


def test_sending_to_nobody_is_an_error_of_the_step():
    chart = living()
    with pytest.raises(UnknownTarget) as failed:
        chart.step(chart.begin()[0], Event("TELL"))
    assert failed.value.target == "nobody"


def test_types_that_nobody_named_do_not_fill_the_memory():
    chart = Chart.load(
        {"id": "m", "initial": "a", "states": {"a": {"on": {"x.*": {"actions": []}}}}}
    )
    snapshot, _ = chart.begin()
    for number in range(100):
        chart.step(snapshot, Event(f"strange{number}"))
        chart.step(snapshot, Event(f"x.{number}"))
    assert len(snapshot.configuration.plans) <= 4


def test_configurations_are_forgotten_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(configuration, "CONFIGURATIONS_MAX", 20)
    region = {"initial": "x", "states": {"x": {}, "y": {}}}
    states = {}
    for number in range(8):
        own = {
            **region,
            "states": {"x": {"on": {f"E{number}": "y"}}, "y": {"on": {f"E{number}": "x"}}},
        }
        states[f"r{number}"] = own
    chart = Chart.load({"id": "m", "type": "parallel", "states": states})
    snapshot, _ = chart.begin()
    for step in range(200):
        snapshot, _ = chart.step(snapshot, Event(f"E{(step * 7 + step // 8) % 8}"))
        assert len(chart.tables._known) <= 20
    assert len(snapshot.active_ids) == 17


@pytest.mark.parametrize(
    ("state", "answer"),
    [("a", False), ("p", True), ("p.l.x", True), ({"p": {"l": "x"}}, True), ({"p": "l"}, True),
     ({"p": {"l": "y"}}, False), ({"q": "l"}, False)],
)  # fmt: skip
def test_matches(state, answer):
    chart = Chart.load(
        {
            "initial": "p",
            "states": {
                "p": {"type": "parallel", "tags": "busy", "states": {
                    "l": {"initial": "x", "states": {"x": {"meta": {"k": 1}}, "y": {}}}, "r": {}}},
                "a": {},
            },
        }
    )  # fmt: skip
    snapshot, _ = chart.begin()
    assert snapshot.matches(state) is answer
    assert snapshot.has_tag("busy")
    assert snapshot.meta == {"(machine).p.l.x": {"k": 1}}


def test_can_asks_guards_and_leaves_out_what_is_forbidden():
    chart = Chart.load(
        {
            "initial": "a",
            "on": {"X": {"actions": []}},
            "states": {"a": {"on": {"X": None, "Y": {"target": "b", "guard": "big"}}}, "b": {}},
        },
        guards={"big": lambda event: event.get("n", 0) > 1},
    )
    snapshot, _ = chart.begin()
    assert not snapshot.can("X")
    assert not snapshot.can("Y")
    assert snapshot.can("Y", n=2)
    assert snapshot.can({"type": "Y", "n": 2})
    assert not snapshot.can("Z")
