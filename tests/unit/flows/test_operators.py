"""Patches of changed code, and what operators do to a history: retry and fork."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App
from outlive.flows.events import Forked, Retried
from outlive.flows.rewinding import fork_history
from outlive.model.instance import HistoryRow, InstanceStatus
from outlive.names import Token
from tests.unit.flows.driving import SECOND, Driven

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


# -- patches --------------------------------------------------------------------------------------


async def old_way() -> int:
    await add(1)
    await add(2)
    return await add(3)


async def new_way() -> int:
    await add(1)
    if outlive.patched("b"):
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
                if patch and outlive.patched("x"):
                    await other(number)
                else:
                    await add(number)

        return code

    old = run_of(make(False), steps=2)
    again = replayed(make(True), old)
    again.work()
    assert [event.step for event in again.history()[:4]] == [f"add#{n}" for n in range(4)]
    assert Driven(flow(make(True)), rows=again.rows).run.ended


def test_a_patch_is_written_before_what_it_decides_begins():
    async def code() -> int:
        if outlive.patched("x"):
            return await add(1)
        return 0

    driven = run_of(code)
    # A host may record the end of the step without running the code again: were the patch not
    # written by then, a replay would go the old way.
    assert driven.told() == ["Patched"]
    driven.work()
    assert driven.told() == ["Patched", "StepEnded", "Ended"]
    assert len(driven.rows) == 2
    assert Driven(flow(code), rows=driven.rows).run.ended


# -- operators ------------------------------------------------------------------------------------


async def failing() -> int:
    first = await add(1)
    outlive.wait_signal("unread")
    return first + await other(5)


def test_a_retry_goes_on_from_before_the_failure_and_keeps_what_was_sent():
    driven = run_of(failing, steps=1)
    driven.signal("unread", 1)
    driven.end("other#0", RuntimeError("no"))
    assert driven.status is InstanceStatus.FAILED
    driven.write(Retried(at=driven.now_us + SECOND, to=1))
    driven.crash()
    assert list(driven.steps) == ["other#0"]
    driven.work()
    assert driven.outcome == -3
    assert Driven(flow(failing), rows=driven.rows).run.ended


def test_a_retry_keeps_signals_that_were_read_in_the_void_part():
    async def code() -> str:
        text = await outlive.wait_signal("go", str)
        await other(1)
        return text

    driven = run_of(code)
    driven.signal("go", "now")
    driven.end("other#0", RuntimeError("no"))
    driven.write(Retried(at=driven.now_us + SECOND, to=0))
    driven.crash()
    driven.work()
    assert driven.outcome == "now"
    # And again: the retry itself becomes void, and the step has succeeded meanwhile.
    driven.write(Retried(at=driven.now_us + SECOND, to=0))
    driven.crash()
    assert list(driven.steps) == []
    assert driven.outcome == "now"


def test_a_retry_sends_a_failed_job_again_under_another_id():
    async def code() -> int:
        return await remote(1)

    driven = run_of(code)
    dead = {"state": "dead", "outcome": {"message": "x"}}
    driven.letter("step", "remote#0", dead, "job/f/remote#0")
    assert driven.status is InstanceStatus.FAILED
    driven.write(Retried(at=driven.now_us + SECOND, to=1))
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
    driven.write(Retried(at=driven.now_us + SECOND, to=1))
    driven.crash()
    assert driven.decisions[-1].jobs == ()
    driven.work()
    assert driven.outcome == 8


def test_a_fork_goes_on_from_any_version_with_another_input():
    driven = run_of(two, 1, steps=1)
    driven.elapse(61)
    rows = fork_history(driven.rows, Forked(at=driven.now_us, id="f", version=1))
    copied = [HistoryRow(n + 1, Token(1), "w", 0, text) for n, text in enumerate(rows)]
    fork = Driven(flow(two), (40,), id="g", rows=copied)
    assert fork.run.due_at_us is not None
    fork.elapse(120)
    assert list(fork.steps) == ["other#0"]
    fork.work()
    assert fork.outcome == -2
    assert Driven(flow(two), (40,), id="g", rows=fork.rows).run.ended
    with pytest.raises(outlive.UsageError, match="no version 7"):
        fork_history(driven.rows, Forked(at=0, id="f", version=7))


def test_a_fork_draws_the_same_chances_and_begins_open_jobs_for_itself():
    drawn = []

    async def code() -> int:
        drawn.append(outlive.uuid())
        sent = remote(1)
        await add(1)
        return await sent

    driven = run_of(code, steps=1, base=5)
    mark = Forked(at=driven.now_us, id="f", version=7, base=5)
    rows = fork_history(driven.rows, mark)
    copied = [HistoryRow(n + 1, Token(1), "w", 0, text) for n, text in enumerate(rows)]
    fork = Driven(flow(code), id="g", rows=copied)
    assert drawn[0] == drawn[1]
    (job,) = fork.decisions[-1].jobs
    assert (job.id, job.instance) == ("g/remote#0", "g")
    fork.crash()
    assert fork.decisions[-1].jobs == ()
    fork.letter("step", "remote#0", {"state": "done", "outcome": 3}, "job/g/remote#0")
    assert fork.outcome == 3
