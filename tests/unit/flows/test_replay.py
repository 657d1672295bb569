"""Replay: the same decisions from the same history; what code may change, and what it may not."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import pytest

import outlive
from outlive import App, HistoryTooNew, NonDeterminism
from outlive.flows.events import Forked, SignalReceived, TimerSet, encode_events
from outlive.model.instance import HistoryRow, InstanceStatus
from outlive.names import Token
from tests.unit.flows.driving import BEGAN_US, Driven

pytestmark = pytest.mark.whitebox

app = App("replay")


@app.step
def add(first: int, second: int = 1) -> int:
    return first + second


@app.step
def other(number: int) -> int:
    return -number


@app.step(queue="gpu")
def remote(number: int) -> int:
    return number


@app.step(once=True)
def careful(number: int) -> int:
    return number


def flow(function, name: str = "f"):
    return App("a").flow(name=name)(function)


def run_of(function, *args, steps: int = 0, **how) -> Driven:
    driven = Driven(flow(function), args, **how)
    for _ in range(steps):
        driven.work(1)
    return driven


def replayed(function, driven: Driven, **how) -> Driven:
    """The same history, with other code."""
    return Driven(flow(function), driven.args, rows=list(driven.rows), **how)


async def two(start: int = 1) -> int:
    first = await add(start)
    await asyncio.sleep(60)
    return await other(first)


def test_every_prefix_of_a_history_gives_the_same_decisions():
    whole = run_of(two, 1)
    whole.work()
    whole.elapse(61)
    whole.work()
    assert whole.outcome == -2
    for length in range(len(whole.rows) + 1):
        part = Driven(flow(two), (1,), rows=list(whole.rows[:length]))
        part.work()
        part.elapse(62)
        part.work()
        assert part.told() == whole.told()
        assert part.run.ended


def test_a_difference_shows_what_was_expected_and_found():
    async def changed(start: int = 1) -> int:
        await add(start, 1)
        await remote(start)
        return 0

    done = run_of(two, 1, steps=1)
    with pytest.raises(NonDeterminism) as caught:
        replayed(changed, done)
    assert "timer 1 set" in caught.value.expected
    assert "remote#0" in caught.value.found
    assert caught.value.id == "f"
    assert "patched" in str(caught.value)


def test_another_input_is_a_difference():
    async def changed(start: int = 1) -> int:
        await add(start, 5)
        await asyncio.sleep(60)
        return 0

    done = run_of(two, 1, steps=1)
    with pytest.raises(NonDeterminism) as caught:
        replayed(changed, done)
    assert caught.value.expected == 'add#0 called with {"first":1,"second":1}'
    assert caught.value.found == 'add#0 called with {"first":1,"second":5}'


def test_a_field_and_a_parameter_that_came_later_are_no_difference():
    @dataclass
    class Order:
        id: str

    @dataclass
    class LaterOrder:
        id: str
        amount: int = 3

    def make(kind, parameters, name="x"):
        def body(order, extra=7): ...

        def old(order): ...

        body = body if parameters == 2 else old
        body.__annotations__ = {"order": kind}
        step = App("a").step(name="body")(body)

        async def code():
            await step(kind(name))
            await asyncio.sleep(1)

        return code

    done = run_of(make(Order, 1), steps=1)
    again = replayed(make(LaterOrder, 2), done)
    assert again.run.due_at_us is not None
    with pytest.raises(NonDeterminism):
        replayed(make(LaterOrder, 1, "y"), done)


def test_a_timer_keeps_its_due_time():
    async def slower(start: int = 1) -> int:
        first = await add(start)
        await asyncio.sleep(6000)
        return await other(first)

    done = run_of(two, 1, steps=1)
    due = done.run.due_at_us
    again = replayed(slower, done)
    assert again.run.due_at_us == due
    again.elapse(120)
    assert list(again.steps) == ["other#0"]


def test_a_step_that_is_not_asked_for_again_is_a_warning(caplog):
    async def with_audit() -> int:
        await other(1)
        await add(1)
        await asyncio.sleep(5)
        return 1

    async def without() -> int:
        await add(1)
        await asyncio.sleep(5)
        return 1

    done = run_of(with_audit, steps=2)
    with caplog.at_level(logging.WARNING):
        again = replayed(without, done)
    assert "no longer calls steps that are in its history: other#0" in caplog.text
    again.elapse(6)
    assert again.status is InstanceStatus.COMPLETED


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("kind", ["local", "queued", "once"])
def test_a_step_that_was_renamed_is_not_run_a_second_time(steps, kind):
    how = {"queued": {"queue": "q"}, "once": {"once": True}}.get(kind, {})

    @App("b").step(**how)
    async def added(n: int) -> int:
        return n + 1

    async def before() -> int:
        await add(1)
        await other(2)
        await asyncio.sleep(5)
        return await other(3)

    async def after() -> int:
        await added(1)
        await other(2)
        await asyncio.sleep(5)
        return await other(3)

    done = run_of(before, steps=min(steps, 2))
    if steps > 2:
        done.elapse(6)
        done.work()
        assert done.status is InstanceStatus.COMPLETED
    with pytest.raises(NonDeterminism) as caught:
        replayed(after, done)
    # Where nothing but ends of steps is recorded, these are all that can be missed.
    if steps == 1:
        assert caught.value.expected == "step add#0, which has run"
        assert caught.value.found.startswith("step added#0, which has not")


def test_steps_in_another_order_find_their_ends():
    async def before() -> list[int]:
        return [await add(1), await other(2), await add(3)]

    async def after() -> list[int]:
        second = await other(2)
        return [await add(1), second, await add(3)]

    done = run_of(before, steps=2)
    again = replayed(after, done)
    assert list(again.steps) == ["add#1"]
    again.work()
    assert again.outcome == [2, -2, 4]
    assert Driven(flow(after), rows=again.rows).run.ended


def test_an_end_that_is_asked_for_late_is_compared_as_well():
    async def before() -> None:
        await other(2)
        await add(1)
        await asyncio.sleep(9)

    async def after() -> None:
        await add(1)
        await other(3)
        await asyncio.sleep(9)

    done = run_of(before, steps=2)
    with pytest.raises(NonDeterminism, match="other#0"):
        replayed(after, done)


def test_code_that_ends_before_its_history_does_is_a_difference():
    async def shorter(start: int = 1) -> int:
        return start

    done = run_of(two, 1, steps=1)
    with pytest.raises(NonDeterminism) as caught:
        replayed(shorter, done)
    assert "end" in caught.value.found


def test_a_result_that_no_longer_fits_its_type_is_a_difference():
    def make(kind):
        def body() -> None: ...

        body.__annotations__ = {"return": kind}
        step = App("a").step(name="body")(body)

        async def code() -> None:
            await step()
            await asyncio.sleep(5)

        return code

    driven = Driven(flow(make(int)))
    driven.end("body#0", 4)
    with pytest.raises(NonDeterminism, match="fits its type"):
        replayed(make(list[str]), driven)


@pytest.mark.parametrize("queued_before", [True, False])
@pytest.mark.parametrize("kind", [remote, careful])
def test_a_step_may_change_where_it_runs(queued_before, kind):
    def make(special):
        local = App("a")
        step = kind if special else local.step(name=kind.name)(kind.function)

        async def code() -> int:
            number = await step(4)
            await asyncio.sleep(5)
            return number

        return code

    driven = Driven(flow(make(queued_before)))
    driven.end(f"{kind.name}#0", 4)
    again = replayed(make(not queued_before), driven)
    again.elapse(6)
    assert again.outcome == 4
    # Begun then, and not ended: it is not begun a second time.
    begun = Driven(flow(make(queued_before)))
    later = replayed(make(not queued_before), begun)
    if queued_before:
        assert later.steps == {}
        assert later.decisions[-1].jobs == ()
        later.end(f"{kind.name}#0", 4)
        later.elapse(6)
        assert later.outcome == 4


def test_the_logger_is_silent_during_replay(caplog):
    async def code() -> None:
        log = outlive.logger("shop")
        log.info("before")
        await add(1)
        log.info("after", extra={"more": 1})
        await add(2)

    with caplog.at_level(logging.INFO):
        driven = run_of(code, steps=1)
        assert caplog.messages == ["before", "after"]
        assert caplog.records[0].flow == "f"
        assert caplog.records[1].more == 1
        driven.crash()
        assert caplog.messages == ["before", "after"]


def test_time_chance_and_ids_are_the_same_at_every_replay():
    seen: list[list[object]] = []

    async def code() -> None:
        mine: list[object] = []
        seen.append(mine)
        for number in range(3):
            mine.append((outlive.now(), outlive.uuid(), outlive.random().random()))
            await add(number)

    driven = run_of(code)
    driven.work()
    replayed(code, driven)
    assert seen[0] == seen[1]
    assert len({str(entry) for entry in seen[0]}) == 3
    assert outlive_now_of(seen[0][0]) == BEGAN_US
    other_flow = run_of(code, id="g")
    assert seen[2][0] != seen[0][0]
    other_flow.run.close()


def outlive_now_of(entry) -> int:
    return round(entry[0].timestamp() * 1e6)


def test_a_history_of_a_newer_release_is_not_read():
    row = HistoryRow(1, Token(1), "w", 0, '[{"event":"from-the-future","at":1}]')
    with pytest.raises(HistoryTooNew, match="from-the-future") as raised:
        Driven(flow(two), (1,), rows=[row])
    assert "upgrade Outlive on this host" in str(raised.value)


def test_events_that_a_transaction_committed_alone_are_followed_by_what_was_decided():
    async def code() -> None:
        await add(1)
        outlive.signal("g", "hello")
        await asyncio.sleep(5)

    whole = run_of(code, steps=1)
    assert whole.told() == ["StepEnded", "SignalSent", "TimerSet"]
    (ended, sent, timer) = whole.history()
    # The step's end stands in a commit of its own; then its host dies.
    alone = [HistoryRow(1, Token(1), "w", 0, encode_events([ended]))]
    again = Driven(flow(code), rows=alone)
    assert [type(event).__name__ for event in again.decisions[-1].events] == [
        "SignalSent",
        "TimerSet",
    ]
    assert [message.name for message in again.decisions[-1].sends] == ["hello"]
    # Or the decisions follow in the next one.
    alone = [alone[0], HistoryRow(2, Token(1), "w", 0, encode_events([sent, timer]))]
    later = Driven(flow(code), rows=alone)
    assert later.decisions[-1].sends == ()
    assert not later.decisions[-1].durable


def test_a_forged_history_is_told_apart():
    rows = [HistoryRow(1, Token(1), "w", 0, encode_events([TimerSet(at=0, timer=1, due=5)]))]
    with pytest.raises(NonDeterminism, match="a wait for add#0"):
        Driven(flow(two), (1,), rows=rows)
    rows = [
        HistoryRow(1, Token(1), "w", 0, encode_events([Forked(at=0, id="x", version=0)])),
        HistoryRow(2, Token(1), "w", 0, encode_events([SignalReceived(at=1, name="a", id="1")])),
    ]
    assert list(Driven(flow(two), (1,), rows=rows).steps) == ["add#0"]
