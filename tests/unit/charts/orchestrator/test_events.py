"""Sending and requesting: order, answers, errors, timeouts, stopping."""

from __future__ import annotations

import asyncio

import pytest

from outlive.charts import Chart, Event, assign, send_self, send_to
from outlive.charts.orchestrator import Orchestrator
from outlive.errors import RequestTimeout, UnknownTarget, UsageError
from tests.unit.charts.orchestrator.charts_used import RECORDER, TOGGLE, gated


@pytest.fixture
async def hub():
    made = Orchestrator()
    yield made
    await made.force_cleanup()


async def test_sends_are_handled_in_order(hub):
    machine = await hub.start(RECORDER)
    for n in range(500):
        await machine.send("NOTE", n=n)
    assert (await machine.request("NOTE", n=500)).context["seen"] == list(range(501))


async def test_nobody_has_to_await_a_send(hub):
    machine = await hub.start(TOGGLE)
    machine.send("FLIP")
    machine.send(Event("FLIP"))
    machine.send({"type": "FLIP"})
    assert (await machine.request("LOOK")).value == "on"
    with pytest.raises(UsageError):
        machine.send("")


async def test_a_slow_action_holds_up_only_its_machine(hub):
    gate = asyncio.Event()
    log: list[str] = []
    slow, other = await hub.start(gated(gate, log)), await hub.start(TOGGLE)
    slow.send("SLOW", n=1)
    slow.send("SLOW", n=2)
    for _ in range(10):
        assert (await other.request("FLIP")).status == "active"
    assert log == ["begin 1"]
    gate.set()
    await slow.request("PING")
    assert log == ["begin 1", "end 1", "begin 2", "end 2"]


async def test_an_answer_comes_after_the_actions(hub):
    gate = asyncio.Event()
    machine = await hub.start(gated(gate))
    request = asyncio.ensure_future(machine.request("SLOW"))
    await asyncio.sleep(0.01)
    assert not request.done()
    gate.set()
    await request


def failing() -> Chart:
    def refuse(context, event) -> bool:
        raise ValueError("guard")

    def act() -> None:
        raise RuntimeError("action")

    async def act_late() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("late")

    return Chart.load(
        {
            "id": "failing",
            "initial": "a",
            "states": {
                "a": {
                    "on": {
                        "PURE": {"target": "b", "guard": "refuse"},
                        "ACT": {"target": "b", "actions": ["act"]},
                        "LATE": {"target": "b", "actions": ["act_late"]},
                        "BOTH": {"target": "b", "actions": ["act", "act_late"]},
                    }
                },
                "b": {"on": {"BACK": "a"}},
            },
        },
        actions={"act": act, "act_late": act_late},
        guards={"refuse": refuse},
    )


@pytest.fixture
def heard(hub):
    errors: list[str] = []
    hub.on_error(lambda _, error: errors.append(str(error)))
    return errors


async def test_an_error_of_a_decision_changes_nothing_and_reaches_the_sender(hub, heard):
    machine = await hub.start(failing())
    with pytest.raises(ValueError, match="guard"):
        await machine.request("PURE")
    assert machine.snapshot.value == "a"
    assert machine.running
    assert heard == []
    machine.send("PURE")
    await machine.request("LOOK")
    assert heard == ["guard"]
    assert machine.snapshot.value == "a"


@pytest.mark.parametrize(("event", "text"), [("ACT", "action"), ("LATE", "late")])
async def test_an_error_of_an_action_reaches_the_sender_and_on_error(hub, heard, event, text):
    machine = await hub.start(failing())
    with pytest.raises(RuntimeError, match=text):
        await machine.request(event)
    assert machine.snapshot.value == "b"
    assert heard == [text]
    await machine.request("BACK")
    machine.send(event)
    assert (await machine.request("BACK")).value == "a"
    assert heard == [text, text]
    assert hub.metrics().failed == 2


async def test_all_errors_of_one_event_reach_the_sender(hub, heard):
    machine = await hub.start(failing())
    with pytest.raises(BaseExceptionGroup) as caught:
        await machine.request("BOTH")
    assert [str(error) for error in caught.value.exceptions] == ["action", "late"]
    assert heard == ["action", "late"]


