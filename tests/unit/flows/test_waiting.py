"""Those who wait for the end of a flow in the process in which it runs."""

from __future__ import annotations

import asyncio

import pytest

from outlive.flows.waiting import Waiters
from outlive.model.instance import InstanceStatus

pytestmark = pytest.mark.whitebox

DONE = InstanceStatus.COMPLETED


async def test_one_who_waits_is_told() -> None:
    waiters = Waiters()
    waiting = asyncio.create_task(waiters.expect("f").wait())
    await asyncio.sleep(0)
    waiters.ended("f", DONE, "1")
    assert await waiting == (DONE, "1")


async def test_one_who_comes_to_wait_after_the_end_is_told_at_once() -> None:
    waiters = Waiters()
    waiter = waiters.expect("f")
    waiters.ended("f", DONE, "1")
    assert waiter.told
    assert waiter.end == (DONE, "1")
    waiting = waiter.wait()
    with pytest.raises(StopIteration):
        waiting.send(None)


async def test_one_whose_flow_goes_on_elsewhere_is_told_of_no_end() -> None:
    waiters = Waiters()
    waiting = asyncio.create_task(waiters.expect("f").wait())
    await asyncio.sleep(0)
    waiters.gone("f")
    assert await waiting is None


async def test_the_first_that_is_told_counts() -> None:
    waiters = Waiters()
    waiter = waiters.expect("f")
    waiters.ended("f", DONE, "1")
    waiters.gone("f")
    assert await waiter.wait() == (DONE, "1")


async def test_who_leaves_takes_nobody_along_and_is_forgotten() -> None:
    waiters = Waiters()
    tasks = [asyncio.create_task(waiters.expect("f").wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.sleep(0)
    tasks.append(asyncio.create_task(waiters.expect("f").wait()))
    await asyncio.sleep(0)
    assert len(waiters._waiting["f"]) == 3
    waiters.ended("f", DONE, "1")
    assert await asyncio.gather(*tasks[:2], tasks[3]) == [(DONE, "1")] * 3
    assert tasks[2].cancelled()
    assert not waiters._waiting
