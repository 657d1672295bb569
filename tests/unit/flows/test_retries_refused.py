"""What a retry does not do by itself: what was undone, and what may have run once."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import RetryRefused, StepOutcomeUnknown
from outlive.flows.events import (
    StepIntended,
)
from outlive.model.instance import InstanceStatus
from tests.unit.flows.retried import (
    broken,
    charge,
    ran,
    refund,
    replays,
    retry,
    run_of,
    ship,
    wire,
)

pytestmark = pytest.mark.whitebox

# -- sagas ----------------------------------------------------------------------------------------


async def shipped_in_a_saga() -> None:
    async with outlive.saga() as saga:
        await charge()
        saga.add(refund)
        await ship()


async def own_error_in_a_saga() -> None:
    async with outlive.saga() as saga:
        await charge()
        saga.add(refund)
        raise ZeroDivisionError


async def saga_beside_the_failure() -> None:
    async def branch() -> None:
        async with outlive.saga() as saga:
            await charge()
            saga.add(refund)
            await asyncio.sleep(60)

    async def other() -> None:
        await charge(2)
        await ship()

    await asyncio.gather(branch(), other())


async def undone_without_a_step() -> None:
    async def undo() -> None:
        outlive.set_attributes({"undone": True})

    async with outlive.saga() as saga:
        saga.add(undo)
        await ship()


@pytest.mark.parametrize(
    "code",
    [
        shipped_in_a_saga,
        saga_beside_the_failure,
        own_error_in_a_saga,
        undone_without_a_step,
    ],
)
def test_what_was_undone_is_not_taken_for_done(code):
    driven = run_of(code)
    driven.work()
    assert driven.status is InstanceStatus.FAILED
    with pytest.raises(RetryRefused, match="fork it from before") as refused:
        retry(driven)
    assert refused.value.reason == "undone"
    if code is not undone_without_a_step:
        assert "undo steps ran after its failure (refund#0), and a retry would treat" in str(
            refused.value
        )


def test_a_cancelled_saga_is_not_taken_for_done():
    async def code() -> None:
        async with outlive.saga() as saga:
            await charge()
            saga.add(refund)
            await outlive.wait_signal("go")

    driven = run_of(code)
    driven.work()
    driven.cancel()
    driven.work()
    assert driven.status is InstanceStatus.CANCELLED
    with pytest.raises(RetryRefused, match="undone steps"):
        retry(driven)


def test_a_saga_that_the_code_got_over_is_no_hindrance():
    async def code() -> str:
        try:
            async with outlive.saga() as saga:
                await charge()
                saga.add(refund)
                raise ZeroDivisionError
        except ZeroDivisionError:
            return await ship()

    driven = run_of(code)
    assert ran(driven) == ["charge#0", "refund#0", "ship#0"]
    retry(driven)
    assert ran(driven) == ["ship#0"]
    assert driven.outcome == "home"


# -- once -----------------------------------------------------------------------------------------


async def wired() -> int:
    return await wire() + await charge()


def test_a_step_with_once_of_unknown_outcome_runs_again_only_if_one_says_so():
    driven = run_of(wired)
    driven.crash()
    assert driven.outcome["type"].endswith("StepOutcomeUnknown")
    with pytest.raises(RetryRefused, match="rerun_unknown=True") as refused:
        retry(driven)
    assert refused.value.reason == "unknown"
    retry(driven, rerun_unknown=True)
    assert ran(driven) == ["wire#0", "charge#0"]
    assert driven.outcome == 2
    assert replays(driven)


def test_a_step_with_once_that_is_run_again_is_unknown_again_after_another_crash():
    driven = run_of(wired)
    driven.crash()
    retry(driven, rerun_unknown=True)
    driven.crash()
    assert driven.status is InstanceStatus.FAILED
    with pytest.raises(RetryRefused):
        retry(driven)


def test_a_step_with_once_that_failed_is_retried():
    driven = run_of(wired)
    driven.end("wire#0", ValueError("declined"))
    retry(driven)
    assert ran(driven) == ["wire#0", "charge#0"]
    assert replays(driven)


def test_a_step_with_once_that_the_end_stopped_stays_unknown():
    async def code() -> str:
        try:
            await asyncio.gather(wire(), ship())
        except StepOutcomeUnknown:
            return "unknown"
        return "done"

    for rerun, ends in ((False, "unknown"), (True, "done")):
        broken[0] = True
        driven = run_of(code)
        driven.end("ship#0", ValueError("no"))
        retry(driven, rerun_unknown=rerun)
        driven.work()
        assert driven.outcome == ends
        assert replays(driven)


def test_a_step_with_once_that_was_begun_in_the_void_part_is_not_begun_twice():
    async def code() -> str:
        try:
            await ship()
        finally:
            try:
                await wire()
            except StepOutcomeUnknown:
                await charge()
        return await ship()

    driven = run_of(code)
    driven.end("ship#0", ValueError("no"))
    driven.crash()
    assert ran(driven) == ["charge#0"]
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert ran(driven) == ["ship#0", "ship#1"]
    assert driven.outcome == "home"
    assert sum(isinstance(event, StepIntended) for event in driven.history()) == 1
    assert replays(driven)


def test_an_unknown_outcome_that_a_retry_kept_is_run_again_if_one_says_so():
    async def code() -> int:
        try:
            await ship()
        finally:
            if broken[0]:
                try:
                    await wire()
                except StepOutcomeUnknown:
                    await charge()
        return await wire()

    driven = run_of(code)
    driven.end("ship#0", ValueError("no"))
    driven.crash()
    driven.work()
    retry(driven)
    assert ran(driven) == ["ship#0"]
    assert driven.outcome["type"].endswith("StepOutcomeUnknown")
    with pytest.raises(RetryRefused):
        retry(driven)
    retry(driven, rerun_unknown=True)
    assert ran(driven) == ["wire#0"]
    assert driven.outcome == 1
    assert replays(driven)
