"""How flows end: results, cancellation, loose tasks, eviction, sagas, and going on as new."""

from __future__ import annotations

import asyncio
import gc

import msgspec
import pytest

import holdfast
from holdfast import App, Evicted, StepFailed, UsageError
from holdfast.flows import loop as flow_loop
from holdfast.flows.events import SignalReceived
from holdfast.model.instance import InstanceStatus
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


# -- the end --------------------------------------------------------------------------------------


def test_a_flow_that_waits_for_nothing_ends_at_once():
    async def code(number: int) -> int:
        return number * 2

    driven = Driven(flow(code), (4,))
    assert (driven.status, driven.outcome) == (InstanceStatus.COMPLETED, 8)
    assert driven.told() == ["Ended"]
    assert driven.run.take().events == ()
    assert driven.end("add#0", 1).events == ()


def test_an_input_that_does_not_fit_fails_the_flow():
    async def code(number: int) -> int:
        return number

    driven = Driven(flow(code), input='{"number":"x"}')
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "holdfast.errors.InvalidPayload"
    gone = Driven(flow(code), input='{"numbers":1}')
    assert gone.status is InstanceStatus.FAILED


def test_a_result_that_cannot_be_stored_fails_the_flow():
    async def code():
        return object()

    driven = Driven(flow(code))
    assert driven.status is InstanceStatus.FAILED
    assert "the result of flow f" in driven.outcome["message"]


def test_leaving_the_process_is_refused():
    async def code() -> None:
        raise SystemExit(3)

    driven = Driven(flow(code))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "holdfast.errors.UsageError"


def test_code_that_spins_fails_the_flow(monkeypatch):
    monkeypatch.setattr(flow_loop, "CALLBACKS_MAX", 500)

    async def code() -> None:
        await add(1)
        while True:
            await asyncio.gather(asyncio.sleep(0))

    driven = Driven(flow(code)).work()
    assert driven.status is InstanceStatus.FAILED
    assert "without waiting" in driven.outcome["message"]
    assert Driven(flow(code), rows=driven.rows).run.ended


def test_tasks_that_are_left_are_cancelled_and_may_clean_up():
    async def background() -> None:
        try:
            await add(100)
        finally:
            await add(200)

    async def code() -> str:
        task = asyncio.create_task(background())
        await add(1)
        del task
        return "done"

    driven = Driven(flow(code))
    driven.end("add#0", 2)
    assert driven.status is None
    assert driven.stopped == ["add#1"]
    assert list(driven.steps) == ["add#2"]
    driven.crash()
    assert list(driven.steps) == ["add#2"]
    driven.work()
    assert (driven.status, driven.outcome) == (InstanceStatus.COMPLETED, "done")
    assert driven.errors == []


def test_an_error_that_nobody_looks_at_is_told():
    async def background() -> None:
        await add(1)
        raise RuntimeError("lost")

    async def code() -> None:
        task = asyncio.create_task(background())
        await add(2)
        del task

    driven = Driven(flow(code))
    driven.end("add#1", 2)
    gc.collect()
    driven.work()
    assert driven.status is InstanceStatus.COMPLETED
    assert [str(error["exception"]) for error in driven.errors] == ["lost"]
    assert driven.errors[0]["flow"] == "f"


def test_a_parent_is_told_of_every_end():
    async def code(fail: bool) -> int:
        if fail:
            raise ValueError("no")
        return await add(1)

    for fail, member in ((True, "error"), (False, "result")):
        driven = Driven(flow(code), (fail,), id="c", parent="p").work()
        (message,) = driven.decisions[-1].sends
        assert (message.to, message.kind, message.name) == ("p", "child", "c")
        assert member in msgspec.json.decode(message.payload)


# -- cancellation ---------------------------------------------------------------------------------


def test_cancelling_reaches_the_code_its_steps_and_its_children():
    async def code() -> None:
        started = child(5)
        holdfast.start_child(child, 6, on_parent_end="abandon")
        await add(1)
        await started

    driven = Driven(flow(code), id="p")
    driven.cancel("too late")
    assert driven.status is InstanceStatus.CANCELLED
    assert driven.outcome == {"type": "holdfast.errors.FlowCancelled", "message": "too late"}
    assert driven.stopped == ["add#0"]
    (message,) = driven.decisions[-1].sends
    assert (message.to, message.kind) == ("p/child#0", "cancel")
    assert Driven(flow(code), id="p", rows=driven.rows).run.ended


