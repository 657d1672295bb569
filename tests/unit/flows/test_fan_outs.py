"""Fan-outs of thousands: what a replay or a retry takes grows with them, and not with their square.

It runs on the event loop of a host, where everybody else waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

import msgspec
import pytest

from outlive import App
from outlive.flows.decision import StepTask
from outlive.flows.events import (
    NULL,
    Failure,
    Forked,
    StepEnded,
    StepRetrying,
    StepSent,
    decode_events,
    encode_events,
)
from outlive.flows.intake import Intake
from outlive.flows.local_steps import LocalSteps
from outlive.flows.rewinding import fork_history
from outlive.flows.salvaging import Salvaged
from outlive.flows.step_run import Gate
from outlive.model.instance import HistoryRow
from outlive.names import Token
from tests.unit.flows.counting import grows_as_its_input, lines_run
from tests.unit.flows.driving import BEGAN_US, Driven
from tests.unit.flows.retried import kid, retry

pytestmark = pytest.mark.whitebox

BROKEN = Failure("builtins.ValueError", "broken")


def step(**options: object):
    def work(number: int) -> int:
        return number

    return App("steps").step(**{"name": "work", **options})(work)


LOCAL, QUEUED, ONCE = step(), step(queue="gpu"), step(once=True)
OTHER = step(name="other")


def fan_out(call, size: int):
    """A flow that calls something so often, and fails with all failures there are."""

    async def code() -> int:
        calls = [call(number) for number in range(size)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        errors = [each for each in done if isinstance(each, Exception)]
        if errors:
            raise ExceptionGroup("some", errors)
        return len(done)

    return App("a").flow(name="f")(code)


def ended(numbers: Iterable[int], failed: Iterable[int] = ()) -> list[StepEnded]:
    broken = set(failed)
    return [
        StepEnded(
            at=BEGAN_US + place,
            step=f"work#{number}",
            result=NULL if number in broken else msgspec.Raw(b"1"),
            error=BROKEN if number in broken else None,
        )
        for place, number in enumerate(numbers)
    ]


def feed(driven: Driven, events: Iterable[StepEnded]) -> Driven:
    """All of them, in one commit."""
    for event in events:
        driven.run.feed(event)
    driven.commit()
    return driven


def moved(driven: Driven, flow) -> Driven:
    """The host has died, and the next one has other code."""
    driven.flow = flow
    driven.crash()
    return driven


# -- steps that are begun elsewhere than before ---------------------------------------------------


@pytest.mark.parametrize("to", [QUEUED, ONCE])
@pytest.mark.parametrize("turn", [1, -1], ids=["first to last", "last to first"])
def test_local_steps_that_were_moved_are_replayed_in_proportion(to, turn):
    def replay(size: int):
        driven = feed(Driven(fan_out(LOCAL, size)), ended(range(1, size)[::turn]))
        return lambda: moved(driven, fan_out(to, size))

    assert grows_as_its_input(replay)


def test_attempts_of_steps_that_were_moved_are_replayed_in_proportion():
    def replay(size: int):
        driven = Driven(fan_out(LOCAL, size))
        at, due = BEGAN_US + 1, BEGAN_US + 5
        driven.write(
            *[
                StepRetrying(at=at, step=f"work#{n}", attempt=1, error=BROKEN, due=due)
                for n in range(size)
            ]
        )
        return lambda: moved(driven, fan_out(QUEUED, size))

    assert grows_as_its_input(replay)


def test_what_is_left_of_steps_that_were_moved_is_begun_in_the_order_of_the_calls():
    driven = feed(Driven(fan_out(LOCAL, 6)), ended([4, 0, 3]))
    moved(driven, fan_out(QUEUED, 6))
    assert [job.step for job in driven.decisions[-1].jobs] == ["work#1", "work#2", "work#5"]
    sent = driven.decisions[-1].events
    assert [event.step for event in sent if isinstance(event, StepSent)] == [
        *("work#1", "work#2", "work#5")
    ]
    assert driven.run.out.events == len(driven.history())
    feed(driven, ended([5, 1, 2]))
    assert driven.outcome == 6
    driven.crash()
    assert driven.run.ended


def test_a_copy_begins_children_of_its_own_in_proportion():
    def copy(size: int):
        async def code() -> None:
            await asyncio.gather(*[kid() for _ in range(size)])

        flow = App("a").flow(name="f")(code)
        mark = Forked(at=BEGAN_US + 1, id="f", base=0, version=0)
        texts = fork_history(Driven(flow).rows, mark)
        rows = [HistoryRow(n, Token(1), "w", BEGAN_US, text) for n, text in enumerate(texts, 1)]
        return lambda: Driven(flow, id="g", rows=list(rows))

    assert grows_as_its_input(copy)


# -- retries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [LOCAL, QUEUED, ONCE])
@pytest.mark.parametrize("failed", ["the first", "every other", "all"])
def test_a_fan_out_is_retried_in_proportion(call, failed):
    def again(size: int):
        apart = {"the first": size, "every other": 2, "all": 1}[failed]
        events = ended(range(size), range(0, size, apart))
        driven = feed(Driven(fan_out(call, size)), events)
        assert driven.run.ended
        return lambda: retry(driven)

    assert grows_as_its_input(again)


def renumbered(size: int) -> Driven:
    """A fan-out that failed, and whose inputs come in another order since."""

    def code(shift: int):
        async def calls() -> int:
            # Its end stands, so that the others are open when the retry is replayed.
            before = OTHER(0)
            inputs = [(number + shift) % size for number in range(size)]
            await asyncio.gather(before, *map(LOCAL, inputs))
            return size

        return App("a").flow(name="f")(calls)

    driven = Driven(code(0))
    driven.end("other#0", 0)
    feed(driven, [*ended(range(1, size)), *ended([0], [0])])
    assert driven.run.ended
    driven.rows[-1] = last_first(driven.rows[-1])
    driven.flow = code(size // 2)
    return driven


def last_first(row: HistoryRow) -> HistoryRow:
    """The failure, which came last and ended the flow, as if it had come before the others."""
    *events, failure, end = decode_events(row.events)
    text = encode_events([failure, *events, end])
    return HistoryRow(row.version, row.token, row.worker, row.at_us, text)


def test_ends_are_given_to_calls_that_have_other_numbers_now_in_proportion():
    driven = renumbered(10)
    retry(driven)
    # The one that failed is called by the number of another.
    assert list(driven.steps) == ["work#5"]
    assert grows_as_its_input(lambda size: partial(retry, renumbered(size)))


def test_things_of_one_input_are_taken_in_proportion():
    def taking(size: int):
        salvaged: Salvaged[int] = Salvaged()
        for number in range(size):
            salvaged.add(f"work#{number}", NULL, number)

        def take() -> None:
            taken = [
                salvaged.take(f"work#{size + n}", NULL, same=lambda _: False) for n in range(size)
            ]
            assert taken == list(range(size))

        return take

    assert grows_as_its_input(taking)


# -- steps that are stopped -----------------------------------------------------------------------


def test_steps_that_have_not_begun_are_stopped_in_proportion():
    def stopping(size: int):
        calls = [
            StepTask(
                identity=f"work#{number}",
                step=LOCAL,
                input=NULL,
                attempt=1,
                first_at_us=BEGAN_US,
            )
            for number in range(size)
        ]
        steps = LocalSteps(None)  # type: ignore[arg-type]
        steps._held += calls
        steps.transactions.extend(calls)

        def stop() -> None:
            steps.stop([call.identity for call in calls[1:]])
            assert steps.transactions == calls[:1]

        return stop

    assert grows_as_its_input(stopping)


def test_who_does_not_wait_for_a_turn_any_more_is_not_searched_for():
    compared = 0

    class Run:
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = object.__hash__

    gate = Gate(1)
    runs: list[object] = [Run() for _ in range(100)]
    entered = [gate.enter(run) for run in runs]  # type: ignore[arg-type]
    assert entered == [True, *[False] * 99]
    for run in [*runs[:2:-1], runs[0]]:
        gate.forget(run)  # type: ignore[arg-type]
    assert compared < 100
    assert [gate.leave(), gate.leave(), gate.leave()] == [runs[1], runs[2], None]


def test_steps_that_end_while_their_flow_stands_still_are_recorded_in_proportion():
    def recording(size: int):
        driven, intake = Driven(fan_out(LOCAL, size)), Intake()

        def record() -> None:
            for number, end in enumerate(ended(range(size))):
                intake.put(end)
                assert intake.fresh
                (told,) = intake.record(driven.run)
                assert (told.step, told.ahead) == (f"work#{number}", True)
                assert not intake.fresh
            assert [event.step for event, _, known in intake.waiting if known] == [
                f"work#{number}" for number in range(size)
            ]

        return record

    assert grows_as_its_input(recording)


def test_what_is_recorded_and_what_came_since_are_told_apart():
    """Whatever was fed in between, and whatever comes before all that waits."""
    driven, intake = Driven(fan_out(LOCAL, 6)), Intake()
    calls = driven.run.calling.steps
    first, second, third, fourth, fifth = [
        msgspec.structs.replace(event, input=calls[event.step].input) for event in ended(range(5))
    ]
    intake.put(first, second)
    assert [event.step for event in intake.record(driven.run)] == ["work#0", "work#1"]
    intake.put(third)
    intake.put_recorded(fourth)
    assert intake.fresh
    assert [event.step for event in intake.record(driven.run)] == ["work#2"]
    assert [event.step for event, _, _ in intake.waiting] == [
        *("work#3", "work#0", "work#1", "work#2")
    ]
    intake.put(fifth)
    intake.feed(driven.run)
    assert (intake.waiting, intake.fresh) == ([], False)
    decision = driven.run.take()
    events, _, _ = intake.emptied(decision.events)
    assert [event.step for event in events] == ["work#4"]


def test_lines_are_counted():
    driven = Driven(fan_out(LOCAL, 3))
    assert lines_run(driven.crash) > lines_run(lambda: None) == 0
