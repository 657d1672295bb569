"""A task begins in the turn in which it is made, as itself, where nobody else is ready to run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar, copy_context
from typing import Any

import pytest
import uvloop

from outlive.runtime.first_turns import FirstTurns

mark: ContextVar[str] = ContextVar("mark", default="untouched")


def begin(turns: FirstTurns, body: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    assert turns.may_begin()
    task = turns.loop.create_task(body, context=copy_context())
    turns.give()
    return task


@pytest.fixture
async def turns() -> FirstTurns:
    return FirstTurns(asyncio.get_running_loop())


async def test_it_runs_to_its_first_wait_and_goes_on_later(turns: FirstTurns) -> None:
    seen: list[str] = []

    async def body() -> str:
        seen.append("begun")
        await asyncio.sleep(0)
        seen.append("went on")
        return "done"

    task = begin(turns, body())
    assert seen == ["begun"]
    assert await task == "done"
    assert seen == ["begun", "went on"]


async def test_it_is_the_current_task_meanwhile_and_whoever_made_it_is_again(
    turns: FirstTurns,
) -> None:
    seen: list[asyncio.Task[Any] | None] = []

    async def body() -> None:
        seen.append(asyncio.current_task())
        async with asyncio.timeout(5):  # noqa: ASYNC100 - it asks which task it is in
            mark.set("its own")

    me = asyncio.current_task()
    task = begin(turns, body())
    assert task.done()
    assert seen == [task]
    assert asyncio.current_task() is me
    assert mark.get() == "untouched"
    async with asyncio.timeout(5):
        await asyncio.sleep(0)


async def test_it_begins_for_a_callback_that_is_no_task(turns: FirstTurns) -> None:
    begun = asyncio.get_running_loop().create_future()

    async def body() -> None:
        begun.set_result(asyncio.current_task())

    made: list[asyncio.Task[Any]] = []
    turns.loop.call_soon(lambda: made.append(begin(turns, body())))
    assert await begun is made[0]


async def test_it_passes_nobody_who_was_ready_before(turns: FirstTurns) -> None:
    turns.loop.call_soon(lambda: None)
    assert not turns.may_begin()
    await asyncio.sleep(0)
    assert turns.may_begin()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_whoever_comes_to_be_ready_meanwhile_keeps_his_place(
    turns: FirstTurns, when: str
) -> None:
    order: list[str] = []

    async def body() -> str:
        order.append("task")
        return "done"

    def interrupt() -> None:
        # As another thread does, or a signal handler, between any two instructions.
        turns.loop.call_soon_threadsafe(order.append, "other")

    assert turns.may_begin()
    if when == "before":
        interrupt()
    task = turns.loop.create_task(body())
    if when == "after":
        interrupt()
    turns.give()
    assert order == []
    assert await task == "done"
    await asyncio.sleep(0)
    assert order == (["other", "task"] if when == "before" else ["task", "other"])


async def test_none_begins_while_its_caller_handles_an_error(turns: FirstTurns) -> None:
    try:
        raise LookupError("the caller's own")
    except LookupError:
        assert not turns.may_begin()
    assert turns.may_begin()


async def test_none_begins_in_the_first_turn_of_another(turns: FirstTurns) -> None:
    seen: list[bool] = []

    async def body() -> None:
        seen.append(turns.may_begin())
        await asyncio.sleep(0)
        seen.append(turns.may_begin())

    await begin(turns, body())
    assert seen == [False, True]


async def test_an_error_is_its_own(turns: FirstTurns) -> None:
    async def body() -> None:
        raise LookupError("nothing there")

    task = begin(turns, body())
    with pytest.raises(LookupError):
        await task
    assert turns.may_begin()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_raised_by_the_loop_and_not_here(
    kind: type[BaseException],
) -> None:
    seen: list[str] = []

    async def body() -> None:
        raise kind

    async def main() -> None:
        turns = FirstTurns(asyncio.get_running_loop())
        task = begin(turns, body())
        task.add_done_callback(lambda it: it.exception())
        seen.append("went on")
        await asyncio.sleep(1)
        seen.append("never")

    with pytest.raises(kind):
        asyncio.run(main())
    assert seen == ["went on"]


async def test_tasks_that_somebody_else_makes_begin_as_he_likes(turns: FirstTurns) -> None:
    turns.loop.set_task_factory(lambda loop, coro, **how: asyncio.Task(coro, loop=loop, **how))
    try:
        assert not turns.may_begin()
    finally:
        turns.loop.set_task_factory(None)


def test_a_loop_that_does_not_say_who_is_ready_begins_tasks_by_itself() -> None:
    async def main() -> bool:
        return FirstTurns(asyncio.get_running_loop()).may_begin()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert not runner.run(main())
