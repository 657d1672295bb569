"""One loop makes room for another: code is in its own task, and whoever ran before in his again."""

from __future__ import annotations

import asyncio
import sys

import pytest

from outlive.flows.loop import FlowLoop
from outlive.runtime.running_loop import replace_running_loop, restore_running_loop


def quiet(context: dict[str, object]) -> None:
    raise AssertionError(context)


# From this version on a thread is in one task at a time, whichever loop it is of.
ONE_TASK = sys.version_info >= (3, 14)


async def test_code_is_in_its_own_task_and_whoever_ran_before_in_his_again():
    outer, task = asyncio.get_running_loop(), asyncio.current_task()
    seen: list[object] = []

    async def inner() -> None:
        seen.append(asyncio.current_task(outer))
        seen.append(asyncio.current_task())

    loop = FlowLoop(0.0, quiet)
    made = loop.begin(inner(), "main", None)
    loop.run()
    assert seen == [None if ONE_TASK else task, made]
    assert asyncio.get_running_loop() is outer
    assert asyncio.current_task() is task
    loop.close()


async def test_code_that_is_dropped_is_in_its_own_task():
    outer, task = asyncio.get_running_loop(), asyncio.current_task()
    seen: list[object] = []

    async def inner() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            seen.append(asyncio.current_task(outer))
            seen.append(asyncio.current_task())

    loop = FlowLoop(0.0, quiet)
    made = loop.begin(inner(), "main", None)
    loop.run()
    loop.close()
    assert seen == [None if ONE_TASK else task, made]
    assert asyncio.current_task() is task


async def test_a_loop_inside_of_a_loop_inside_of_a_task():
    task = asyncio.current_task()
    first, second = FlowLoop(0.0, quiet), FlowLoop(0.0, quiet, first=100)
    seen: list[object] = []

    async def innermost() -> None:
        seen.append(asyncio.current_task())

    async def inner() -> None:
        two = second.begin(innermost(), "two", None)
        second.run()
        seen.append(two)
        seen.append(asyncio.current_task())

    one = first.begin(inner(), "one", None)
    first.run()
    assert seen[0] is seen[1]
    assert seen[2] is one
    assert asyncio.current_task() is task


def test_nobody_need_run_before():
    loop = FlowLoop(0.0, quiet)
    aside = replace_running_loop(loop)
    assert asyncio.get_running_loop() is loop
    restore_running_loop(aside)
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
