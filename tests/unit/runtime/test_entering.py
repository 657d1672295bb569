"""Blocks of ``async with``: what they say to who forgets the ``async``."""

from __future__ import annotations

import pytest

import holdfast
from holdfast.flows.saga import Saga


async def test_a_plain_with_is_told_what_to_write():
    async with holdfast.connect("memory://entering") as hf:
        for block, written in (
            (holdfast.connect("memory://entering"), "holdfast.connect"),
            (hf.leases.hold("key"), "hf.leases.hold"),
            (hf.running(), "hf.running"),
        ):
            with pytest.raises(TypeError, match=rf"`async with {written}.*holdfast\.blocking"):
                enter(block)
    with pytest.raises(TypeError, match=r"`async with holdfast\.saga\(\)`$"):
        enter(Saga())


async def test_running_is_a_block_and_nothing_to_await():
    async with holdfast.connect("memory://entering") as hf:
        with pytest.raises(TypeError, match=r"`async with hf\.running\(\)`"):
            await hf.running()


def enter(block) -> None:
    with block:
        pytest.fail("it was entered")
