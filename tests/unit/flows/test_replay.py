"""Replay: the same decisions from the same history; what code may change, and what it may not."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import msgspec
import pytest

import holdfast
from holdfast import App, NonDeterminism
from holdfast.flows.events import Forked, Rewound, SignalReceived, TimerSet, encode_events
from holdfast.flows.replaying import fork_history
from holdfast.model.instance import HistoryRow, InstanceStatus
from holdfast.names import Token
from tests.unit.flows.driving import BEGAN_US, SECOND, Driven

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
        await remote(start)
        return 0

    done = run_of(two, 1, steps=1)
    with pytest.raises(NonDeterminism) as caught:
        replayed(changed, done)
    assert "timer 1 being set" in caught.value.expected
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
    assert "did not ask again for steps that it had run: other#0" in caplog.text
    again.elapse(6)
    assert again.status is InstanceStatus.COMPLETED


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
        log = holdfast.logger("shop")
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
            mine.append((holdfast.now(), holdfast.uuid(), holdfast.random().random()))
            await add(number)

    driven = run_of(code)
    driven.work()
    replayed(code, driven)
    assert seen[0] == seen[1]
    assert len({str(entry) for entry in seen[0]}) == 3
    assert holdfast_now_of(seen[0][0]) == BEGAN_US
    other_flow = run_of(code, id="g")
    assert seen[2][0] != seen[0][0]
    other_flow.run.close()


def holdfast_now_of(entry) -> int:
    return round(entry[0].timestamp() * 1e6)


# -- patches --------------------------------------------------------------------------------------


async def old_way() -> int:
    await add(1)
    await add(2)
    return await add(3)


async def new_way() -> int:
    await add(1)
    if holdfast.patched("b"):
        await other(2)
    else:
        await add(2)
    return await add(3)


def test_a_patch_leaves_old_runs_alone_and_takes_new_ones_along():
    old = run_of(old_way, steps=1)
    again = replayed(new_way, old)
    assert list(again.steps) == ["add#1"]
    again.work()
    assert again.outcome == 4

    new = run_of(new_way, steps=1)
    assert list(new.steps) == ["other#0"]
    assert new.told() == ["StepEnded", "Patched"]
    new.crash()
    assert list(new.steps) == ["other#0"]
    new.work()
    assert Driven(flow(new_way), rows=new.rows).run.ended


def test_a_patch_in_a_loop_has_one_answer():
    def make(patch):
        async def code() -> None:
            for number in range(4):
                if patch and holdfast.patched("x"):
                    await other(number)
                else:
                    await add(number)

        return code

    old = run_of(make(False), steps=2)
    again = replayed(make(True), old)
    again.work()
    assert [event.step for event in again.history()[:4]] == [f"add#{n}" for n in range(4)]
    assert Driven(flow(make(True)), rows=again.rows).run.ended


def test_a_patch_alone_costs_no_commit():
    async def code() -> int:
        if holdfast.patched("x"):
            return await add(1)
        return 0

    driven = run_of(code)
    assert driven.rows == []
    driven.work()
    assert driven.told() == ["Patched", "StepEnded", "Ended"]
    assert len(driven.rows) == 1
    assert Driven(flow(code), rows=driven.rows).run.ended


# -- operators ------------------------------------------------------------------------------------


async def failing() -> int:
    first = await add(1)
    holdfast.wait_signal("unread")
    return first + await other(5)


def test_a_retry_goes_on_from_before_the_failure_and_keeps_what_was_sent():
    driven = run_of(failing, steps=1)
    driven.signal("unread", 1)
    driven.end("other#0", RuntimeError("no"))
    assert driven.status is InstanceStatus.FAILED
    driven.write(Rewound(at=driven.now_us + SECOND, to=1))
    driven.crash()
    assert list(driven.steps) == ["other#0"]
    driven.work()
    assert driven.outcome == -3
    assert Driven(flow(failing), rows=driven.rows).run.ended


def test_a_retry_keeps_signals_that_were_read_in_the_void_part():
    async def code() -> str:
        text = await holdfast.wait_signal("go", str)
        await other(1)
        return text

    driven = run_of(code)
    driven.signal("go", "now")
    driven.end("other#0", RuntimeError("no"))
    driven.write(Rewound(at=driven.now_us + SECOND, to=0))
    driven.crash()
    driven.work()
    assert driven.outcome == "now"
    # And again: the retry itself becomes void.
    driven.write(Rewound(at=driven.now_us + SECOND, to=0))
    driven.crash()
    assert list(driven.steps) == ["other#0"]


def test_a_retry_sends_a_failed_job_again_under_another_id():
    async def code() -> int:
        return await remote(1)

    driven = run_of(code)
    dead = {"state": "dead", "outcome": {"message": "x"}}
    driven.letter("step", "remote#0", dead, "job/f/remote#0")
    assert driven.status is InstanceStatus.FAILED
    driven.write(Rewound(at=driven.now_us + SECOND, to=1))
    driven.crash()
    (job,) = driven.decisions[-1].jobs
    assert job.id == "f/remote#0@0.1"
    driven.crash()
    assert driven.decisions[-1].jobs == ()
    done = {"state": "done", "outcome": 8}
    assert driven.letter("step", "remote#0", done, "job/f/remote#0").events == ()
    driven.letter("step", "remote#0", done, "job/f/remote#0@0.1")
    assert driven.outcome == 8


def test_a_retry_keeps_a_job_that_succeeded_in_the_void_part():
    async def code() -> int:
        sent = remote(1)
        await add(1)
        return await sent

    driven = run_of(code)
    driven.letter("step", "remote#0", {"state": "done", "outcome": 8}, "job/f/remote#0")
    driven.end("add#0", RuntimeError("no"))
    driven.write(Rewound(at=driven.now_us + SECOND, to=1))
    driven.crash()
    assert driven.decisions[-1].jobs == ()
    driven.work()
    assert driven.outcome == 8


def test_a_fork_goes_on_from_any_version_with_another_input():
    driven = run_of(two, 1, steps=1)
    driven.elapse(61)
    rows = fork_history(driven.rows, id="f", base=0, at=1, at_us=driven.now_us)
    copied = [HistoryRow(n + 1, Token(1), "w", 0, text) for n, text in enumerate(rows)]
    fork = Driven(flow(two), (40,), id="g", rows=copied)
    assert fork.run.due_at_us is not None
    fork.elapse(120)
    assert list(fork.steps) == ["other#0"]
    fork.work()
    assert fork.outcome == -2
    assert Driven(flow(two), (40,), id="g", rows=fork.rows).run.ended
    with pytest.raises(holdfast.UsageError, match="no version 7"):
        fork_history(driven.rows, id="f", base=0, at=7, at_us=0)


def test_a_fork_draws_the_same_chances_and_begins_open_jobs_for_itself():
    drawn = []

    async def code() -> int:
        drawn.append(holdfast.uuid())
        sent = remote(1)
        await add(1)
        return await sent

    driven = run_of(code, steps=1, base=5)
    rows = fork_history(driven.rows, id="f", base=5, at=7, at_us=driven.now_us)
    copied = [HistoryRow(n + 1, Token(1), "w", 0, text) for n, text in enumerate(rows)]
    fork = Driven(flow(code), id="g", rows=copied)
    assert drawn[0] == drawn[1]
    (job,) = fork.decisions[-1].jobs
    assert (job.id, job.instance) == ("g/remote#0", "g")
    fork.crash()
    assert fork.decisions[-1].jobs == ()
    fork.letter("step", "remote#0", {"state": "done", "outcome": 3}, "job/g/remote#0")
    assert fork.outcome == 3


def test_a_history_of_a_newer_release_is_not_read():
    row = HistoryRow(1, Token(1), "w", 0, '[{"event":"from-the-future","at":1}]')
    with pytest.raises(msgspec.ValidationError):
        Driven(flow(two), (1,), rows=[row])


def test_events_that_a_transaction_committed_alone_are_followed_by_what_was_decided():
    async def code() -> None:
        await add(1)
        holdfast.signal("g", "hello")
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
