"""A machine in memory: order, policies, errors, timers, listeners."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from outlive.charts import (
    Actor,
    Chart,
    Environment,
    Event,
    SimulatedClock,
    assign,
    cancel,
    emit,
    log,
    raise_,
    send_parent,
    send_self,
    send_to,
)
from outlive.charts.inspection import EffectRun, EventReceived, MicrostepTaken, SnapshotChanged
from outlive.errors import ChartError, EventUnhandled, UnknownTarget, UsageError, WaitTimeout

SWITCH = {"id": "switch", "initial": "off", "states": {"off": {"on": {"T": "on"}}, "on": {}}}


def simulated(**options) -> tuple[Environment, SimulatedClock]:
    clock = SimulatedClock()
    return Environment(timers=clock, **options), clock


def test_events_sent_by_an_action_wait_their_turn():
    seen: list[str] = []

    def first(actor: Actor) -> None:
        actor.send("B")
        seen.append("A handled")

    chart = Chart.load(
        {"on": {"A": {"actions": "first"}, "B": {"actions": "second"}}},
        actions={"first": first, "second": lambda: seen.append("B handled")},
    )
    Actor(chart).start().send("A")
    assert seen == ["A handled", "B handled"]


async def test_an_async_action_holds_up_its_machine_and_nothing_else():
    seen: list[str] = []
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()
        seen.append("slow")

    chart = Chart.load(
        {"on": {"A": {"actions": ["slow", "quick"]}, "B": {"actions": "later"}}},
        actions={
            "slow": slow,
            "quick": lambda: seen.append("quick"),
            "later": lambda: seen.append("later"),
        },
    )
    held, other = Actor(chart).start(), Actor(chart).start()
    held.send("A")
    held.send("B")
    other.send("B")
    assert held.busy
    assert seen == ["later"]
    with pytest.raises(UsageError, match="is busy or was not started"):
        held.persist()
    gate.set()
    await held.settled()
    assert seen == ["later", "slow", "quick", "later"]
    assert not held.busy


async def test_an_async_action_that_fails_is_told_to_on_error():
    heard: list[BaseException] = []

    async def broken() -> None:
        raise ValueError("no")

    chart = Chart.load({"on": {"A": {"actions": "broken"}}}, actions={"broken": broken})
    environment = Environment(on_error=lambda _, error: heard.append(error))
    actor = Actor(chart, environment=environment).start()
    actor.send("A")
    await actor.settled()
    assert [str(error) for error in heard] == ["no"]
    assert actor.snapshot.status == "active"


def test_an_async_action_needs_a_loop():
    async def slow() -> None: ...

    chart = Chart.load({"on": {"A": {"actions": "slow"}}}, actions={"slow": slow})
    with pytest.raises(UsageError, match="running event loop"):
        Actor(chart).start().send("A")


def test_an_action_that_fails_leaves_the_machine_advanced_and_the_rest_done():
    seen: list[str] = []
    chart = Chart.load(
        {
            "initial": "a",
            "states": {
                "a": {"on": {"GO": {"target": "b", "actions": ["boom", "fine"]}}},
                "b": {"entry": "in_b", "after": {"10": "c"}},
                "c": {},
            },
        },
        actions={
            "boom": lambda: 1 / 0,
            "fine": lambda: seen.append("fine"),
            "in_b": lambda: seen.append("in_b"),
        },
    )
    environment, clock = simulated()
    actor = Actor(chart, environment=environment).start()
    with pytest.raises(ZeroDivisionError):
        actor.send("GO")
    assert (actor.snapshot.value, seen) == ("b", ["fine", "in_b"])
    clock.advance(0.01)
    assert actor.snapshot.value == "c"


def test_several_failing_actions_are_all_told():
    chart = Chart.load({"on": {"A": {"actions": ["x", "x"]}}}, actions={"x": lambda: 1 / 0})
    with pytest.raises(ExceptionGroup) as failed:
        Actor(chart).start().send("A")
    assert len(failed.value.exceptions) == 2


BROKEN = {"initial": "a", "states": {"a": {"on": {"GO": {"target": "b", "guard": "bad"}}}, "b": {}}}


def test_a_failing_guard_ends_the_machine_or_not_by_policy():
    chart = Chart.load(BROKEN, guards={"bad": lambda: 1 / 0})
    failed = Actor(chart).start()
    with pytest.raises(ZeroDivisionError):
        failed.send("GO")
    assert (failed.snapshot.status, failed.snapshot.value) == ("error", "a")
    assert isinstance(failed.snapshot.error, ZeroDivisionError)
    failed.send("GO")
    kept = Actor(chart, environment=Environment(faults="keep")).start()
    with pytest.raises(ZeroDivisionError):
        kept.send("GO")
    assert (kept.snapshot.status, kept.snapshot.value) == ("active", "a")


def test_a_machine_whose_start_fails_has_failed():
    chart = Chart.load({"id": "m", "context": lambda: {"n": 1 / 0}})
    actor = Actor(chart)
    with pytest.raises(ZeroDivisionError):
        actor.start()
    assert actor.snapshot.status == "error"
    chart = Chart.load(
        {"id": "m", "context": {"n": 1}, "initial": "a", "states": {"a": {"entry": "bad"}}},
        actions={"bad": assign(n=lambda: 1 / 0)},
    )
    actor = Actor(chart)
    with pytest.raises(ZeroDivisionError):
        actor.start()
    assert (actor.snapshot.value, actor.snapshot.context) == ("a", {"n": 1})


def test_unhandled_events_by_policy():
    letters: list[str] = []
    chart = Chart.load(SWITCH)
    ignoring = Actor(chart).start()
    ignoring.send("X")
    strict = Actor(chart, environment=Environment(unhandled="error")).start()
    with pytest.raises(EventUnhandled) as refused:
        strict.send("X")
    assert (refused.value.event, refused.value.state) == ("X", "off")
    keeping = Actor(
        chart,
        environment=Environment(
            unhandled="dead-letter", dead_letter=lambda _, event: letters.append(event.type)
        ),
    ).start()
    keeping.send("X")
    keeping.stop()
    keeping.send("LATE")
    assert letters == ["X", "LATE"]


def test_deferred_events_are_tried_again_after_a_change_of_state():
    seen: list[int] = []
    chart = Chart.load(
        {
            "initial": "closed",
            "states": {
                "closed": {"on": {"OPEN": "open", "NOISE": {"actions": []}}},
                "open": {"on": {"PUT": {"actions": "put"}}},
            },
        },
        actions={"put": lambda event: seen.append(event["n"])},
    )
    actor = Actor(chart, environment=Environment(unhandled="defer")).start()
    actor.send("PUT", n=1)
    actor.send("PUT", n=2)
    actor.send("NOISE")
    assert seen == []
    again = Actor.restore(chart, actor.persist(), environment=actor.environment).start()
    for machine in (actor, again):
        machine.send("OPEN")
    assert seen == [1, 2, 1, 2]


def test_a_second_delayed_event_of_the_same_id_replaces_the_first():
    chart = Chart.load(
        {
            "context": {"n": 0},
            "on": {
                "ARM": {"actions": "arm"},
                "OFF": {"actions": "off"},
                "BOOM": {"actions": "count"},
            },
        },
        actions={
            "arm": raise_("BOOM", delay=100, id="x"),
            "off": cancel("x"),
            "count": assign(n=lambda context: context["n"] + 1),
        },
    )
    environment, clock = simulated()
    actor = Actor(chart, environment=environment).start()
    actor.send("ARM")
    clock.advance(0.06)
    actor.send("ARM")
    clock.advance(0.06)
    assert actor.snapshot.context["n"] == 0
    clock.advance(0.04)
    assert actor.snapshot.context["n"] == 1
    actor.send("ARM")
    actor.send("OFF")
    clock.advance(1)
    assert actor.snapshot.context["n"] == 1
    assert not actor.timers


async def test_a_timer_of_a_left_state_never_fires_from_the_mailbox():
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    chart = Chart.load(
        {
            "initial": "a",
            "states": {
                "a": {
                    "after": {"10": "late"},
                    "on": {"HOLD": {"actions": "wait"}, "AGAIN": {"target": "a", "reenter": True}},
                },
                "late": {},
            },
        },
        actions={"wait": wait},
    )
    environment, clock = simulated()
    actor = Actor(chart, environment=environment).start()
    actor.send("HOLD")
    actor.send("AGAIN")
    clock.advance(0.01)
    gate.set()
    await actor.settled()
    assert actor.snapshot.value == "a"
    clock.advance(0.01)
    assert actor.snapshot.value == "late"


def test_stopping_ends_timers_and_says_nothing_more():
    chart = Chart.load({"initial": "a", "states": {"a": {"after": {"10": "b"}}, "b": {}}})
    environment, clock = simulated()
    actor = Actor(chart, environment=environment).start()
    actor.stop()
    actor.stop()
    clock.advance(1)
    assert (actor.snapshot.status, actor.snapshot.value) == ("stopped", "a")
    assert clock.waiting == 0


def test_a_machine_is_started_once_and_before_it_is_sent_to():
    actor = Actor(Chart.load(SWITCH))
    with pytest.raises(UsageError, match="was not started"):
        actor.send("T")
    actor.start()
    with pytest.raises(UsageError, match="already started"):
        actor.start()


@pytest.mark.parametrize("event", ["*", "", {"no": "type"}, 5])
def test_what_is_no_event_is_refused(event):
    with pytest.raises(UsageError):
        Actor(Chart.load(SWITCH)).start().send(event)


def test_emitted_events_reach_those_who_listen():
    heard: list[object] = []
    chart = Chart.load(
        {"on": {"A": {"actions": ["tell", "write"]}}},
        actions={"tell": emit(lambda event: {"type": "told", "n": event["n"]}), "write": log("x")},
    )
    actor = Actor(chart).start()
    end = actor.on("told", lambda event: heard.append(event["n"]))
    actor.on("*", lambda event: heard.append(event.type))
    actor.on("told", lambda _: 1 / 0)
    actor.send("A", n=1)
    end()
    actor.send("A", n=2)
    assert heard == [1, "told", "told"]


def test_inspectors_see_events_microsteps_effects_and_snapshots():
    seen: list[object] = []
    chart = Chart.load(
        {
            "initial": "a",
            "states": {"a": {"on": {"GO": "b"}}, "b": {"always": "c"}, "c": {"entry": "in_c"}},
        },
        actions={"in_c": lambda: None},
    )
    actor = Actor(chart, environment=Environment(inspect=seen.append)).start()
    seen.clear()
    actor.send("GO")
    kinds = [type(each) for each in seen]
    assert kinds == [EventReceived, MicrostepTaken, MicrostepTaken, SnapshotChanged, EffectRun]
    assert [each.taken.configuration.value for each in seen[1:3]] == ["b", "c"]


async def test_wait_for_what_comes_what_is_and_what_does_not_come():
    chart = Chart.load(SWITCH)
    environment, clock = simulated()
    actor = Actor(chart, environment=environment).start()
    assert (await actor.wait_for(lambda snapshot: snapshot.matches("off"))).value == "off"
    waiting = asyncio.create_task(actor.wait_for(lambda snapshot: snapshot.matches("on"), 5))
    await asyncio.sleep(0)
    actor.send("T")
    assert (await waiting).value == "on"
    never = asyncio.create_task(actor.wait_for(lambda snapshot: snapshot.matches("off"), 5))
    await asyncio.sleep(0)
    clock.advance(5)
    with pytest.raises(WaitTimeout) as late:
        await never
    assert (late.value.machine, late.value.timeout_s) == ("switch", 5.0)
    ended = asyncio.create_task(actor.wait_for(lambda snapshot: snapshot.matches("off")))
    await asyncio.sleep(0)
    actor.stop()
    with pytest.raises(ChartError, match="ended"):
        await ended
    assert clock.waiting == 0


KID = {"id": "kid", "initial": "x", "states": {"x": {"on": {"TELL": {"actions": "tell"}}}}}


def family(**environment) -> Actor:
    kid = Chart.load(KID, actions={"tell": send_parent("NEWS")})
    parent = Chart.load(
        {
            "id": "parent",
            "context": {"news": 0},
            "invoke": {"src": "kid", "id": "k", "systemId": "the-kid"},
            "on": {
                "ASK": {"actions": "ask"},
                "SYS": {"actions": "sys"},
                "SELF": {"actions": "myself"},
                "LOST": {"actions": "lost"},
                "NEWS": {"actions": "count"},
            },
        },
        actions={
            "ask": send_to("k", "TELL"),
            "sys": send_to("the-kid", "TELL", scope="system"),
            "lost": send_to("nobody", "TELL", scope="system"),
            "myself": send_self("NEWS"),
            "count": assign(news=lambda context: context["news"] + 1),
        },
        services={"kid": kid},
    )
    return Actor(parent, environment=Environment(**environment)).start()


def test_machines_of_a_family_reach_each_other():
    actor = family()
    for event in ("ASK", "SYS", "SELF"):
        actor.send(event)
    assert actor.snapshot.context["news"] == 3
    with pytest.raises(UnknownTarget):
        actor.send("LOST")


def test_a_machine_without_a_parent_cannot_tell_it():
    chart = Chart.load(KID, actions={"tell": send_parent("NEWS")})
    with pytest.raises(UnknownTarget):
        Actor(chart).start().send("TELL")


def test_an_idle_machine_keeps_nothing_that_it_does_not_need():
    actor = Actor(Chart.load(SWITCH)).start()
    actor.send("T")
    parts = (actor.timers, actor.children, actor._mailbox, actor._listeners, actor._registry)
    assert parts == (None, None, None, None, None)
    assert (
        actor.snapshot
        is Actor(actor.chart).start().chart.step(actor.chart.begin()[0], Event("T"))[0]
    )


def test_a_dropped_machine_is_freed():
    class Probe:
        pass

    probe = Probe()
    actor = Actor(Chart.load(SWITCH), input=probe).start()
    ref = weakref.ref(probe)
    del probe, actor
    gc.collect()
    assert ref() is None
