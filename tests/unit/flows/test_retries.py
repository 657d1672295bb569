"""Where a retried flow goes on: what stays, and what is done again."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import outlive
from outlive import StepFailed
from outlive.flows.events import (
    CancelRequested,
    Failure,
    SignalReceived,
    StepEnded,
    StepRetrying,
    encode_events,
)
from outlive.model.instance import HistoryRow, InstanceStatus
from outlive.names import Token
from tests.unit.flows.driving import SECOND
from tests.unit.flows.retried import (
    broken,
    charge,
    flaky,
    kid,
    ran,
    refund,
    remote,
    replays,
    retry,
    run_of,
    ship,
    wire,
)

pytestmark = pytest.mark.whitebox

# -- what stays -----------------------------------------------------------------------------------


def test_a_step_that_succeeded_in_the_commit_of_the_end_never_runs_again():
    async def code() -> int:
        charged = await charge()
        if broken[0]:
            raise ZeroDivisionError
        return charged + await charge(5)

    driven = run_of(code)
    assert ran(driven) == ["charge#0"]
    assert driven.told() == ["StepEnded", "Ended"]
    retry(driven)
    assert ran(driven) == ["charge#1"]
    assert driven.outcome == 6
    assert replays(driven)


def test_code_that_was_not_mended_fails_as_before_and_can_be_retried_again():
    async def code() -> int:
        charged = await charge()
        if broken[0]:
            raise ZeroDivisionError
        return charged

    driven = run_of(code, parent="p")
    driven.work()
    for _ in range(2):
        retry(driven)
        broken[0] = True
        driven.rows.pop()
        driven.crash()
        assert driven.status is InstanceStatus.FAILED
        # Whoever waits for it is told again.
        assert [send.id for send in driven.decisions[-1].sends]
    retry(driven)
    assert driven.outcome == 1
    assert replays(driven)


def test_what_shares_a_commit_with_the_failure_stays():
    async def code() -> list[object]:
        return list(await asyncio.gather(charge(), ship()))

    driven = run_of(code)
    driven.run.feed(StepEnded(at=driven.now_us, step="charge#0", result=msgspec.Raw(b"1")))
    driven.end("ship#0", ValueError("no truck"))
    assert len(driven.rows) == 1
    event = retry(driven)
    assert (event.to, event.kept) == (0, 1)
    assert ran(driven) == ["ship#0"]
    assert driven.outcome == [1, "home"]
    assert replays(driven)


def test_a_failure_that_the_code_got_over_stays():
    async def code() -> str:
        try:
            await ship()
        except StepFailed:
            await charge()
        if broken[0]:
            raise ValueError("later")
        return "fixed"

    driven = run_of(code)
    assert ran(driven) == ["ship#0", "charge#0"]
    retry(driven)
    assert ran(driven) == []
    assert driven.outcome == "fixed"
    assert replays(driven)


async def in_a_group() -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        task = group.create_task(ship())
    return task.result()


async def raised_from() -> str:
    try:
        return await ship()
    except StepFailed as error:
        await charge()
        raise ValueError("no order") from error


async def raised_at_once() -> str:
    try:
        return await ship()
    except StepFailed:
        raise ValueError("no order")  # noqa: B904 - this is the case


async def gathered() -> str:
    done = await asyncio.gather(ship(), ship("away"), return_exceptions=True)
    errors = [each for each in done if isinstance(each, Exception)]
    if errors:
        raise ExceptionGroup("both", errors)
    return str(done[0])


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (in_a_group, ["ship#0"]),
        (raised_from, ["ship#0"]),
        (raised_at_once, ["ship#0"]),
        (gathered, ["ship#0", "ship#1"]),
    ],
)
def test_the_failure_that_an_error_carries_is_what_is_retried(code, again):
    driven = run_of(code)
    driven.work()
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert ran(driven) == again
    driven.elapse(61)
    assert driven.outcome == "home"
    assert replays(driven)


def test_an_error_after_something_else_was_done_about_the_failure_is_one_of_the_code():
    async def code() -> str:
        try:
            return await ship()
        except StepFailed:
            await charge()
            if broken[0]:
                raise ZeroDivisionError  # noqa: B904 - this is the case
            return "by hand"

    driven = run_of(code)
    driven.work()
    retry(driven)
    assert ran(driven) == []
    assert driven.outcome == "by hand"


def test_a_retried_step_begins_with_its_first_attempt():
    async def code() -> int:
        return await flaky()

    driven = run_of(code)
    failure = Failure("ValueError", "no")
    driven.feed(
        StepRetrying(
            at=driven.now_us, step="flaky#0", attempt=1, error=failure, due=driven.now_us + SECOND
        )
    )
    driven.elapse(2)
    driven.end("flaky#0", ValueError("no"))
    retry(driven)
    assert driven.steps["flaky#0"].attempt == 1
    assert driven.run.due_at_us is None
    assert ran(driven) == ["flaky#0"]
    assert replays(driven)


def test_a_failed_child_begins_anew_and_steps_stay():
    async def code() -> int:
        return await charge() + await kid()

    driven = run_of(code)
    driven.work()
    failed = {"error": {"type": "ValueError", "message": "kid"}}
    driven.letter("child", "f/kid#0", failed, "child/f/kid#0")
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    (start,) = driven.decisions[-1].starts
    assert start.id == "f/kid#0@0.1"
    driven.crash()
    assert driven.decisions[-1].starts == ()
    driven.letter("child", "f/kid#0@0.1", {"result": 4}, "child/f/kid#0@0.1")
    assert driven.outcome == 5
    assert replays(driven)


def test_a_cancelled_flow_goes_on_from_before_the_wish_and_its_clean_up_is_not_repeated():
    async def code() -> str:
        await charge()
        try:
            return await outlive.wait_signal("go", str)
        finally:
            await refund()

    driven = run_of(code)
    driven.work()
    driven.cancel()
    assert ran(driven) == ["refund#0"]
    assert driven.status is InstanceStatus.CANCELLED
    retry(driven)
    assert not driven.run.ended
    driven.crash()
    driven.signal("go", "went")
    assert ran(driven) == []
    assert driven.outcome == "went"
    assert replays(driven)
    assert any(isinstance(event, CancelRequested) for event in driven.history())


def test_a_step_of_the_void_part_runs_again_only_if_it_is_called_with_something_else():
    async def code() -> int:
        done = await asyncio.gather(ship(), charge(), return_exceptions=True)
        failures = [each for each in done if isinstance(each, Exception)]
        await refund(len(failures))
        await charge(7)
        if failures:
            raise failures[0]
        return 3

    driven = run_of(code)
    assert ran(driven) == ["ship#0", "charge#0", "refund#0", "charge#1"]
    retry(driven)
    assert ran(driven) == ["ship#0", "refund#0"]
    assert driven.outcome == 3
    assert replays(driven)


def test_a_job_and_a_child_that_succeeded_in_the_void_part_are_not_begun_again():
    async def code() -> list[int]:
        try:
            await ship()
        finally:
            done = [await remote(1), await kid()]
        return done

    driven = run_of(code)
    driven.work()
    driven.letter("step", "remote#0", {"state": "done", "outcome": 8}, "job/f/remote#0")
    driven.letter("child", "f/kid#0", {"result": 4}, "child/f/kid#0")
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert ran(driven) == ["ship#0"]
    assert driven.outcome == [8, 4]
    assert replays(driven)


def test_what_the_end_stopped_begins_again_under_other_ids():
    async def code() -> list[int]:
        sent, child = remote(1), kid()
        await charge()
        if broken[0]:
            raise ZeroDivisionError
        return [await sent, await child]

    driven = run_of(code)
    driven.work()
    retry(driven)
    decision = driven.decisions[-1]
    assert [job.id for job in decision.jobs] == ["f/remote#0@0.1"]
    assert [start.id for start in decision.starts] == ["f/kid#0@0.1"]
    driven.crash()
    driven.letter("step", "remote#0", {"state": "done", "outcome": 8}, "job/f/remote#0@0.1")
    driven.letter("child", "f/kid#0@0.1", {"result": 4}, "child/f/kid#0@0.1")
    assert driven.outcome == [8, 4]
    assert replays(driven)


def test_mended_code_may_decide_otherwise_where_it_failed():
    """Beside the failure others had gone on: in another order, nothing is done twice."""

    async def code() -> list[int]:
        await charge()

        async def branch() -> int:
            if broken[0]:
                raise ZeroDivisionError
            return await wire()

        async def other() -> int:
            outlive.start_child(kid, on_parent_end="abandon")
            new = outlive.patched("new")
            outlive.signal("elsewhere", "hello")
            return await kid() if new else 0

        return list(await asyncio.gather(branch(), other()))

    driven = run_of(code)
    driven.work()
    assert driven.status is InstanceStatus.FAILED
    before = driven.decisions[-1]
    assert [start.id for start in before.starts][:1] == ["f/kid#0"]
    retry(driven)
    after = driven.decisions[-1]
    assert [start.id for start in after.starts] == ["f/kid#1@0.1"]
    assert [send.id for send in after.sends][:1] == [send.id for send in before.sends][:1]
    assert list(driven.steps) == ["wire#0"]
    driven.work()
    driven.crash()
    driven.letter("child", "f/kid#1@0.1", {"result": 4}, "child/f/kid#1@0.1")
    assert driven.outcome == [1, 4]
    assert replays(driven)


def test_what_was_decided_on_an_end_recorded_ahead_is_decided_anew():
    async def code() -> list[object]:
        async def branch() -> int:
            await charge()
            return await remote(1) + await kid()

        return list(await asyncio.gather(branch(), ship()))

    driven = run_of(code)
    # A host that stood still wrote both down before the code was told.
    driven.write(
        StepEnded(at=driven.now_us, step="charge#0", result=msgspec.Raw(b"1"), ahead=True),
        StepEnded(
            at=driven.now_us,
            step="ship#0",
            error=Failure("ValueError", "no"),
            ahead=True,
        ),
    )
    driven.crash()
    assert driven.status is InstanceStatus.FAILED
    assert driven.told() == ["StepEnded", "StepEnded", "StepSent", "Ended"]
    retry(driven)
    assert [job.id for job in driven.decisions[-1].jobs] == ["f/remote#0@0.1"]
    assert ran(driven) == ["ship#0"]
    driven.crash()
    driven.letter("step", "remote#0", {"state": "done", "outcome": 8}, "job/f/remote#0@0.1")
    driven.letter("child", "f/kid#0@0.1", {"result": 4}, "child/f/kid#0@0.1")
    assert driven.outcome == [12, "home"]
    assert replays(driven)


def test_a_flow_of_a_later_run_is_retried_and_keeps_what_it_carried():
    async def code() -> str:
        text = await outlive.wait_signal("go", str)
        await charge()
        if broken[0]:
            raise ZeroDivisionError
        return text

    signal = SignalReceived(at=0, name="go", id="m", payload=msgspec.Raw(b'"now"'))
    row = HistoryRow(6, Token(1), "w", 0, encode_events([signal]))
    driven = run_of(code, base=5, rows=[row])
    driven.work()
    retry(driven)
    assert driven.outcome == "now"
    assert replays(driven)


def test_a_terminated_flow_goes_on_where_it_was():
    async def code() -> int:
        return await charge() + await outlive.wait_signal("go", int)

    driven = run_of(code)
    driven.work()
    retry(driven)
    driven.signal("go", 2)
    assert driven.outcome == 3
    assert replays(driven)
