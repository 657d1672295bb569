"""Queries and validators only look: what would change the run is refused, and changes nothing."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App, UsageError
from outlive.errors import NonDeterminism
from tests.unit.flows.driving import Driven

app = App("looking")


@app.step
def pay(key: str) -> str:
    return key


def flow(function):
    return App("a").flow(name="f")(function)


async def drawing() -> str:
    """Draws after it was looked at, and waits for tasks in a set."""
    dice = outlive.random()
    loop = asyncio.get_running_loop()
    timer = loop.call_later(60, list)
    waiting = asyncio.create_task(asyncio.sleep(60))
    call = pay("before")
    forbidden = {
        "uuid": lambda: outlive.uuid().hex,
        "random": lambda: outlive.random().random(),
        "step": lambda: pay("now"),
        "task": lambda: asyncio.ensure_future(asyncio.sleep(1)),
        "timer": lambda: loop.call_later(0.01, list),
        "soon": lambda: loop.call_at(0, list),
        "unset": timer.cancel,
        "cancel": waiting.cancel,
        "drop": call.cancel,
        "register": lambda: outlive.on_query("more")(list),
        "take": lambda: outlive.on_update("more")(list),
        "status": lambda: outlive.set_status("seen"),
    }
    for name, function in forbidden.items():
        outlive.on_query(name)(function)
        outlive.on_update(name, validator=function)(lambda: None)
    outlive.on_query("kept")(dice.random)
    outlive.on_query("future")(lambda: [loop.create_future() for _ in range(3)] and None)
    outlive.on_query("now")(lambda: outlive.now().year)
    await outlive.wait_signal("go")
    tasks = {asyncio.create_task(asyncio.sleep(0), name=str(number)) for number in range(5)}
    order = ",".join(task.get_name() for task in tasks)
    return await pay(f"{outlive.uuid().hex} {dice.random()} {order}")


NAMES = ("uuid", "random", "step", "task", "timer", "soon", "unset", "cancel", "drop", "register")


def paid(driven: Driven) -> str:
    driven.signal("go")
    return bytes(driven.run.calling.steps["pay#1"].input).decode()


def undisturbed() -> str:
    return paid(Driven(flow(drawing)))


@pytest.mark.parametrize("name", [*NAMES, "take", "status"])
def test_what_changes_the_run_is_refused_and_changes_nothing(name):
    driven = Driven(flow(drawing))
    with pytest.raises(UsageError, match="a query or a validator is read-only"):
        driven.run.answering.query(name)
    with pytest.raises(UsageError, match="a query or a validator is read-only"):
        driven.run.answering.accept(name, "[]")
    assert driven.run.take().events == ()
    assert paid(driven) == undisturbed()
    driven.crash()
    assert paid(driven) == undisturbed()


@pytest.mark.parametrize("name", ["kept", "future", "now"])
def test_what_is_harmless_is_made_so(name):
    driven = Driven(flow(drawing))
    driven.run.answering.query(name)
    assert paid(driven) == undisturbed()


def test_a_query_that_wakes_what_waits_is_refused_and_its_flow_replayed():
    async def code() -> str:
        event = asyncio.Event()
        outlive.on_query("wake")(event.set)
        first, _ = await asyncio.wait(
            (asyncio.create_task(event.wait()), outlive.wait_signal("go")),
            return_when=asyncio.FIRST_COMPLETED,
        )
        return await pay(str(len(first)))

    driven = Driven(flow(code))
    with pytest.raises(UsageError, match="cannot wake waiting flow code"):
        driven.run.answering.query("wake")
    with pytest.raises(NonDeterminism, match="a query or a validator that woke waiting flow code"):
        driven.signal("go")
    driven.crash()
    driven.signal("go")
    assert driven.work().outcome == "1"
