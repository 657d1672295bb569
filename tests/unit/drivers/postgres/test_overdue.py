"""Statements that take too long are given up by one timer for all of them.

On virtual time: on a busy machine a short sleep may take longer than any limit.
"""

from __future__ import annotations

import asyncio
import functools

import pytest

from outlive.drivers.postgres.overdue import Overdue
from outlive.testing.loop import VirtualLoop

pytestmark = pytest.mark.whitebox

LIMIT_S = 0.08


class Connection:
    def __init__(self) -> None:
        self.terminated = False

    def terminate(self) -> None:
        self.terminated = True


def on_virtual_time(test):
    @functools.wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test())

    return run


@on_virtual_time
async def test_what_takes_too_long_is_given_up_and_its_caller_told() -> None:
    overdue, slow = Overdue(LIMIT_S), Connection()
    overdue.begin(slow)
    await asyncio.sleep(LIMIT_S / 2)
    assert not slow.terminated
    fresh = Connection()
    overdue.begin(fresh)
    await asyncio.sleep(0.7 * LIMIT_S)
    assert slow.terminated
    assert overdue.end(slow)
    assert not fresh.terminated
    assert not overdue.end(fresh)


@on_virtual_time
async def test_what_ends_in_time_is_left_alone() -> None:
    overdue, connection = Overdue(LIMIT_S), Connection()
    for _ in range(5):
        overdue.begin(connection)
        await asyncio.sleep(LIMIT_S / 4)
        assert not overdue.end(connection)
    await asyncio.sleep(2 * LIMIT_S)
    assert not connection.terminated


@on_virtual_time
async def test_closing_ends_the_watch() -> None:
    overdue, connection = Overdue(LIMIT_S), Connection()
    overdue.begin(connection)
    overdue.close()
    overdue.close()
    await asyncio.sleep(2 * LIMIT_S)
    assert not connection.terminated
