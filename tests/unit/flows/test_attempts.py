"""Attempts of steps: failed, cancelled, in a queue, and those that are never repeated."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from outlive import (
    App,
    Retry,
    StepFailed,
    StepOutcomeUnknown,
)
from outlive.flows.events import StepIntended, StepRetrying, StepSent
from outlive.flows.failures import failure_of
from tests.unit.flows.driving import SECOND, Driven

pytestmark = pytest.mark.whitebox

app = App("steps")


@app.step
def add(first: int, second: int = 10, *, scale: int = 1) -> int:
    return (first + second) * scale


@app.step(queue="gpu", retry=Retry(max_attempts=4))
async def render(frame: int) -> str:
    return f"frame {frame}"


@app.step(once=True)
async def wire(amount: int) -> str:
    return f"sent {amount}"


def test_a_failed_attempt_waits_for_the_next():
    @App("a").flow
    async def flow() -> int:
        return await add(1)

    driven = Driven(flow)
    error = failure_of(OSError("gone"))
    due = driven.now_us + 3 * SECOND
    driven.steps.clear()
    driven.feed(StepRetrying(at=driven.now_us, step="add#0", attempt=1, error=error, due=due))
    assert driven.run.waiting
    assert driven.run.due_at_us == due
    driven.crash()
    assert driven.steps == {}
    assert driven.run.due_at_us == due
    assert driven.elapse(2.9) == []
    driven.elapse(0.2)
    assert driven.steps["add#0"].attempt == 2
    assert driven.run.due_at_us is None
    assert not driven.run.waiting
    driven.end("add#0", 11)
    assert driven.outcome == 11


def test_a_cancelled_step_is_stopped_at_once_and_its_late_end_dropped():
    @App("a").flow
    async def flow() -> int:
        try:
            async with asyncio.timeout(5):
                await add(1)
        except TimeoutError:
            return await add(2)
        return 0

    driven = Driven(flow)
    (decision,) = driven.elapse(5)
    assert decision.stopped == ("add#0",)
    assert list(driven.steps) == ["add#1"]
    before = driven.told()
    assert driven.end("add#0", 99).events == ()
    assert driven.told() == before
    driven.crash()
    assert list(driven.steps) == ["add#1"]
    driven.end("add#1", 12)
    assert driven.outcome == 12


def test_a_step_called_and_cancelled_at_once_is_never_begun():
    @App("a").flow
    async def flow() -> int:
        add(1).cancel()
        wire(1).cancel()
        return await add(2)

    driven = Driven(flow)
    assert list(driven.steps) == ["add#1"]
    assert [type(event) for event in driven.history()] == [StepIntended]
    driven.crash()
    assert list(driven.steps) == ["add#1"]
    assert driven.work().outcome == 12


def test_a_step_in_a_queue_is_a_job_and_returns_by_mail():
    @App("a").flow
    async def flow() -> list[str]:
        return list(await asyncio.gather(render(1), render(2)))

    driven = Driven(flow, id="film")
    decision = driven.decisions[-1]
    assert decision.durable
    assert driven.run.waiting
    first, second = decision.jobs
    assert (first.id, first.queue, first.payload) == ("film/render#0", "gpu", '{"frame":1}')
    assert (first.instance, first.step, first.max_attempts) == ("film", "render#0", 4)
    assert msgspec.json.decode(first.headers)["flow"] == "film"
    driven.letter("step", "render#1", {"state": "done", "outcome": "b"}, f"job/{second.id}")
    driven.crash()
    assert driven.decisions[-1].jobs == ()
    driven.letter("step", "render#0", {"state": "done", "outcome": "a"}, f"job/{first.id}")
    assert driven.outcome == ["a", "b"]
    assert [type(event) for event in driven.history()][:2] == [StepSent, StepSent]


def test_a_job_that_is_dead_fails_its_step():
    @App("a").flow
    async def flow() -> list[str]:
        try:
            return [await render(1)]
        except StepFailed as error:
            return [error.type, error.message]

    driven = Driven(flow)
    dead = {"state": "dead", "outcome": {"type": "shop.Broken", "message": "lens"}}
    driven.letter("step", "render#0", dead, "job/f/render#0")
    assert driven.outcome == ["shop.Broken", "lens"]


def test_a_cancelled_step_in_a_queue_lets_its_job_be_cancelled():
    @App("a").flow
    async def flow() -> str:
        try:
            async with asyncio.timeout(1):
                return await render(1)
        except TimeoutError:
            return "late"

    driven = Driven(flow)
    (decision,) = driven.elapse(1)
    assert decision.stopped_jobs == ("f/render#0",)
    assert driven.outcome == "late"
    gone = driven.letter("step", "render#0", {"state": "done", "outcome": "x"}, "job/f/render#0")
    assert gone.events == ()


@App("a").flow
async def wiring() -> str:
    try:
        return await wire(5)
    except StepOutcomeUnknown as error:
        return f"unknown {error.step}"


def test_once_is_written_before_it_runs_and_never_run_again():
    driven = Driven(wiring)
    assert driven.told() == ["StepIntended"]
    assert driven.decisions[-1].durable
    assert list(driven.steps) == ["wire#0"]
    looking = Driven(wiring, rows=list(driven.rows))
    assert looking.steps == {}
    driven.crash()
    assert driven.steps == {}
    assert driven.outcome == "unknown wire#0"
    assert driven.told() == ["StepIntended", "StepEnded", "Ended"]
    assert Driven(wiring, rows=driven.rows).run.ended


def test_once_that_ended_is_known():
    @App("a").flow
    async def flow() -> str:
        return await wire(5)

    driven = Driven(flow).work()
    assert driven.outcome == "sent 5"
    again = Driven(flow, rows=driven.rows)
    assert again.run.ended
