"""Random flows that end around branches which undo: all of them end, and replay as they ran."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import Any

import pytest

import outlive
from outlive import App
from tests.unit.flows.driving import Driven
from tests.unit.flows.test_random_flows import Program, act, happen, open_calls, perform

SEEDS = 100


@dataclass(frozen=True)
class Branch:
    """What a branch does, how it undoes it, and what is odd about that."""

    block: list[Any]
    undo: list[Any]
    fails: bool
    in_vain: bool
    leaves: bool
    cleans_up: bool


def branches(seed: int) -> list[Branch]:
    dice, program = random.Random(seed), Program(seed)

    def maybe() -> bool:
        return dice.random() < 0.4

    return [
        Branch(program.block(1), program.block(1), maybe(), maybe(), maybe(), maybe())
        for _ in range(dice.randrange(1, 4))
    ]


async def run_branch(branch: Branch, path: str, never: asyncio.Event, left: list[Any]) -> None:
    try:
        async with outlive.saga() as saga:
            saga.add(perform, branch.undo, f"{path}u")
            if branch.in_vain:
                saga.add(never.wait)
            if branch.leaves:
                saga.add(lambda: left.append(asyncio.create_task(act(f"{path} left"))))
                saga.add(lambda: left.append(asyncio.create_task(wait_for_long())))
            await perform(branch.block, path)
            if branch.fails:
                raise ValueError(path)
    finally:
        if branch.cleans_up:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(act(f"{path} cleaned up"))


async def wait_for_long() -> None:
    await outlive.wait_signal("late")


def send_awaited(driven: Driven) -> bool:
    """Send a signal that somebody waits for; False if nobody does."""
    for name in list(driven.run.inbox.waiting):
        driven.signal(name, 1)
        return True
    return False


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_flow_ends_when_its_branches_have_undone_and_replays_as_it_ran(seed):
    found = branches(seed)

    async def code() -> str:
        never, left = asyncio.Event(), []
        tasks = [
            asyncio.create_task(run_branch(branch, f"b{number}", never, left))
            for number, branch in enumerate(found)
        ]
        await outlive.wait_signal("s1")
        return f"around {len(tasks)}"

    dice = random.Random(seed)
    flow = App("a").flow(name="f")(code)
    driven = Driven(flow)
    for _ in range(300):
        if driven.run.ended or not happen(driven, dice):
            break
    while not driven.run.ended and (happen(driven, dice) or send_awaited(driven)):
        pass
    # Nothing can happen any more, and so nobody waits.
    assert driven.run.ended, (seed, driven.told())
    for length in range(len(driven.rows) + 1):
        again = Driven(flow, rows=driven.rows[:length], now_us=driven.now_us)
        decided = [type(event).__name__ for event in again.decisions[0].events]
        assert length == 0 or set(decided) <= {"Patched"}, (seed, length, decided)
        if length == len(driven.rows):
            assert (open_calls(again), again.run.ended) == (open_calls(driven), True)
        again.run.close()


def test_the_seeds_meet_what_they_are_for():
    kinds = [branch for seed in range(SEEDS) for branch in branches(seed)]
    for odd in ("fails", "in_vain", "leaves", "cleans_up"):
        assert sum(getattr(branch, odd) for branch in kinds) > SEEDS / 4
