"""Sagas undo what was done; and flows that go on as new."""

from __future__ import annotations

import asyncio
from typing import Never, NoReturn

import msgspec
import pytest

import outlive
from outlive import App, UsageError
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import Driven

app = App("endings")


@app.step
def add(number: int) -> int:
    return number + 1


@app.step
def book(what: str) -> str:
    return f"booked {what}"


@app.step
def unbook(what: str) -> None: ...


@app.flow
async def child(number: int) -> int:
    return await add(number)


def flow(function):
    return App("a").flow(name="f")(function)


# -- sagas ----------------------------------------------------------------------------------------


async def trip() -> str:
    async with outlive.saga() as saga:
        await book("flight")
        saga.add(unbook, "flight")
        await book("hotel")
        saga.add(unbook, what="hotel")
        await book("car")
    return "booked"


def test_a_saga_undoes_in_reverse_and_lets_the_error_go_on():
    driven = Driven(flow(trip))
    driven.work(2)
    driven.end("book#2", RuntimeError("no car"))
    undone = []
    while driven.steps:
        driven.crash()
        (name,) = driven.steps
        undone.append(driven.steps[name].arguments())
        driven.end(name)
    assert undone == [(("hotel",), {}), (("flight",), {})]
    assert driven.status is InstanceStatus.FAILED
    assert "no car" in driven.outcome["message"]
    assert Driven(flow(trip), rows=driven.rows).run.ended


def test_a_saga_that_gets_to_its_end_undoes_nothing():
    driven = Driven(flow(trip)).work()
    assert driven.outcome == "booked"
    assert all(not event.step.startswith("unbook") for event in driven.history()[:-1])


def test_a_cancelled_saga_undoes_to_the_end_however_often_it_is_cancelled():
    driven = Driven(flow(trip))
    driven.work(2)
    driven.cancel("first")
    assert list(driven.steps) == ["unbook#0"]
    driven.cancel("second")
    assert list(driven.steps) == ["unbook#0"]
    driven.crash()
    driven.work(1)
    driven.cancel("third")
    driven.work()
    assert driven.status is InstanceStatus.CANCELLED
    steps = [event.step for event in driven.history() if hasattr(event, "step")]
    assert steps == ["book#0", "book#1", "unbook#0", "unbook#1"]


def test_an_undo_that_fails_is_noted_and_the_others_run(caplog):
    driven = Driven(flow(trip))
    driven.work(2)
    driven.end("book#2", RuntimeError("no car"))
    driven.end("unbook#0", ValueError("cannot"))
    driven.end("unbook#1")
    assert driven.status is InstanceStatus.FAILED
    assert "an undo of the saga failed" in driven.outcome["message"]
    assert "could not undo" in caplog.text


def test_an_undo_that_fails_is_noted_also_when_the_flow_was_cancelled():
    driven = Driven(flow(trip))
    driven.work(2)
    driven.cancel("enough")
    driven.end("unbook#0", ValueError("cannot"))
    driven.end("unbook#1")
    assert driven.status is InstanceStatus.CANCELLED
    reason, note = driven.outcome["message"].split("\n")
    assert reason == "enough"
    assert note.startswith("an undo of the saga failed: step unbook#0 failed: ValueError: cannot")
    assert Driven(flow(trip), rows=driven.rows).run.ended


async def part(what: str) -> None:
    async with outlive.saga() as saga:
        await book(what)
        saga.add(lambda: asyncio.gather(unbook(what), unbook(f"seat in {what}")))
        await add(1)


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize("how", ["fails", "returns", "goes on as new"])
def test_what_a_branch_has_begun_to_undo_is_undone_though_the_flow_ends(how, crashes):
    async def code(number: int) -> int:
        branch = asyncio.create_task(part("hotel"))
        other = asyncio.create_task(part("car"))
        await outlive.wait_signal("over")
        if how == "fails":
            raise ValueError("over")
        if how == "goes on as new":
            outlive.continue_as_new(number)
        del branch, other
        return number

    driven = Driven(flow(code), (1,))
    driven.end("book#0", "booked")
    driven.end("add#0", ValueError("full"))
    assert list(driven.steps) == ["book#1", "unbook#0", "unbook#1"]
    driven.signal("over")
    # Whoever undoes goes on, and nobody else does.
    assert driven.stopped == ["book#1"]
    assert not driven.run.ended
    if crashes:
        driven.crash()
    driven.end("unbook#0")
    assert not driven.run.ended
    driven.end("unbook#1")
    assert driven.run.ended
    if how == "goes on as new":
        assert driven.decisions[-1].restart == '{"number":1}'
    else:
        expected = InstanceStatus.FAILED if how == "fails" else InstanceStatus.COMPLETED
        assert driven.status is expected