async def test_an_error_on_the_start_reaches_the_starter_and_leaves_nothing(hub):
    def fail() -> None:
        raise RuntimeError("entry")

    chart = Chart.load({"id": "c", "entry": "fail"}, actions={"fail": fail})
    group = hub.group("g")
    with pytest.raises(RuntimeError, match="entry"):
        await group.start(chart)
    assert group.machines == ()
    assert hub.metrics().active_machines == 0


async def test_a_late_event_is_not_handled_after_its_timeout(hub):
    gate = asyncio.Event()
    machine = await hub.start(gated(gate))
    machine.send("SLOW")
    with pytest.raises(RequestTimeout) as caught:
        await machine.request("PING", timeout=0.01)
    assert not caught.value.begun
    with pytest.raises(TimeoutError):
        await machine.request("PING", timeout=0.01, run_late=True)
    gate.set()
    assert (await machine.request("PING")).context["pings"] == 2
    assert hub.metrics().timeouts == 2


async def test_an_event_that_has_begun_goes_on_after_its_timeout(hub):
    gate = asyncio.Event()
    log: list[str] = []
    machine = await hub.start(gated(gate, log))
    with pytest.raises(RequestTimeout) as caught:
        await machine.request("SLOW", timeout=0.01, n=1)
    assert caught.value.begun
    gate.set()
    await machine.request("PING")
    assert log == ["begin 1", "end 1"]


async def test_a_cancelled_request_is_not_handled(hub):
    gate = asyncio.Event()
    machine = await hub.start(gated(gate))
    machine.send("SLOW")
    request = asyncio.ensure_future(machine.request("PING"))
    await asyncio.sleep(0)
    request.cancel()
    gate.set()
    assert (await machine.request("PING")).context["pings"] == 1


async def test_deferred_sends_arrive_after_the_macrostep_in_order(hub):
    def talk(actor) -> None:
        for n in range(3):
            actor.send("NOTE", n=n)

    chart = Chart.load(
        {
            "id": "c",
            "context": {"seen": []},
            "on": {
                "GO": {"actions": ["mark", "talk", "last"]},
                "NOTE": {"actions": "note"},
            },
        },
        actions={
            "mark": assign(seen=lambda context: [*context["seen"], "go"]),
            "note": assign(seen=lambda context, event: [*context["seen"], event["n"]]),
            "talk": talk,
            "last": send_self({"type": "NOTE", "n": "last"}),
        },
    )
    machine = await hub.start(chart)
    assert (await machine.request("GO")).context["seen"] == ["go"]
    assert (await machine.request("LOOK")).context["seen"] == ["go", 0, 1, 2, "last"]


def partner(name: str, *, other: str | None) -> Chart:
    async def ask(actor, context) -> None:
        target = actor if other is None else actor.group.get(other)
        answer = await target.request("PONG" if other is None else "ASK" if name == "a" else "PONG")
        assert answer.status == "active"

    return Chart.load(
        {
            "id": name,
            "context": {"pongs": 0},
            "on": {"ASK": {"actions": "ask"}, "PONG": {"actions": "count"}},
        },
        actions={"ask": ask, "count": assign(pongs=lambda context: context["pongs"] + 1)},
    )


async def test_a_machine_may_request_itself(hub):
    machine = await hub.start(partner("a", other=None))
    await machine.request("ASK", timeout=5)
    assert machine.snapshot.context["pongs"] == 1
    assert (await machine.request("PONG")).context["pongs"] == 2


async def test_mutual_requests_do_not_deadlock(hub):
    group = hub.group("g")
    a = await group.start(partner("a", other="b"))
    b = await group.start(partner("b", other="a"))
    await asyncio.gather(*(a.request("ASK", timeout=5) for _ in range(3)))
    assert a.snapshot.context["pongs"] == 3
    assert b.snapshot.status == "active"
    assert not a.busy
    assert not b.busy


