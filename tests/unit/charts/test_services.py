"""Services: coroutines, callbacks, async iterators, plain functions and charts as children."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
from typing import Any

import pytest

from outlive.charts import Actor, Chart, Environment, Event, assign, spawn, stop_child


async def turns(count: int = 8) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def invoking(service: Any, **invoke: Any) -> Chart:
    return Chart.load(
        {
            "id": "m",
            "initial": "busy",
            "context": {"got": None, "seen": []},
            "states": {
                "busy": {
                    "invoke": {
                        "src": "job",
                        "id": "job",
                        "onDone": {"target": "ok", "actions": "keep"},
                        "onError": {"target": "bad", "actions": "blame"},
                        **invoke,
                    },
                    "on": {"STOP": "idle", "TICK": {"actions": "see"}},
                },
                "ok": {},
                "bad": {},
                "idle": {},
            },
        },
        actions={
            "keep": assign(got=lambda event: event["output"]),
            "blame": assign(got=lambda event: str(event["error"])),
            "see": assign(seen=lambda context, event: [*context["seen"], event.get("n")]),
            "show": assign(
                seen=lambda context, event: [*context["seen"], event["snapshot"]["context"]]
            ),
        },
        services={"job": service},
    )


def test_an_event_says_how_its_data_is_read():
    event = Event("xstate.done.actor.job", {"output": 7})
    assert event["output"] == 7
    with pytest.raises(AttributeError, match=r"its data is read as event\['output'\]"):
        _ = event.output
    assert copy.deepcopy(event) == pickle.loads(pickle.dumps(event)) == event


async def test_a_coroutine_gives_its_output():
    async def job(input: Any) -> Any:  # noqa: A002
        return input["n"] + 1

    actor = Actor(invoking(job, input={"n": 4})).start()
    await turns()
    assert (actor.snapshot.value, actor.snapshot.context["got"]) == ("ok", 5)


async def test_a_coroutine_that_fails_says_why():
    async def job() -> None:
        raise ValueError("no luck")

    actor = Actor(invoking(job)).start()
    await turns()
    assert (actor.snapshot.value, actor.snapshot.context["got"]) == ("bad", "no luck")


async def test_a_coroutine_is_cancelled_when_its_state_is_left():
    ended = asyncio.Event()

    async def job() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    actor = Actor(invoking(job)).start()
    await turns()
    actor.send("STOP")
    await turns()
    assert ended.is_set()
    assert actor.snapshot.value == "idle"
    assert not actor.children


async def test_a_service_that_is_stopped_before_it_began_is_dropped():
    began: list[str] = []

    async def job() -> None:
        began.append("job")

    waiting = asyncio.get_running_loop().create_future()
    for service in (job, lambda: waiting):
        actor = Actor(invoking(service)).start()
        actor.send("STOP")
    await turns()
    gc.collect()
    assert began == []
    assert waiting.cancelled()


async def test_an_async_iterator_shows_its_values():
    async def job() -> Any:
        for number in range(3):
            yield number

    actor = Actor(invoking(job, onSnapshot={"actions": "show"})).start()
    await turns(20)
    assert actor.snapshot.value == "ok"
    assert actor.snapshot.context["seen"] == [None, 0, 1, 2]


async def test_an_async_iterator_is_closed_when_its_state_is_left():
    closed = asyncio.Event()

    async def job() -> Any:
        try:
            while True:
                yield 1
                await asyncio.sleep(0)
        finally:
            closed.set()

    actor = Actor(invoking(job)).start()
    await turns()
    actor.send("STOP")
    await turns()
    assert closed.is_set()


def test_a_plain_function_gives_its_output_at_once():
    actor = Actor(invoking(lambda: 7)).start()
    assert (actor.snapshot.value, actor.snapshot.context["got"]) == ("ok", 7)


def test_a_callback_sends_receives_and_cleans_up():
    said: list[str] = []

    def job(send: Any, receive: Any) -> Any:
        receive(lambda event: send("TICK", n=event["n"]))
        send("TICK", n=0)
        return lambda: said.append("cleaned")

    actor = Actor(invoking(job)).start()
    assert actor.children is not None
    from outlive.charts import Event

    actor.children["job"].deliver(Event("ANY", {"n": 1}))
    assert actor.snapshot.context["seen"] == [0, 1]
    actor.send("STOP")
    assert said == ["cleaned"]


def test_a_service_that_raises_at_once_is_told():
    def job() -> None:
        raise ValueError("at once")

    actor = Actor(invoking(job)).start()
    assert (actor.snapshot.value, actor.snapshot.context["got"]) == ("bad", "at once")


def test_an_error_that_no_state_takes_ends_the_machine():
    heard: list[BaseException] = []
    chart = Chart.load(
        {"id": "m", "initial": "a", "states": {"a": {"invoke": {"src": "job"}}}},
        services={"job": lambda: 1 / 0},
    )
    actor = Actor(chart, environment=Environment(on_error=lambda _, error: heard.append(error)))
    actor.start()
    assert actor.snapshot.status == "error"
    assert isinstance(heard[0], ZeroDivisionError)


async def test_async_services_without_a_loop_say_so(monkeypatch):
    async def job() -> None: ...

    actor = await asyncio.to_thread(lambda: Actor(invoking(job)).start())
    assert actor.snapshot.value == "bad"
    assert "running event loop" in actor.snapshot.context["got"]


def test_a_watched_child_chart_shows_each_snapshot():
    kid = Chart.load(
        {
            "id": "kid",
            "context": {"n": 0},
            "on": {"UP": {"actions": "up"}, "END": ".f"},
            "initial": "x",
            "states": {"x": {}, "f": {"type": "final"}},
            "output": lambda context: context["n"],
        },
        actions={"up": assign(n=lambda context: context["n"] + 1)},
    )
    actor = Actor(invoking(kid, onSnapshot={"actions": "show"})).start()
    assert actor.children is not None
    child = actor.children["job"]
    assert isinstance(child, Actor)
    child.send("UP")
    assert actor.snapshot.context["seen"] == [{"n": 0}, {"n": 1}]
    child.send("END")
    assert (actor.snapshot.value, actor.snapshot.context["got"]) == ("ok", 1)


def test_spawned_children_live_until_they_are_stopped():
    said: list[str] = []

    def beep(send: Any, id: str) -> Any:  # noqa: A002
        said.append(f"start {id}")
        return lambda: said.append(f"stop {id}")

    chart = Chart.load(
        {
            "on": {
                "MORE": {"actions": "more"},
                "NAMED": {"actions": "named"},
                "LESS": {"actions": "less"},
            }
        },
        actions={
            "more": spawn("beep"),
            "named": spawn("beep", id=lambda event: event["name"]),
            "less": stop_child("beep:1"),
        },
        services={"beep": beep},
    )
    actor = Actor(chart).start()
    for event in ("MORE", "MORE", "LESS"):
        actor.send(event)
    actor.send("NAMED", name="x")
    actor.stop()
    assert said[:3] == ["start beep:1", "start beep:2", "stop beep:1"]
    assert sorted(said[3:]) == ["start x", "stop beep:2", "stop x"]


async def cut_off() -> None:
    """Await something that is cancelled by somebody else."""
    lost = asyncio.get_running_loop().create_future()
    lost.cancel()
    await lost


async def cut_off_values():
    yield 1
    await cut_off()


async def test_a_service_whose_own_wait_is_cancelled_has_failed():
    for service in (cut_off, cut_off_values):
        actor = Actor(invoking(service)).start()
        await turns()
        assert actor.snapshot.value == "bad"


async def test_a_child_that_takes_the_id_of_another_stops_it():
    ended: list[int] = []

    async def job(input: int) -> None:  # noqa: A002
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(input)

    chart = Chart.load(
        {"id": "m", "on": {"GO": {"actions": "begin"}}},
        actions={"begin": spawn("job", id="one", input=lambda event: event["n"])},
        services={"job": job},
    )
    actor = Actor(chart).start()
    actor.send("GO", n=1)
    await turns()
    actor.send("GO", n=2)
    await turns()
    assert ended == [1]
    actor.stop()
    await turns()
    assert ended == [1, 2]


def test_the_system_id_of_a_child_that_has_ended_is_free():
    over = Chart.load({"id": "over", "type": "final"})
    errors: list[BaseException] = []
    actor = Actor(
        Chart.load(
            {"id": "m", "on": {"GO": {"actions": "begin"}}},
            actions={"begin": spawn("over", id=lambda event: event["name"], system_id="only")},
            services={"over": over},
        ),
        environment=Environment(on_error=lambda _, error: errors.append(error)),
    ).start()
    actor.send("GO", name="one")
    actor.send("GO", name="two")
    assert set(actor.snapshot.children) == {"one", "two"}
    assert not errors
