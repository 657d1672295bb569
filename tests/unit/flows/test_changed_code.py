"""Code that changed while flows run it: what may go on at any moment, and what may not."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import App, NonDeterminism, Retry
from outlive.flows.events import (
    NULL,
    Failure,
    Forked,
    Patched,
    StepEnded,
    StepRetrying,
)
from outlive.flows.rewinding import fork_history
from outlive.model.instance import HistoryRow, InstanceStatus
from outlive.names import Token
from tests.unit.flows.driving import SECOND, Driven
from tests.unit.flows.retried import broken, retry

pytestmark = pytest.mark.whitebox


def steps_of(**options: dict[str, object]):
    """Steps that say their names, with options for some."""
    app = App("steps")

    def made(name: str):
        def say() -> str:
            if name == "bad" and broken[0]:
                raise ValueError("broken")
            return name

        return app.step(name=name, **options.get(name, {}))(say)

    return {name: made(name) for name in ("a", "b", "c", "d", "bad")}


STEPS = steps_of()
a, b, c, d, bad = STEPS.values()


def flow(function):
    return App("a").flow(name="f")(function)


def deployed(driven: Driven, function) -> Driven:
    """The host has died, and the next one has other code."""
    driven.flow = flow(function)
    driven.crash()
    return driven


# -- steps that are left out ----------------------------------------------------------------------


async def audited() -> str:
    await a()
    await b()
    await asyncio.sleep(60)
    await c()
    return await d()


async def unaudited() -> str:
    await a()
    await asyncio.sleep(60)
    await c()
    return await d()


@pytest.mark.parametrize("crashes_before", ["the timer", "c#0", "d#0", "its end"])
def test_a_flow_that_went_on_without_a_step_goes_on_after_every_crash(crashes_before):
    driven = Driven(flow(audited))
    driven.work()
    deployed(driven, unaudited)
    if crashes_before == "the timer":
        driven.crash()
    driven.elapse(60)
    assert list(driven.steps) == ["c#0"]
    if crashes_before == "c#0":
        driven.crash()
    driven.work(1)
    if crashes_before == "d#0":
        driven.crash()
    assert list(driven.steps) == ["d#0"]
    driven.work()
    assert driven.outcome == "d"
    driven.crash()
    assert driven.run.ended


def test_a_new_step_in_the_place_of_one_that_ran_is_a_difference_wherever_the_history_ends():
    async def renamed() -> str:
        await a()
        await d()
        return await c()

    async def before() -> str:
        await a()
        await b()
        return await c()

    driven = Driven(flow(before))
    driven.work(2)
    with pytest.raises(NonDeterminism, match="b#0, which has run"):
        deployed(driven, renamed)


@pytest.mark.parametrize("behind", ["timer", "child", "signal", "end"])
def test_a_renamed_step_is_named_whatever_came_behind_it(behind):
    kid = App("kids").flow(name="kid")

    @kid
    async def child() -> str:
        return ""

    async def go_on() -> None:
        match behind:
            case "timer":
                await asyncio.sleep(60)
            case "child":
                await child()
            case "signal":
                await outlive.wait_signal("go")
                await c()
            case _:
                pass

    async def before() -> None:
        await b()
        await go_on()

    async def renamed() -> None:
        await d()
        await go_on()

    driven = Driven(flow(before))
    driven.end("b#0", "b")
    if behind == "signal":
        driven.signal("go", 1)
        driven.end("c#0", "c")
    with pytest.raises(NonDeterminism, match=r"b#0, which has run, found step d#0.*with name="):
        deployed(driven, renamed)


def test_a_step_that_was_recorded_before_its_code_heard_of_it_is_not_run_by_another_name():
    async def before() -> str:
        return await b()

    async def renamed() -> str:
        return await d()

    driven = Driven(flow(before))
    driven.write(StepEnded(at=driven.now_us, step="b#0", result=NULL, ahead=True))
    with pytest.raises(NonDeterminism, match="b#0, which has run"):
        deployed(driven, renamed)


@pytest.mark.parametrize("where", ["here", "queue", "once"])
def test_a_flow_that_is_retried_by_code_without_a_step_begins_what_failed_again(where):
    """It has the name that it had: nothing new stands in the place of what was left out."""
    options = {"here": {}, "queue": {"queue": "q"}, "once": {"once": True}}
    tried = steps_of(bad=options[where])["bad"]

    async def before() -> str:
        await a()
        await b()
        return await tried()

    async def mended() -> str:
        await a()
        return await tried()

    broken[0] = True
    driven = Driven(flow(before))
    driven.work(2)
    driven.end("bad#0", ValueError("broken"))
    assert driven.status is InstanceStatus.FAILED
    driven.flow = flow(mended)
    retry(driven)
    begun = [*driven.steps, *(job.id for job in driven.decisions[-1].jobs)]
    assert begun == (["f/bad#0@0.1"] if where == "queue" else ["bad#0"])
    driven.end("bad#0", "fine")
    assert driven.outcome == "fine"


def test_a_step_that_takes_the_place_of_another_is_found_though_a_retry_knows_its_name():
    """With another input it is another call, and would do again what has been done."""
    app = App("fees")

    @app.step
    def fee(amount: int) -> int:
        return amount

    @app.step
    def charge(amount: int) -> int:
        return amount

    async def before() -> None:
        await fee(1)
        await charge(100)

    async def folded() -> None:
        await charge(1)
        await charge(100)

    driven = Driven(flow(before))
    driven.work(1)
    driven.end("charge#0", ValueError("no"))
    driven.flow = flow(folded)
    with pytest.raises(NonDeterminism, match="fee#0, which has run"):
        retry(driven)


def test_a_renamed_step_is_found_in_a_flow_that_was_retried_as_well():
    async def before() -> str:
        await a()
        return await bad()

    async def renamed() -> str:
        await d()
        return await bad()

    broken[0] = True
    driven = Driven(flow(before))
    driven.work()
    assert driven.status is InstanceStatus.FAILED
    retry(driven)
    assert list(driven.steps) == ["bad#0"]
    with pytest.raises(NonDeterminism, match="a#0, which has run"):
        deployed(driven, renamed)


# -- steps that are moved -------------------------------------------------------------------------


def both(steps):
    async def code() -> list[str]:
        return await asyncio.gather(steps["a"](), steps["b"]())

    return code


@pytest.mark.parametrize("to", [{"queue": "gpu"}, {"once": True}])
def test_a_step_that_runs_may_be_moved_though_others_have_ended_since(to):
    driven = Driven(flow(both(STEPS)))
    driven.end("b#0", "b")
    deployed(driven, both(steps_of(a=to)))
    begun = driven.decisions[-1]
    assert [job.step for job in begun.jobs] == (["a#0"] if "queue" in to else [])
    assert list(driven.steps) == (["a#0"] if "once" in to else [])
    # What it has decided now is in the history, and is not decided again.
    driven.crash()
    assert driven.decisions[-1].jobs == ()
    if "once" in to:
        assert driven.status is InstanceStatus.FAILED
        assert "a#0" in driven.outcome["message"]
    else:
        driven.end("a#0", "a")
        assert driven.outcome == ["a", "b"]
        driven.crash()
        assert driven.run.ended


@pytest.mark.parametrize("to", [{"queue": "gpu"}, {"once": True}])
def test_a_step_that_was_moved_between_two_attempts_begins_once(to):
    tried = steps_of(a={"retry": Retry(max_attempts=3)})
    driven = Driven(flow(both(tried)))
    again = driven.now_us + 5 * SECOND
    error = Failure("ValueError", "no")
    driven.feed(StepRetrying(at=driven.now_us + 1, step="a#0", attempt=1, error=error, due=again))
    deployed(driven, both(steps_of(a=to)))
    begun = [job.step for job in driven.decisions[-1].jobs] + list(driven.steps)
    assert sorted(begun) == ["a#0", "b#0"]
    # Nothing of it comes due here any more.
    assert driven.elapse(10) == []


# -- code that fails before it comes so far -------------------------------------------------------


def test_what_the_code_fails_by_is_told_with_its_traceback_and_without_wrong_advice():
    async def waits() -> str:
        return await a() + await outlive.wait_signal("go", str)

    async def fails() -> str:
        settings: dict[str, str] = {}
        return settings["region\nof it"]

    driven = Driven(flow(waits))
    driven.work()
    with pytest.raises(NonDeterminism) as caught:
        deployed(driven, fails)
    error = caught.value
    assert (error.expected, error.failed) == ("the end of step a#0", True)
    assert error.found == "the failure of the flow with KeyError: 'region\\nof it'"
    assert str(error).endswith(
        "fix the cause of the failure, or branch changed code with outlive.patched()"
    )
    (note,) = error.__notes__
    assert note.startswith("The flow failed with KeyError:\n")
    assert 'settings["region' in note
    # With the code that fits it goes on.
    assert deployed(driven, waits).run.inbox.waiting


@pytest.mark.parametrize("begins_with_a_step", [True, False])
def test_arguments_that_do_not_fit_any_more_are_named(begins_with_a_step: bool):
    async def waits(amount: int) -> str:
        if not begins_with_a_step:
            # The history begins with what was decided, and with nothing that happened.
            await asyncio.sleep(60)
        return await a() + await outlive.wait_signal("go", str)

    async def renamed(number: int) -> str:
        return await waits(number)

    driven = Driven(flow(waits), (1,))
    driven.work()
    with pytest.raises(
        NonDeterminism, match="InvalidPayload: flow f: the argument number is missing;"
    ):
        deployed(driven, renamed)


def test_code_that_returns_too_soon_is_said_to_have_ended():
    async def waits() -> str:
        return await a() + await outlive.wait_signal("go", str)

    async def returns() -> str:
        return "early"

    driven = Driven(flow(waits))
    driven.work()
    with pytest.raises(NonDeterminism, match="found the end of the flow; branch") as caught:
        deployed(driven, returns)
    assert not caught.value.failed


# -- patches --------------------------------------------------------------------------------------


def test_a_copy_of_nothing_takes_the_new_way():
    async def code() -> str:
        outlive.set_status("began")
        return await (d() if outlive.patched("new") else c())

    driven = Driven(flow(code))
    driven.work()
    assert driven.outcome == "d"
    texts = fork_history(driven.rows, Forked(at=driven.now_us, id="f", version=0, edited=False))
    rows = [HistoryRow(n + 1, Token(1), "w", 0, text) for n, text in enumerate(texts)]
    fork = Driven(flow(code), id="g", rows=rows)
    assert list(fork.steps) == ["d#0"]
    assert fork.custom == driven.custom
    fork.crash()
    assert list(fork.steps) == ["d#0"]
    fork.work()
    assert fork.outcome == "d"
    assert [event.id for event in fork.history() if isinstance(event, Patched)] == ["new"]
    fork.crash()
    assert fork.run.ended
