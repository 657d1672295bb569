"""Runs ``async def`` tests and fixtures on asyncio.

Owns one event loop per test: made when first needed, shared by the test and its fixtures, and
closed after the last of them is torn down, which cancels whatever the test left running. All of it
runs in one context, so that a context variable set by a fixture is seen by the test.

An async fixture has function scope, because no loop outlives a test. One that yields is a single
task from its set-up to its tear-down, so that it may hold a task group or a timeout open across the
``yield``.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any

import pytest


class TestLoop:
    """The loop of one test."""

    __test__ = False

    def __init__(self) -> None:
        self._runner = asyncio.Runner(debug=False)
        self._context = contextvars.copy_context()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work, context=self._context)

    def close(self) -> None:
        self._runner.close()

    def enter(self, generator: AsyncGenerator[Any, Any]) -> tuple[Any, Callable[[], None]]:
        """Advance ``generator`` to its yield; give the value and what finishes it."""
        finish = asyncio.Event()
        task, value = self.run(self._begin(generator, finish))

        async def end() -> None:
            finish.set()
            await task

        return value, lambda: self.run(end())

    async def _begin(
        self, generator: AsyncGenerator[Any, Any], finish: asyncio.Event
    ) -> tuple[asyncio.Task[None], Any]:
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def drive() -> None:
            async for value in generator:
                if ready.done():
                    raise RuntimeError("an async fixture yields exactly once")
                ready.set_result(value)
                await finish.wait()

        task = asyncio.create_task(drive(), context=self._context)
        await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        if not ready.done():
            await task
            raise RuntimeError("an async fixture ended without a yield")
        return task, ready.result()


_LOOP = pytest.StashKey[TestLoop]()


def _loop_of(node: pytest.Item) -> TestLoop:
    if _LOOP not in node.stash:
        node.stash[_LOOP] = TestLoop()
    return node.stash[_LOOP]


def _as_sync(function: Callable[..., Any], request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Wrap the function of an async fixture so that pytest can call it."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        loop = _loop_of(request.node)
        if inspect.iscoroutinefunction(function):
            return loop.run(function(*args, **kwargs))
        value, finish = loop.enter(function(*args, **kwargs))
        request.addfinalizer(finish)
        return value

    return call


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    original = fixturedef.func
    plain = getattr(original, "__func__", original)
    if not (inspect.iscoroutinefunction(plain) or inspect.isasyncgenfunction(plain)):
        return (yield)
    if request.scope != "function":
        pytest.fail(f"async fixture {fixturedef.argname!r} must have function scope", pytrace=False)
    wrapped = _as_sync(plain, request)
    owner = getattr(original, "__self__", None)
    # A fixture in a class arrives bound; pytest binds it again to the instance of this test.
    fixturedef.func = wrapped if owner is None else types.MethodType(wrapped, owner)
    try:
        return (yield)
    finally:
        fixturedef.func = original


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    wanted = inspect.signature(function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in wanted if name in pyfuncitem.funcargs}
    _loop_of(pyfuncitem).run(function(**arguments))
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        return (yield)
    finally:
        loop = item.stash.get(_LOOP, None)
        if loop is not None:
            del item.stash[_LOOP]
            loop.close()
