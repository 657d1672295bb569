"""The small plugin that runs coroutines: one loop per test, fixtures on that same loop."""

from __future__ import annotations

import asyncio
import contextvars

import pytest

colour: contextvars.ContextVar[str] = contextvars.ContextVar("colour", default="none")
loops: list[asyncio.AbstractEventLoop] = []


@pytest.fixture
async def loop_of_fixture():
    colour.set("blue")
    return asyncio.get_running_loop()


@pytest.fixture
def torn_down():
    """Outlives the fixture that fills it, and so sees the end of it."""
    names: list[str] = []
    yield names
    assert names == ["grouped"]


@pytest.fixture
async def grouped(torn_down):
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        sleeper = group.create_task(asyncio.Event().wait())
        yield sleeper
        sleeper.cancel()
    torn_down.append("grouped")


async def test_fixture_and_test_share_loop_and_context(loop_of_fixture):
    assert asyncio.get_running_loop() is loop_of_fixture
    assert colour.get() == "blue"
    loops.append(loop_of_fixture)


async def test_each_test_has_a_loop_of_its_own():
    assert asyncio.get_running_loop() not in loops
    assert all(loop.is_closed() for loop in loops)
    assert colour.get() == "none"


async def test_fixture_holds_a_task_group_across_its_yield(grouped):
    await asyncio.sleep(0)
    assert not grouped.done()


def test_plain_test_may_use_an_async_fixture(loop_of_fixture):
    assert not loop_of_fixture.is_running()


class TestMethods:
    @pytest.fixture
    async def owner(self):
        yield self
        self.ended = True

    async def test_fixture_is_bound_to_the_instance_of_its_test(self, owner):
        assert owner is self
