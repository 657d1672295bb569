"""One order of everything: calls of steps in each of asyncio's tools, over a disturbed heap."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import outlive
from outlive import App
from tests.unit.flows.driving import Driven

app = App("order")


@app.step
def act(tag: str) -> str:
    return tag


async def gathered() -> None:
    await asyncio.gather(*(act(f"{n}") for n in range(9)))
    await act("end")


async def waited() -> None:
    calls = [act(f"{n}") for n in range(9)]
    while calls:
        done, pending = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        for call in done:
            await act(f"after {call.identity}")
        calls = list(pending)


async def cancelled() -> None:
    done, pending = await asyncio.wait(
        {act(f"{n}") for n in range(9)}, return_when=asyncio.FIRST_COMPLETED
    )
    for call in pending:
        call.cancel()
        await act(f"instead of {call.identity}")
    assert len(done) == 1


async def as_they_come() -> None:
    for call in asyncio.as_completed({act(f"{n}") for n in range(9)}):
        await act(f"after {await call}")


async def grouped() -> None:
    async def part(call: Any) -> None:
        await act(f"after {await call}")

    async with asyncio.TaskGroup() as tasks:
        for n in range(9):
            tasks.create_task(part(act(f"{n}")))
        tasks.create_task(act("bare"))


async def limited() -> None:
    async def part(n: int) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(act(f"{n}")), 1 + n % 3)
        except TimeoutError:
            await act(f"late {n}")

    await asyncio.gather(*(part(n) for n in range(9)))


async def signalled() -> None:
    waits = [outlive.wait_signal(f"s{n % 3}", timeout=5 + n) for n in range(9)]
    for wait in asyncio.as_completed(waits):
        try:
            await act(f"got {await wait}")
        except TimeoutError:
            await act("none")


def driven_through(function: Any) -> list[str]:
    """Run to the end, with ends, signals and time in a mixed order; what was decided, in order."""
    driven = Driven(App("a").flow(name="f")(function))
    for turn in range(1000):
        if driven.run.ended:
            break
        names = list(driven.steps)
        if names and turn % 4:
            driven.end(names[-1] if turn % 3 == 0 else names[0], f"r{turn}")
        else:
            driven.signal(f"s{turn % 3}", turn)
            driven.elapse(0.5)
    assert driven.run.ended
    return [
        f"{row.events} {[task.identity for task in decision.steps]} {decision.stopped}"
        for row, decision in zip(driven.rows, driven.decisions[1:], strict=False)
    ]


@pytest.mark.parametrize(
    "function",
    [gathered, waited, cancelled, as_they_come, grouped, limited, signalled],
)
def test_calls_have_one_order_over_a_disturbed_heap(function):
    dice = random.Random(1)
    wanted = driven_through(function)
    assert len(wanted) >= 9
    for _ in range(100):
        # Objects of every size come to lie elsewhere each time.
        litter = [bytearray(dice.randrange(1, 2000)) for _ in range(dice.randrange(200))]
        del litter[:: dice.randrange(2, 5)]
        assert driven_through(function) == wanted
        del litter
