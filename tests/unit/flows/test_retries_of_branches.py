"""A retry where other branches had gone on beside the failure: nothing of theirs is done twice."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import outlive
from outlive import StepFailed
from outlive.flows.events import Failure, StepEnded
from outlive.model.instance import InstanceStatus
from tests.unit.flows.retried import (
    app,
    broken,
    charge,
    flaky,
    kid,
    ran,
    remote,
    replays,
    retry,
    run_of,
    ship,
    wire,
)

pytestmark = pytest.mark.whitebox


@app.flow
async def listener(word: str) -> str:
    return word


async def beside(branch) -> list[object]:
    """``ship`` fails while the branch goes on, and both are waited for."""
    done = await asyncio.gather(ship(), branch, return_exceptions=True)
    errors = [each for each in done if isinstance(each, Exception)]
    if errors:
        raise ExceptionGroup("some", errors)
    return list(done)


def flow_with(branch):
    async def code() -> list[object]:
        return await beside(branch())

    return code


def fail_first(driven) -> None:
    driven.end("ship#0", ValueError("no truck"))


# -- what succeeded after the failure -------------------------------------------------------------


def test_a_step_in_a_queue_that_succeeded_is_not_sent_again():
    async def branch() -> int:
        await charge()
        return await remote(7)

    driven = run_of(flow_with(branch))
    fail_first(driven)
    driven.end("charge#0", 1)
    driven.letter("step", "remote#0", {"state": "done", "outcome": 8}, "job/f/remote#0")
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert driven.decisions[-1].jobs == ()
    assert ran(driven) == ["ship#0"]
    assert driven.outcome == ["home", 8]
    assert "StepSent" not in driven.told()[-3:]
    assert replays(driven)


def test_a_child_that_succeeded_is_not_started_again():
    async def branch() -> int:
        await charge()
        return await kid()

    driven = run_of(flow_with(branch))
    fail_first(driven)
    driven.end("charge#0", 1)
    driven.letter("child", "f/kid#0", {"result": 4}, "child/f/kid#0")
    retry(driven)
    assert driven.decisions[-1].starts == ()
    assert ran(driven) == ["ship#0"]
    assert driven.outcome == ["home", 4]
    assert replays(driven)


def test_a_step_with_once_that_succeeded_is_known_to_have_after_two_retries():
    async def branch() -> int:
        await charge()
        return await wire()

    async def code() -> int:
        try:
            await flaky()
        except StepFailed as error:
            await beside(branch())
            raise ValueError("no") from error
        return await branch()

    driven = run_of(code)
    driven.end("flaky#0", ValueError("no"))
    fail_first(driven)
    driven.end("charge#0", 1)
    driven.end("wire#0", 1)
    retry(driven)
    driven.end("ship#0", "home")
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert ran(driven) == ["flaky#0"]
    assert driven.outcome == 1
    assert replays(driven)


def test_a_failure_that_a_branch_got_over_stays_with_what_was_done_about_it():
    async def branch() -> int:
        try:
            return await flaky()
        except StepFailed:
            return await charge()

    driven = run_of(flow_with(branch))
    fail_first(driven)
    driven.end("flaky#0", ValueError("no"))
    driven.end("charge#0", 1)
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert ran(driven) == ["ship#0"]
    assert driven.outcome == ["home", 1]
    assert replays(driven)


def test_a_failure_that_was_hidden_by_another_is_what_the_next_retry_begins_with():
    async def code() -> list[object]:
        done = await asyncio.gather(ship(), flaky(), return_exceptions=True)
        for each in done:
            if isinstance(each, Exception):
                raise each
        return list(done)

    driven = run_of(code)
    fail_first(driven)
    driven.end("flaky#0", ValueError("no"))
    retry(driven)
    assert ran(driven) == ["ship#0"]
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert ran(driven) == ["flaky#0"]
    assert driven.outcome == ["home", 1]
    assert replays(driven)


def test_an_end_is_not_given_to_a_call_with_another_input():
    amount = [1]

    async def code() -> list[object]:
        return await beside(charge(amount[0]))

    driven = run_of(code)
    fail_first(driven)
    driven.end("charge#0", 1)
    amount[0] = 2
    retry(driven)
    assert sorted(ran(driven)) == ["charge#0", "ship#0"]
    assert driven.outcome == ["home", 2]
    assert replays(driven)


# -- what it told and started ---------------------------------------------------------------------


def test_a_signal_that_was_sent_is_sent_under_the_same_id():
    async def branch() -> None:
        await charge()
        outlive.signal("elsewhere", "hello", 1)
        outlive.signal("elsewhere", "hello", 1)
        outlive.signal("elsewhere", "hello", 2)

    driven = run_of(flow_with(branch))
    fail_first(driven)
    sent = [send.id for send in driven.end("charge#0", 1).sends]
    assert len(set(sent)) == 3
    retry(driven)
    assert [send.id for send in driven.decisions[-1].sends] == sent
    assert ran(driven) == ["ship#0"]
    assert replays(driven)


def test_a_child_that_lives_on_is_not_started_again():
    async def branch() -> None:
        await charge()
        outlive.start_child(kid, on_parent_end="abandon")

    driven = run_of(flow_with(branch))
    fail_first(driven)
    assert [start.id for start in driven.end("charge#0", 1).starts] == ["f/kid#0"]
    retry(driven)
    assert driven.decisions[-1].starts == ()
    assert ran(driven) == ["ship#0"]
    assert driven.status is InstanceStatus.COMPLETED
    assert replays(driven)


def test_an_abandoned_child_is_awaited_under_the_id_that_it_has():
    async def branch() -> int:
        await charge()
        return await outlive.start_child(kid, on_parent_end="abandon")

    async def code() -> list[object]:
        task = asyncio.ensure_future(branch())
        return [await ship(), await task]

    driven = run_of(code)
    driven.end("charge#0", 1)
    fail_first(driven)
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert [call.id for call in driven.run.children.abandoned] == ["f/kid#0"]
    assert ran(driven) == ["ship#0"]
    driven.crash()
    driven.letter("child", "f/kid#0", {"result": 4}, "child/f/kid#0")
    assert driven.outcome == ["home", 4]
    assert replays(driven)


def test_a_child_with_a_chosen_id_that_ended_with_its_flow_begins_under_another():
    async def branch() -> int:
        await charge()
        return await outlive.start_child(kid, id="chosen")

    async def code() -> list[object]:
        task = asyncio.ensure_future(branch())
        try:
            return [await ship(), await task]
        except StepFailed:
            await charge(2)
            raise

    driven = run_of(code)
    fail_first(driven)
    assert [start.id for start in driven.end("charge#0", 1).starts] == ["chosen"]
    driven.end("charge#1", 2)
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert [start.id for start in driven.decisions[-1].starts] == ["f/kid#0@0.1"]
    driven.work()
    driven.letter("child", "f/kid#0@0.1", {"result": 4}, "child/f/kid#0@0.1")
    assert driven.outcome == ["home", 4]
    assert replays(driven)


def test_mended_code_that_tells_and_starts_something_else_is_heard():
    async def code() -> object:
        await charge()
        word = "wrong" if broken[0] else "right"
        outlive.signal("elsewhere", word)
        started = outlive.start_child(listener, word, on_parent_end="abandon").id
        if broken[0]:
            raise ZeroDivisionError
        return started

    driven = run_of(code)
    driven.work()
    before = driven.decisions[-1]
    retry(driven)
    after = driven.decisions[-1]
    assert after.sends[0].id != before.sends[0].id
    assert [start.id for start in after.starts] == ["f/listener#0@0.1"]
    assert after.starts[0].request != before.starts[0].request
    # The code was told of the child that is there, and not of the one before it.
    assert driven.outcome == "f/listener#0@0.1"
    assert replays(driven)


# -- retries of retries ---------------------------------------------------------------------------


def test_a_retry_that_makes_another_void_begins_under_ids_of_its_own():
    async def code() -> int:
        try:
            await ship()
        except StepFailed as error:
            await charge()
            await remote(1)
            await charge(2)
            raise ValueError("no") from error
        return await remote(2)

    driven = run_of(code)
    fail_first(driven)
    driven.end("charge#0", ValueError("no"))
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    driven.end("charge#0", 1)
    assert [job.id for job in driven.decisions[-1].jobs] == ["f/remote#0@0.1"]
    driven.letter("step", "remote#0", {"state": "done", "outcome": 1}, "job/f/remote#0@0.1")
    driven.end("charge#1", 2)
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    driven.end("ship#0", "home")
    assert [job.id for job in driven.decisions[-1].jobs] == ["f/remote#0@0.2"]
    driven.letter("step", "remote#0", {"state": "done", "outcome": 2}, "job/f/remote#0@0.2")
    assert driven.outcome == 2
    assert replays(driven)


def test_one_child_is_given_to_one_call_however_alike_they_are():
    """Its start was decided on an end recorded ahead, so that it stands only where all is void."""

    async def branch(amount: int) -> int:
        await charge(amount)
        return await outlive.start_child(kid, on_parent_end="abandon")

    async def code() -> list[object]:
        done = await asyncio.gather(branch(1), branch(2), ship(), return_exceptions=True)
        if isinstance(done[2], Exception):
            raise done[2]
        return list(done)

    driven = run_of(code)
    given = msgspec.Raw(b'{"amount":1}')
    driven.write(
        StepEnded(
            at=driven.now_us, step="charge#0", input=given, result=msgspec.Raw(b"1"), ahead=True
        ),
        StepEnded(at=driven.now_us, step="ship#0", error=Failure("ValueError", "no"), ahead=True),
    )
    driven.crash()
    driven.letter("child", "f/kid#0", {"result": 4}, "child/f/kid#0")
    driven.end("charge#1", 2)
    driven.letter("child", "f/kid#1", {"error": {"type": "E", "message": "m"}}, "child/f/kid#1")
    assert driven.status is InstanceStatus.FAILED
    for _ in range(2):
        retry(driven)
        fail_first(driven)
        assert driven.status is InstanceStatus.FAILED
    starts = [start.id for each in driven.decisions for start in each.starts]
    assert starts == ["f/kid#0", "f/kid#1"]
    retry(driven)
    assert ran(driven) == ["ship#0"]
    assert replays(driven)


def test_an_abandoned_child_that_a_void_retry_began_again_goes_on():
    async def code() -> int:
        child = outlive.start_child(kid, on_parent_end="abandon")
        error = None
        try:
            await ship()
        except StepFailed as failed:
            error = failed
        enough = outlive.wait_signal("enough")
        done, _ = await asyncio.wait([child, enough], return_when=asyncio.FIRST_COMPLETED)
        if child in done:
            child.result()
        if error:
            raise error
        return await child

    driven = run_of(code)
    fail_first(driven)
    driven.letter("child", "f/kid#0", {"error": {"type": "E", "message": "m"}}, "child/f/kid#0")
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    driven.signal("enough")
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    starts = [start.id for each in driven.decisions for start in each.starts]
    assert starts == ["f/kid#0", "f/kid#0@0.1"]
    # It may have ended with the flow, and is looked for.
    assert driven.run.children.heed() == {"f/kid#0@0.1": "kid#0"}
    driven.end("ship#0", "home")
    driven.letter("child", "f/kid#0@0.1", {"result": 4}, "child/f/kid#0@0.1")
    assert driven.outcome == 4
    assert replays(driven)