@pytest.mark.parametrize("crashes", [False, True])
def test_a_cancel_while_a_failure_is_undone_is_heard_when_that_is_done(crashes):
    async def code() -> str:
        try:
            await trip()
        except outlive.StepFailed:
            await outlive.wait_signal("never")
        return "got over it"

    driven = Driven(flow(code))
    driven.work(2)
    driven.end("book#2", RuntimeError("no car"))
    driven.cancel("enough")
    if crashes:
        driven.crash()
    driven.work()
    assert driven.status is InstanceStatus.CANCELLED
    assert driven.outcome["message"] == "enough"
    steps = [event.step for event in driven.history() if hasattr(event, "step")]
    assert steps[3:] == ["unbook#0", "unbook#1"]


def test_time_that_runs_out_while_a_failure_is_undone_ends_the_block_when_that_is_done():
    async def code() -> str:
        try:
            async with asyncio.timeout(20):
                try:
                    await trip()
                except outlive.StepFailed:
                    await outlive.wait_signal("never")
        except TimeoutError as error:
            cause = error.__cause__
            assert cause is not None
            return f"too long, after {cause.__cause__}"
        return "never"

    driven = Driven(flow(code))
    driven.work(2)
    driven.end("book#2", RuntimeError("no car"))
    driven.elapse(20)
    assert list(driven.steps) == ["unbook#0"]
    driven.work()
    assert driven.outcome.startswith("too long, after step book#2 failed")
    assert Driven(flow(code), rows=driven.rows).run.ended


def test_plain_functions_undo_as_well_and_what_cannot_be_called_is_refused():
    undone: list[str] = []

    async def code() -> None:
        async with outlive.saga() as saga:
            saga.add(unbook, "flight")
            saga.add(undone.append, "plain")
            saga.add(lambda: unbook("hotel"))
            with pytest.raises(UsageError, match=r"not saga.add\(refund\(order\)\)"):
                saga.add(unbook("car"))
            error = ValueError("no")
            # Nothing can be noted there, and everything is undone.
            error.__notes__ = None
            raise error

    driven = Driven(flow(code))
    driven.end("unbook#1")
    assert undone == ["plain"]
    driven.work()
    assert driven.outcome["message"] == "no"


# -- going on as new ------------------------------------------------------------------------------


async def counting(total: int) -> int:
    kept = child(total)
    del kept
    number = await outlive.wait_signal("n", int)
    if number == 0:
        return total
    await add(number)
    return outlive.continue_as_new(total + number)


def restarted(driven: Driven) -> Driven:
    """The next run of the same flow, as its host begins it."""
    decision = driven.decisions[-1]
    base = driven.rows[-1].version - 1
    return Driven(
        driven.flow, id=driven.id, base=base, input=decision.restart, rows=driven.rows[-1:]
    )


def test_going_on_as_new_keeps_the_signals_and_begins_everything_else_anew():
    driven = Driven(flow(counting), (1,))
    driven.signal("n", 2)
    for number in (3, 4):
        driven.signal("n", number)
    driven.signal("other", "x")
    driven.work()
    decision = driven.decisions[-1]
    assert driven.run.ended
    assert (decision.ended, decision.outcome, decision.restart) == (None, None, '{"total":3}')
    assert decision.durable
    assert [msgspec.json.decode(event.payload) for event in decision.events] == [3, 4, "x"]
    # The child of the old run is left alone.
    assert decision.sends == ()
    second = restarted(driven)
    (start,) = second.decisions[-1].starts
    assert start.id == f"f/child#0@{second.base}"
    assert second.letter("child", "f/child#0", {"result": 1}).events == ()
    second.work()
    third = restarted(second)
    third.work()
    last = restarted(third)
    last.signal("n", 0)
    assert last.outcome == 10


def test_going_on_as_new_is_seen_through_groups_and_sagas_and_only_from_the_main_task():
    async def grouped(again: bool) -> str:
        if not again:
            return "second"
        async with outlive.saga() as saga:
            saga.add(unbook, "x")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(add(1))
                await asyncio.sleep(1)
                outlive.continue_as_new(False)
        return ""

    driven = Driven(flow(grouped), (True,))
    driven.elapse(1)
    assert driven.decisions[-1].restart == '{"again":false}'
    assert driven.stopped == ["add#0"]

    async def elsewhere() -> str:
        async def part() -> None:
            outlive.continue_as_new()

        try:
            await asyncio.create_task(part())
        except UsageError as error:
            return str(error)
        return ""

    assert "main task of the flow" in Driven(flow(elsewhere)).outcome


@pytest.mark.parametrize("kind", [NoReturn, Never])
def test_a_flow_that_never_returns_may_say_so(kind):
    async def forever(number: int) -> None:
        await add(number)
        outlive.continue_as_new(number + 1)

    forever.__annotations__["return"] = kind
    driven = Driven(flow(forever), (1,))
    driven.work()
    assert driven.decisions[-1].restart == '{"number":2}'


def test_arguments_that_do_not_fit_the_next_run_are_refused():
    async def code(number: int) -> str:
        try:
            outlive.continue_as_new(1, 2)
        except UsageError as error:
            return str(error)

    assert "too many" in Driven(flow(code), (1,)).outcome