async def test_a_task_that_outlives_its_action_waits_its_turn(hub):
    """Only an action that waits for the answer may pass the queue."""
    gate = asyncio.Event()
    order: list[str] = []
    left: list[asyncio.Task[None]] = []

    async def later(actor) -> None:
        await actor.request("NOTE", n="inside")

    async def leave(actor) -> None:
        left.append(asyncio.create_task(later(actor)))

    async def wait() -> None:
        await gate.wait()
        order.append("slow")

    chart = Chart.load(
        {
            "id": "c",
            "on": {
                "LEAVE": {"actions": "leave"},
                "SLOW": {"actions": "wait"},
                "NOTE": {"actions": "note"},
            },
        },
        actions={"leave": leave, "wait": wait, "note": lambda event: order.append(event["n"])},
    )
    machine = await hub.start(chart)
    machine.send("LEAVE")
    machine.send("SLOW")
    await asyncio.sleep(0.01)
    assert order == []
    gate.set()
    await left[0]
    assert order == ["slow", "inside"]


async def test_stop_handles_what_was_accepted(hub):
    machine = await hub.start(RECORDER)
    for n in range(100):
        machine.send("NOTE", n=n)
    await machine.stop()
    assert machine.snapshot.context["seen"] == list(range(100))
    assert machine.snapshot.status == "stopped"
    await machine.stop()


async def test_stop_without_draining_drops_it(hub):
    gate = asyncio.Event()
    machine = await hub.start(gated(gate))
    machine.send("SLOW")
    request = asyncio.ensure_future(machine.request("PING"))
    await asyncio.sleep(0.01)
    await machine.stop(drain=False)
    with pytest.raises(UnknownTarget):
        await request
    assert hub.metrics().discarded == 1


async def test_stop_gives_up_draining_in_time(hub):
    machine = await hub.start(gated(asyncio.Event()))
    machine.send("SLOW")
    await machine.stop(timeout=0.01)
    assert not machine.running


async def test_an_action_may_stop_its_own_machine(hub):
    async def leave(actor) -> None:
        await actor.stop()

    chart = Chart.load({"id": "c", "on": {"GO": {"actions": "leave"}}}, actions={"leave": leave})
    machine = await hub.start(chart)
    await machine.request("GO", timeout=5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not machine.running


async def test_the_orchestrator_stops_with_everything_handled():
    hub = Orchestrator()
    machines = [await hub.group(f"g{n}").start(RECORDER) for n in range(5)]
    for machine in machines:
        machine.send("NOTE", n=1)
    await hub.stop()
    assert [machine.snapshot.context["seen"] for machine in machines] == [[1]] * 5
    assert hub.groups == ()


async def test_a_child_reports_to_its_machine(hub):
    async def fetch() -> int:
        await asyncio.sleep(0)
        return 42

    child = Chart.load(
        {
            "id": "child",
            "initial": "a",
            "states": {"a": {"after": {"1": "b"}}, "b": {"type": "final"}},
        }
    )
    chart = Chart.load(
        {
            "id": "c",
            "context": {"got": None},
            "initial": "a",
            "states": {
                "a": {
                    "invoke": {
                        "src": "fetch",
                        "onDone": {"target": "b", "actions": "keep"},
                    }
                },
                "b": {"invoke": {"src": "child", "onDone": "c"}},
                "c": {},
            },
        },
        actions={"keep": assign(got=lambda event: event["output"])},
        services={"fetch": fetch, "child": child},
    )
    machine = await hub.start(chart)
    final = await machine.wait_for(lambda snapshot: snapshot.matches("c"), timeout=5)
    assert final.context["got"] == 42


async def test_sends_between_machines_of_a_group_keep_their_order(hub):
    group = hub.group("g")
    recorder = await group.start(RECORDER, id="sink")
    relay = await group.start(
        Chart.load(
            {"id": "relay", "on": {"NOTE": {"actions": "pass_on"}}},
            actions={
                "pass_on": send_to(
                    "sink", lambda event: {"type": "NOTE", "n": event["n"]}, scope="machine"
                )
            },
        )
    )
    for n in range(200):
        relay.send("NOTE", n=n)
    await relay.request("LOOK")
    assert (await recorder.request("LOOK")).context["seen"] == list(range(200))
