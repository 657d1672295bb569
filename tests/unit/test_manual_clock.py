"""The manual clock stands still, moves exactly, and wakes who is due."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest

from outlive.clock import Clock
from outlive.testing import ManualClock


def test_time_stands_still_until_it_is_moved():
    clock: Clock = ManualClock()
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())
    assert clock.now().tzinfo is UTC


def test_advance_moves_both_clocks():
    clock = ManualClock()
    wall, elapsed = clock.now(), clock.monotonic()
    clock.advance(1.5)
    assert clock.now() - wall == timedelta(seconds=1.5)
    assert clock.monotonic() - elapsed == 1.5


def test_small_steps_add_up_exactly():
    clock = ManualClock()
    start = clock.monotonic()
    for _ in range(1000):
        clock.advance(0.001)
    assert clock.monotonic() == start + 1


def test_a_jump_of_the_wall_clock_leaves_elapsed_time_alone():
    clock = ManualClock(datetime(2031, 5, 1, tzinfo=UTC))
    elapsed = clock.monotonic()
    clock.jump_wall(-86_400)
    assert clock.now() == datetime(2031, 4, 30, tzinfo=UTC)
    assert clock.monotonic() == elapsed
    clock.jump_wall(86_400)
    assert clock.now() == datetime(2031, 5, 1, tzinfo=UTC)


def test_elapsed_time_never_goes_back():
    with pytest.raises(ValueError, match="forward"):
        ManualClock().advance(-1)


def test_sleepers_wake_when_their_time_has_come_and_not_before():
    async def scene() -> None:
        clock = ManualClock()
        woken: list[str] = []

        async def sleep(name: str, seconds: float) -> None:
            await clock.sleep(seconds)
            woken.append(name)

        async with asyncio.TaskGroup() as group:
            group.create_task(sleep("late", 2))
            group.create_task(sleep("early", 1))
            await asyncio.sleep(0)
            assert clock.sleeping == 2
            clock.advance(0.999)
            await asyncio.sleep(0)
            assert woken == []
            clock.advance(0.001)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert woken == ["early"]
            clock.advance(5)
        assert woken == ["early", "late"]
        assert clock.sleeping == 0

    asyncio.run(scene())


def test_one_step_wakes_sleepers_in_order_of_their_time():
    async def scene() -> None:
        clock = ManualClock()
        woken: list[int] = []

        async def sleep(seconds: int) -> None:
            await clock.sleep(seconds)
            woken.append(seconds)

        async with asyncio.TaskGroup() as group:
            for seconds in (3, 1, 2):
                group.create_task(sleep(seconds))
            await asyncio.sleep(0)
            clock.advance(10)
        assert woken == [1, 2, 3]

    asyncio.run(scene())


@pytest.mark.parametrize("seconds", [0, -1, 0.0])
def test_sleeping_for_nothing_returns_at_once(seconds: float):
    async def scene() -> None:
        async with asyncio.timeout(5):
            await ManualClock().sleep(seconds)

    asyncio.run(scene())


def test_a_cancelled_sleeper_is_forgotten():
    async def scene() -> None:
        clock = ManualClock()
        sleeper = asyncio.create_task(clock.sleep(1))
        await asyncio.sleep(0)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        assert clock.sleeping == 0
        clock.advance(2)

    asyncio.run(scene())


def test_a_sleeper_on_another_threads_loop_wakes_there():
    clock = ManualClock()
    done = threading.Event()

    def other() -> None:
        asyncio.run(clock.sleep(1))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    while not clock.sleeping:
        thread.join(0.001)
    clock.advance(1)
    assert done.wait(10)
    thread.join()


def test_a_sleeper_whose_loop_is_closed_is_harmless():
    clock = ManualClock()

    async def abandon() -> None:
        sleeper = asyncio.ensure_future(clock.sleep(1))
        await asyncio.sleep(0)
        sleeper.cancel()

    asyncio.run(abandon())
    clock.advance(2)