def test_code_may_clean_up_after_a_cancellation_or_go_on():
    async def cleaning() -> str:
        try:
            await add(1)
        except asyncio.CancelledError:
            await add(2)
            raise
        return ""

    driven = Driven(flow(cleaning))
    driven.cancel()
    assert list(driven.steps) == ["add#1"]
    driven.crash()
    driven.work()
    assert driven.status is InstanceStatus.CANCELLED

    async def stubborn() -> str:
        try:
            await add(1)
        except asyncio.CancelledError:
            return f"no: {await add(2)}"
        return ""

    driven = Driven(flow(stubborn))
    driven.cancel()
    driven.work()
    assert (driven.status, driven.outcome) == (InstanceStatus.COMPLETED, "no: 3")


def test_a_child_that_was_cancelled_says_so():
    async def code() -> list[str]:
        try:
            await child(1)
        except holdfast.FlowCancelled as error:
            return [error.id, error.reason]
        return []

    driven = Driven(flow(code), id="p")
    ended = Driven(child, (1,), id="p/child#0", parent="p")
    ended.cancel("why not")
    (message,) = ended.decisions[-1].sends
    driven.letter("child", message.name, msgspec.json.decode(message.payload), message.id)
    assert driven.outcome == ["p/child#0", "why not"]


# -- children -------------------------------------------------------------------------------------


def test_calling_a_flow_starts_a_child_and_awaits_it():
    async def code() -> list[int]:
        return list(await asyncio.gather(child(1), child(2)))

    driven = Driven(flow(code), id="p")
    first, second = driven.decisions[-1].starts
    assert (first.id, first.name, first.input) == ("p/child#0", "child", '{"number":1}')
    assert (first.parent, first.kind) == ("p", "flow")
    assert first.request != second.request
    driven.crash()
    assert driven.decisions[-1].starts == ()
    driven.letter("child", "p/child#1", {"result": 20})
    driven.letter("child", "p/child#1", {"result": 21})
    driven.letter("child", "p/child#0", {"result": 10})
    assert driven.outcome == [10, 20]


def test_a_child_may_have_an_id_of_its_own_and_nothing_to_do_with_its_parent():
    seen = []

    async def code() -> None:
        mine = holdfast.start_child(child, 1, id="mine")
        seen.append((mine.id, holdfast.start_child(child, 2, detached=True)))
        await mine

    driven = Driven(flow(code), id="p")
    assert seen == [("mine", "p/child#1")]
    mine, detached = driven.decisions[-1].starts
    assert (mine.parent, detached.parent) == ("p", None)
    driven.cancel()
    assert [message.to for message in driven.decisions[-1].sends] == ["mine"]


def test_a_child_whose_id_is_taken_is_told_as_failed():
    async def code() -> str:
        try:
            await holdfast.start_child(child, 1, id="taken")
        except holdfast.FlowFailed as error:
            return error.type
        return ""

    driven = Driven(flow(code), id="p")
    driven.run.children_taken([driven.decisions[-1].starts[0].id], driven.now_us)
    driven.commit()
    assert driven.outcome == "holdfast.errors.FlowExists"


def test_giving_up_a_child_cancels_it_unless_it_is_abandoned():
    async def code(how: str) -> str:
        waited = holdfast.start_child(child, 1, on_parent_end=how)
        try:
            async with asyncio.timeout(5):
                await waited
        except TimeoutError:
            await add(1)
        return how

    for how, told in (("cancel", ["p/child#0"]), ("abandon", [])):
        driven = Driven(flow(code), (how,), id="p")
        (decision,) = driven.elapse(5)
        assert [message.to for message in decision.sends] == told
        driven.crash()
        # Sent again under the same id, which changes nothing.
        assert [message.to for message in driven.decisions[-1].sends] == told
        driven.crash()
        assert driven.decisions[-1].sends == ()
        driven.work()
        assert driven.outcome == how


# -- eviction -------------------------------------------------------------------------------------


