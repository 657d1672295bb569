"""Blocks of ``async with``: what they say to who forgets the ``async``."""

from __future__ import annotations

import pytest

import outlive
from outlive.flows.saga import Saga


async def test_a_plain_with_is_told_what_to_write():
    async with outlive.connect("memory://entering") as host:
        for block, written in (
            (outlive.connect("memory://entering"), "outlive.connect"),
            (host.leases.hold("key"), "host.leases.hold"),
            (host.running(), "host.running"),
        ):
            with pytest.raises(TypeError, match=rf"`async with {written}.*outlive\.blocking"):
                enter(block)
    with pytest.raises(TypeError, match=r"`async with outlive\.saga\(\)`$"):
        enter(Saga())


async def test_running_is_a_block_and_nothing_to_await():
    async with outlive.connect("memory://entering") as host:
        with pytest.raises(TypeError, match=r"`async with host\.running\(\)`"):
            await host.running()


def enter(block) -> None:
    with block:
        pytest.fail("it was entered")
