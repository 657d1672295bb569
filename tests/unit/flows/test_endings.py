"""How flows end: results, cancellation, loose tasks, eviction; and their timers."""

from __future__ import annotations

import asyncio
import gc

import msgspec
import pytest

import outlive
from outlive import App, Evicted, StepFailed, UsageError
from outlive.flows import loop as flow_loop
from outlive.flows.events import Ended, SignalReceived, TimerSet, decode_events
from outlive.model.instance import InstanceStatus
from tests.unit.flows.driving import Driven

pytestmark = pytest.mark.whitebox

app = App("endings")


@app.step
def add(number: int) -> int:
    return number + 1


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
    assert driven.outcome["type"] == "outlive.errors.InvalidPayload"
    gone = Driven(flow(code), input='{"numbers":1}')
    assert gone.status is InstanceStatus.FAILED


def test_a_result_that_cannot_be_stored_fails_the_flow():
    async def code():
        return object()

    driven = Driven(flow(code))
    assert driven.status is InstanceStatus.FAILED
    assert "the result of flow f" in driven.outcome["message"]
    assert "await" not in driven.outcome["message"]


def test_a_result_that_does_not_fit_its_type_fails_the_flow():
    async def code(number: int) -> list[int]:
        return "x" * number

    driven = Driven(flow(code), (4,))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "outlive.errors.InvalidPayload"
    assert "flow f returned a str, which does not fit list[int]" in driven.outcome["message"]
    assert driven.crash().ended


def test_a_result_that_reads_as_its_type_completes_the_flow():
    async def code() -> float | None:
        return 5

    assert Driven(flow(code)).status is InstanceStatus.COMPLETED


def test_a_result_that_was_not_awaited_is_asked_after():
    async def code(number: int):
        return add(number)

    driven = Driven(flow(code), (4,))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["message"].endswith("was an `await` forgotten?")


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_leaving_the_process_is_refused(error):
    async def code() -> None:
        raise error

    driven = Driven(flow(code))
    assert driven.status is InstanceStatus.FAILED
    assert driven.outcome["type"] == "outlive.errors.UsageError"


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


class Box:
    """Something that can be awaited as futures are, and is none."""

    _asyncio_future_blocking = False

    def __init__(self) -> None:
        self._callbacks: list = []
        self._loop = asyncio.get_running_loop()

    def get_loop(self):
        return self._loop

    def add_done_callback(self, callback, *, context=None) -> None:
        self._callbacks.append(callback)

    def __await__(self):
        self._asyncio_future_blocking = True
        yield self


def test_a_flow_that_awaits_something_of_its_own_can_be_dropped():
    cleaned = []

    async def code() -> None:
        try:
            await Box()
        finally:
            cleaned.append(True)

    driven = Driven(flow(code))
    driven.run.close()
    assert cleaned == [True]


def test_what_is_cancelled_when_its_flow_was_dropped_changes_nothing():
    kept = []

    async def code() -> None:
        kept.extend([add(1), outlive.wait_signal("go"), asyncio.ensure_future(asyncio.sleep(60))])
        await asyncio.gather(*kept)

    driven = Driven(flow(code))
    driven.run.close()
    for each in kept:
        each.cancel()
    assert not driven.run.feed(SignalReceived(at=1, id="1", name="go", payload=msgspec.Raw(b"1")))


def test_timers_of_code_that_spins_are_recorded_before_its_end(monkeypatch):
    monkeypatch.setattr(flow_loop, "CALLBACKS_MAX", 500)

    async def code() -> None:
        asyncio.get_running_loop().call_later(60, print)
        while True:
            await asyncio.gather(asyncio.sleep(0))

    driven = Driven(flow(code))
    events = [event for row in driven.rows for event in decode_events(row.events)]
    assert [type(event) for event in events] == [TimerSet, Ended]
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
    driven.work()
    assert driven.status is InstanceStatus.COMPLETED
    gc.collect()
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
        outlive.start_child(child, 6, on_parent_end="abandon")
        await add(1)
        await started

    driven = Driven(flow(code), id="p")
    driven.cancel("too late")
    assert driven.status is InstanceStatus.CANCELLED
    assert driven.outcome == {"type": "outlive.errors.FlowCancelled", "message": "too late"}
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
        except outlive.FlowCancelled as error:
            return [error.id, error.reason]
        return []

    driven = Driven(flow(code), id="p")
    ended = Driven(child, (1,), id="p/child#0", parent="p")
    ended.cancel("why not")
    (message,) = ended.decisions[-1].sends
    driven.letter("child", message.name, msgspec.json.decode(message.payload), message.id)
    assert driven.outcome == ["p/child#0", "why not"]


# -- before the beginning -------------------------------------------------------------------------


def test_a_run_that_is_held_and_cancelled_never_begins_now_or_at_replay():
    ran: list[int] = []

    async def code() -> None:
        ran.append(1)
        await asyncio.sleep(60)

    driven = Driven(flow(code))
    ran.clear()
    driven.run = driven.fresh()
    driven.rows.clear()
    driven.run.begin(hold=True)
    driven.cancel("never")
    assert driven.status is InstanceStatus.CANCELLED
    assert driven.told() == ["CancelRequested", "Ended"]
    assert Driven(flow(code), rows=driven.rows).run.ended
    assert ran == []


def test_a_run_that_is_held_begins_with_whatever_else_is_fed():
    async def code() -> str:
        with pytest.raises(TimeoutError):
            await outlive.wait_signal("x", timeout=0)
        return await outlive.wait_signal("x", str)

    driven = Driven(flow(code))
    driven.run = driven.fresh()
    driven.rows.clear()
    driven.run.begin(hold=True)
    driven.signal("x", "y")
    assert driven.outcome == "y"
    assert Driven(flow(code), rows=driven.rows).run.ended


# -- eviction -------------------------------------------------------------------------------------


def test_a_flow_that_is_dropped_decides_nothing():
    seen = []

    async def code() -> None:
        try:
            async with outlive.saga() as saga:
                saga.add(unbook, "x")
                await add(1)
        except BaseException as error:
            seen.append(type(error))
            raise
        finally:
            for ask in (
                lambda: add(2),
                lambda: child(1),
                outlive.now,
                lambda: outlive.wait_signal("x"),
                lambda: outlive.set_status("gone"),
                lambda: outlive.signal("x", "y"),
                outlive.continue_as_new,
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


# -- timers ---------------------------------------------------------------------------------------


def test_an_absolute_timer_and_one_that_has_passed():
    async def code() -> float:
        begun = outlive.now()
        await outlive.sleep_until(begun)
        await outlive.sleep_until(begun.replace(year=begun.year + 1))
        with pytest.raises(UsageError, match="with a time zone"):
            await outlive.sleep_until(begun.replace(tzinfo=None))
        return (outlive.now() - begun).days

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


@pytest.mark.parametrize(
    ("how", "named"),
    [
        (lambda: add(1), "step add#0"),
        (lambda: child(1), "child child#0"),
        (lambda: outlive.start_child(child, 1, on_parent_end="abandon"), None),
    ],
)
def test_what_was_begun_and_never_awaited_is_told(how, named):
    async def code() -> str:
        how()
        return "done"

    driven = Driven(flow(code), ())
    assert driven.outcome == "done"
    told = [context["message"] for context in driven.errors]
    assert told == (
        []
        if named is None
        else [f"the flow returned without awaiting {named}: await each call, or cancel it"]
    )
    # A replay says nothing.
    again = Driven(driven.flow, (), rows=list(driven.rows))
    assert again.run.ended
    assert again.errors == []