def test_a_flow_that_is_dropped_decides_nothing():
    seen = []

    async def code() -> None:
        try:
            async with holdfast.saga() as saga:
                saga.add(unbook, "x")
                await add(1)
        except BaseException as error:
            seen.append(type(error))
            raise
        finally:
            for ask in (
                lambda: add(2),
                lambda: child(1),
                holdfast.now,
                lambda: holdfast.wait_signal("x"),
                lambda: holdfast.set_status("gone"),
                lambda: holdfast.signal("x", "y"),
                holdfast.continue_as_new,
            ):
                try:
                    ask()
                except Evicted:
                    seen.append(Evicted)
            await add(3)

    driven = Driven(flow(code))
    driven.run.close()
    driven.run.close()
    assert seen == [GeneratorExit, *[Evicted] * 7]
    decision = driven.run.take()
    assert not decision.durable
    assert decision.steps == decision.events == decision.sends == ()
    assert driven.run.feed(SignalReceived(at=1, name="x", id="1")) is False
    gc.collect()
    assert driven.errors == []


def test_a_run_that_never_began_can_be_dropped():
    async def code() -> None: ...

    run = Driven(flow(code)).fresh()
    run.close()


# -- sagas ----------------------------------------------------------------------------------------


async def trip() -> str:
    async with holdfast.saga() as saga:
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
    assert "undoing failed" in driven.outcome["message"]
    assert "could not undo" in caplog.text


# -- going on as new ------------------------------------------------------------------------------


async def counting(total: int) -> int:
    kept = child(total)
    del kept
    number = await holdfast.wait_signal("n", int)
    if number == 0:
        return total
    await add(number)
    return holdfast.continue_as_new(total + number)


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
        async with holdfast.saga() as saga:
            saga.add(unbook, "x")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(add(1))
                await asyncio.sleep(1)
                holdfast.continue_as_new(False)
        return ""

    driven = Driven(flow(grouped), (True,))
    driven.elapse(1)
    assert driven.decisions[-1].restart == '{"again":false}'
    assert driven.stopped == ["add#0"]

    async def elsewhere() -> str:
        async def part() -> None:
            holdfast.continue_as_new()

        try:
            await asyncio.create_task(part())
        except UsageError as error:
            return str(error)
        return ""

    assert "own task" in Driven(flow(elsewhere)).outcome


def test_arguments_that_do_not_fit_the_next_run_are_refused():
    async def code(number: int) -> str:
        try:
            holdfast.continue_as_new(1, 2)
        except UsageError as error:
            return str(error)

    assert "too many" in Driven(flow(code), (1,)).outcome


# -- timers ---------------------------------------------------------------------------------------


def test_an_absolute_timer_and_one_that_has_passed():
    async def code() -> float:
        begun = holdfast.now()
        await holdfast.sleep_until(begun)
        await holdfast.sleep_until(begun.replace(year=begun.year + 1))
        with pytest.raises(UsageError, match="aware"):
            await holdfast.sleep_until(begun.replace(tzinfo=None))
        return (holdfast.now() - begun).days

    driven = Driven(flow(code))
    assert driven.told() == ["TimerSet"]
    driven.elapse(366 * 86_400)
    assert driven.outcome == 366


def test_timers_that_were_cancelled_leave_nothing_behind():
    async def code() -> None:
        for number in range(500):
            async with asyncio.timeout(86_400):
                await add(number)

    driven = Driven(flow(code)).work()
    assert driven.status is InstanceStatus.COMPLETED
    assert len(driven.run.timers._heap) < 200


def test_many_timers_fire_in_order_and_each_once():
    async def code() -> list[int]:
        order: list[int] = []

        async def part(number: int) -> None:
            await asyncio.sleep(number % 7 + 1)
            order.append(number)

        await asyncio.gather(*(part(number) for number in range(20)))
        return order

    driven = Driven(flow(code))
    driven.crash()
    driven.elapse(3)
    driven.crash()
    driven.elapse(10)
    assert driven.outcome == sorted(range(20), key=lambda number: (number % 7, number))


def test_a_failure_in_a_group_cancels_the_rest():
    async def code() -> str:
        failures = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(3):
                    tasks.create_task(add(number))
        except* StepFailed as failed:
            failures = len(failed.exceptions)
        return str(failures)

    driven = Driven(flow(code))
    driven.end("add#1", RuntimeError("x"))
    assert driven.outcome == "1"
    assert sorted(driven.stopped) == ["add#0", "add#2"]
