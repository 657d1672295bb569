"""Flows whose main coroutine has ended while others go on: sagas undo, and then the flow ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

import outlive
from outlive import App
from outlive.flows.events import StepEnded
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

YEARS_S = 10 * 365 * 86_400

app = App("endings")


@app.step
def book() -> str:
    return "booked"


@app.step
def unbook(number: int = 0) -> int:
    return number


@app.step
def bad() -> None: ...


def flow(function):
    return App("a").flow(name="f")(function)


async def part(undo, *args) -> None:
    async with outlive.saga() as saga:
        await book()
        saga.add(undo, *args)
        await bad()


def failed(code, crashes: bool = False) -> Driven:
    """A flow of which a part undoes, and that ends around it when it is told ``over``."""
    driven = Driven(flow(code))
    driven.end("book#0", "booked")
    driven.end("bad#0", ValueError("no"))
    driven.signal("over")
    if crashes:
        driven.crash()
    return driven


@pytest.mark.parametrize("crashes", [False, True])
def test_what_an_undo_has_left_behind_does_not_keep_its_flow_from_ending(crashes):
    async def undo() -> None:
        await unbook()
        ack = asyncio.create_task(outlive.wait_signal("ack"))
        late = asyncio.create_task(asyncio.sleep(60))
        await asyncio.wait([ack, late], return_when=asyncio.FIRST_COMPLETED)

    async def code() -> str:
        task = asyncio.create_task(part(undo))
        await outlive.wait_signal("over")
        del task
        return "done"

    driven = failed(code, crashes)
    driven.end("unbook#0", 0)
    assert not driven.run.ended
    driven.elapse(61)
    assert driven.outcome == "done"
    driven.crash()
    assert driven.run.ended


def test_what_an_undo_left_behind_before_the_flow_ended_is_cancelled_with_it():
    async def undo() -> None:
        left = asyncio.create_task(outlive.wait_signal("ack"))
        await unbook()
        del left

    async def code() -> str:
        with contextlib.suppress(outlive.StepFailed):
            await part(undo)
        return "done"

    driven = Driven(flow(code))
    driven.end("book#0", "booked")
    driven.end("bad#0", ValueError("no"))
    driven.end("unbook#0", 0)
    assert driven.outcome == "done"


def test_an_update_that_comes_while_an_ended_flow_undoes_does_not_keep_it():
    async def code() -> str:
        @outlive.on_update
        async def approve() -> str:
            return await outlive.wait_signal("second-eye", str)

        task = asyncio.create_task(part(unbook, 1))
        await outlive.wait_signal("over")
        del task
        return "done"

    driven = failed(code)
    driven.letter("update", "approve", {})
    assert not driven.run.ended
    driven.end("unbook#0", 1)
    assert driven.outcome == "done"
    (reply,) = driven.decisions[-1].replies
    assert "error" in reply.payload


@pytest.mark.parametrize("crashes", [False, True])
def test_an_undo_that_waits_for_a_task_that_ended_with_the_flow_is_told_so(crashes, caplog):
    """The others of its saga are undone."""

    async def code() -> str:
        orders: asyncio.Queue[tuple[int, asyncio.Event]] = asyncio.Queue()

        async def desk() -> None:
            while True:
                number, done = await orders.get()
                await unbook(number)
                done.set()

        async def ask(number: int) -> None:
            done = asyncio.Event()
            orders.put_nowait((number, done))
            await done.wait()

        async def undo() -> None:
            async with outlive.saga() as saga:
                saga.add(unbook, 3)
                saga.add(ask, 1)
                saga.add(ask, 2)
                await bad()

        tasks = asyncio.create_task(desk()), asyncio.create_task(undo())
        await outlive.wait_signal("over")
        del tasks
        return "done"

    driven = Driven(flow(code))
    driven.end("bad#0", ValueError("no"))
    with caplog.at_level(logging.ERROR):
        driven.signal("over")
        if crashes:
            driven.crash()
    assert driven.stopped == ["unbook#0"]
    assert len([each for each in caplog.records if "could not undo" in each.getMessage()]) == 2
    assert list(driven.steps) == ["unbook#1"]
    driven.end("unbook#1", 3)
    assert driven.outcome == "done"
    driven.elapse(YEARS_S)
    assert driven.run.ended


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("waits", ["for a task", "for a signal that nobody waits for any more"])
def test_a_saga_that_undoes_because_its_flow_ends_does_not_keep_it(waits, crashes):
    """Nobody undid when the main coroutine ended."""

    async def code() -> str:
        never = asyncio.Event()

        async def undo() -> None:
            if waits == "for a task":
                await never.wait()
            else:
                left = asyncio.create_task(outlive.wait_signal("ack"))
                await unbook()
                del left

        task = asyncio.create_task(part(undo))
        over, hurry = outlive.wait_signal("over"), outlive.wait_signal("hurry")
        await asyncio.wait([over, hurry], return_when=asyncio.FIRST_COMPLETED)
        del task
        return "done"

    driven = Driven(flow(code))
    driven.end("book#0", "booked")
    driven.signal("over")
    if waits != "for a task":
        if crashes:
            driven.crash()
        driven.end("unbook#0", 0)
    assert driven.outcome == "done"
    driven.crash()
    assert driven.run.ended


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("how", ["task", "group", "gather"])
def test_what_a_cancelled_task_makes_to_clean_up_is_not_cancelled(how, undoes):
    async def release() -> None:
        match how:
            case "task":
                await asyncio.create_task(unbook(7))
            case "group":
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(unbook(7))
            case _:
                await asyncio.gather(asyncio.ensure_future(unbook(7)))

    async def holding() -> None:
        try:
            await outlive.wait_signal("never")
        finally:
            await release()

    async def code() -> str:
        tasks = [asyncio.create_task(holding())]
        if undoes:
            tasks.append(asyncio.create_task(part(unbook, 1)))
        await outlive.wait_signal("over")
        return "done"

    driven = Driven(flow(code))
    if undoes:
        driven.end("book#0", "booked")
        driven.end("bad#0", ValueError("no"))
    driven.signal("over")
    driven.crash()
    assert driven.stopped == []
    while driven.steps:
        driven.end(next(iter(driven.steps)), 0)
    assert driven.outcome == "done"
    ended = [event.step for event in driven.history() if isinstance(event, StepEnded)]
    assert ended[-1] == ("unbook#1" if undoes else "unbook#0")


def test_clean_up_that_waits_in_vain_is_told_so_and_the_flow_ends():
    async def code() -> str:
        never = asyncio.Event()

        async def holding() -> None:
            try:
                await outlive.wait_signal("never")
            finally:
                await never.wait()

        task = asyncio.create_task(holding())
        await outlive.wait_signal("over")
        del task
        return "done"

    driven = Driven(flow(code))
    driven.signal("over")
    assert driven.outcome == "done"
    assert Driven(flow(code), rows=driven.rows).run.ended


def test_an_undo_may_wait_for_what_an_update_brings():
    async def code() -> str:
        confirmed = asyncio.Event()
        outlive.on_update("confirm")(confirmed.set)

        async def undo() -> None:
            await confirmed.wait()
            await unbook(1)

        task = asyncio.create_task(part(undo))
        await outlive.wait_signal("over")
        del task
        return "done"

    driven = failed(code, crashes=True)
    assert not driven.run.ended
    driven.letter("update", "confirm", {})
    driven.end("unbook#0", 1)
    assert driven.outcome == "done"
