"""Async generators of flow code are ended by nobody; those around it by their own loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from outlive.flows.loop import FlowLoop

pytestmark = pytest.mark.whitebox


def quiet(context: dict[str, object]) -> None:
    raise AssertionError(context)


def flow_of(code: Any) -> FlowLoop:
    """A loop that has run this coroutine to its first wait."""
    loop = FlowLoop(0.0, quiet)
    loop.begin(code, "main", None)
    loop.run()
    return loop


async def counting(said: list[str], who: str) -> AsyncGenerator[int, None]:
    try:
        for number in range(10):
            yield number
    finally:
        said.append(who)


async def left_in_the_middle(said: list[str], kept: list[Any]) -> None:
    generator = counting(said, "flow")
    kept.append(weakref.ref(generator))
    async for _ in generator:
        break


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_one_that_a_flow_leaves_in_the_middle_is_not_ended_by_the_host():
    said: list[str] = []
    kept: list[Any] = []
    loop = flow_of(left_in_the_middle(said, kept))
    loop.close()
    gc.collect()
    await turns()
    assert kept[0]() is None
    assert said == []


async def test_one_of_the_host_that_is_left_in_the_middle_is_ended_by_its_loop():
    said: list[str] = []
    kept: list[Any] = []
    flow_of(left_in_the_middle(said, kept)).close()

    async for _ in counting(said, "host"):
        break
    gc.collect()
    await turns()
    assert said == ["host"]


async def test_one_of_the_host_that_is_freed_while_flow_code_runs_is_ended_by_its_loop():
    said: list[str] = []
    outside = [counting(said, "host")]
    flow_of(turns(0)).close()
    await anext(outside[0])

    async def frees() -> None:
        outside.clear()
        gc.collect()

    flow_of(frees()).close()
    await turns()
    assert said == ["host"]


async def test_one_that_began_before_flow_code_ran_in_this_thread_is_ended_by_its_loop():
    said: list[str] = []
    outside = counting(said, "host")
    await anext(outside)
    flow_of(turns(0)).close()
    del outside
    gc.collect()
    await turns()
    assert said == ["host"]


async def test_the_host_knows_its_own_when_it_ends():
    said: list[str] = []
    flow_of(turns(0)).close()
    outside = counting(said, "host")
    await anext(outside)
    await asyncio.get_running_loop().shutdown_asyncgens()
    assert said == ["host"]
    del outside


def test_one_that_is_dropped_with_its_flow_is_not_ended():
    said: list[str] = []

    async def waits() -> None:
        async for _ in counting(said, "flow"):
            await asyncio.sleep(1)

    loop = flow_of(waits())
    loop.close()
    gc.collect()
    assert said == []


def test_one_that_is_used_to_its_end_or_closed_cleans_up_in_the_flow():
    said: list[str] = []

    async def uses() -> None:
        async for _ in counting(said, "used"):
            pass
        generator = counting(said, "closed")
        await anext(generator)
        await generator.aclose()
        said.append("behind")

    flow_of(uses()).close()
    assert said == ["used", "closed", "behind"]


def test_one_that_is_left_in_the_middle_is_freed_at_once():
    said: list[str] = []
    alive: list[bool] = []

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            yield
        finally:
            said.append(type(asyncio.get_running_loop()).__name__)

    async def guarded() -> AsyncGenerator[int, None]:
        with noting():
            yield 1

    async def leaves() -> None:
        kept: list[Any] = []
        await left_in_the_middle([], kept)
        alive.append(kept[0]() is not None)
        async for _ in guarded():
            break
        said.append("behind")

    flow_of(leaves()).close()
    assert alive == [False]
    assert said == ["FlowLoop", "behind"]


def test_what_is_dropped_with_its_flow_cleans_up_inside_of_it():
    said: list[str] = []

    async def inner() -> int:
        try:
            await asyncio.sleep(1)
        finally:
            said.append(type(asyncio.get_running_loop()).__name__)
        return 1

    async def outer() -> AsyncGenerator[int, None]:
        yield await inner()

    async def waits() -> None:
        async for _ in outer():
            pass

    flow_of(waits()).close()
    assert said == ["FlowLoop"]


async def test_one_of_the_host_that_stands_where_one_of_a_flow_stood_is_ended_by_its_loop():
    said: list[str] = []

    async def slow_to_close() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(1)

    async def closes() -> None:
        generator = slow_to_close()
        await anext(generator)
        await generator.aclose()

    for _ in range(100):
        flow_of(closes()).close()
    outside = [counting(said, "host") for _ in range(1000)]
    for generator in outside:
        await anext(generator)
    del generator
    outside.clear()
    await turns(10)
    assert len(said) == 1000


def test_one_that_outlives_its_flow_is_not_ended():
    said: list[str] = []
    kept: list[Any] = []

    async def keeps() -> None:
        kept.append(counting(said, "flow"))
        await anext(kept[0])

    flow_of(keeps()).close()
    kept.clear()
    gc.collect()
    assert said == []


def test_a_thread_without_a_loop_has_its_generators_ended_by_python_again():
    """Histories are replayed there, by a test or by the command line."""
    said: list[str] = []
    before = sys.get_asyncgen_hooks()
    loop = flow_of(left_in_the_middle([], []))
    assert sys.get_asyncgen_hooks() == before
    with loop.being_the_running_loop():
        assert sys.get_asyncgen_hooks() != before
    assert sys.get_asyncgen_hooks() == before
    loop.close()
    generator = counting(said, "outside")
    with pytest.raises(StopIteration):
        generator.asend(None).send(None)
    del generator
    gc.collect()
    assert said == ["outside"]


def test_hooks_of_a_thread_are_those_of_others_where_no_flow_code_runs():
    heard: list[object] = []
    before = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(heard.append, heard.append)
    try:
        flow_of(left_in_the_middle([], [])).close()
        assert sys.get_asyncgen_hooks() == (heard.append, heard.append)
    finally:
        sys.set_asyncgen_hooks(*before)
    gc.collect()
    assert heard == []


def test_those_of_a_loop_that_runs_again_are_ended_by_it():
    said: list[str] = []

    async def main() -> None:
        flow_of(left_in_the_middle(said, [])).close()
        async for _ in counting(said, "host"):
            break
        gc.collect()
        await turns()

    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(main())
        loop.run_until_complete(main())
    finally:
        loop.close()
    assert said == ["host", "host"]
