"""Operations share batches, and each caller gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from outlive.drivers.postgres.coalescer import BATCH_MAX, Coalescer
from outlive.errors import OutcomeUnknown, StoreUnavailable

pytestmark = pytest.mark.whitebox


class Store:
    """Carries out batches when told to, and remembers them."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.cancelled = 0

    async def run(self, batch: Sequence[int]) -> Sequence[int | Exception]:
        self.batches.append(list(batch))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return [ValueError("bad") if number < 0 else number * 2 for number in batch]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_lone_operation_is_a_batch_of_one() -> None:
    store = Store()
    assert await Coalescer(store.run).submit("a", 1) == 2
    assert store.batches == [[1]]


async def test_what_arrives_during_a_batch_shares_the_next() -> None:
    store = Store()
    store.gate.clear()
    line = Coalescer(store.run)
    first = asyncio.create_task(line.submit(0, 0))
    await settle()
    others = [asyncio.create_task(line.submit(number, number)) for number in range(1, 6)]
    await settle()
    assert store.batches == [[0]]
    store.gate.set()
    assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10]
    assert store.batches == [[0], [1, 2, 3, 4, 5]]


async def test_a_row_never_stands_twice_in_a_batch_and_keeps_its_order() -> None:
    store = Store()
    line = Coalescer(store.run)
    rows = ["a", "a", "b", "a", "b"]
    await asyncio.gather(*(line.submit(row, number) for number, row in enumerate(rows)))
    assert store.batches == [[0, 2], [1, 4], [3]]


async def test_batches_are_limited() -> None:
    store = Store()
    line = Coalescer(store.run)
    await asyncio.gather(*(line.submit(number, number) for number in range(BATCH_MAX + 1)))
    assert [len(batch) for batch in store.batches] == [BATCH_MAX, 1]


async def test_one_failure_is_its_own() -> None:
    line = Coalescer(Store().run)
    outcomes = await asyncio.gather(
        *(line.submit(number, number) for number in (1, -1, 2)), return_exceptions=True
    )
    assert outcomes[0] == 2
    assert isinstance(outcomes[1], ValueError)
    assert outcomes[2] == 4


async def test_a_cancelled_caller_does_not_disturb_its_batch() -> None:
    store = Store()
    store.gate.clear()
    line = Coalescer(store.run)
    leaver, stayer = (asyncio.create_task(line.submit(number, number)) for number in (1, 2))
    await settle()
    leaver.cancel()
    await settle()
    store.gate.set()
    assert await stayer == 4
    assert store.cancelled == 0


async def test_who_is_cancelled_before_being_sent_is_never_sent() -> None:
    store = Store()
    store.gate.clear()
    line = Coalescer(store.run)
    first = asyncio.create_task(line.submit(1, 1))
    await settle()
    late = asyncio.create_task(line.submit(2, 2))
    await settle()
    late.cancel()
    store.gate.set()
    assert await first == 2
    await settle()
    assert store.batches == [[1]]


async def test_a_keeper_abandons_its_batch_and_goes_on() -> None:
    store = Store()
    store.gate.clear()
    line = Coalescer(store.run, abandons=True)
    leaver, other = (asyncio.create_task(line.submit(number, number)) for number in (1, 2))
    await settle()
    leaver.cancel()
    with pytest.raises(OutcomeUnknown):
        await other
    assert store.cancelled == 1
    store.gate.set()
    assert await line.submit(3, 3) == 6


async def test_closing_fails_what_waits() -> None:
    store = Store()
    store.gate.clear()
    line = Coalescer(store.run)
    flying = asyncio.create_task(line.submit(1, 1))
    await settle()
    waiting = asyncio.create_task(line.submit(1, 2))
    await settle()
    await line.close()
    await line.close()
    with pytest.raises(StoreUnavailable):
        await waiting
    with pytest.raises(OutcomeUnknown):
        await flying
    with pytest.raises(StoreUnavailable):
        await line.submit(1, 3)


async def quiet_line(store: Store, *, abandons: bool = False) -> Coalescer[int, int]:
    """A line whose operations have come one by one."""
    line = Coalescer[int, int](store.run, abandons=abandons, lone=True)
    await line.submit(0, 0)
    store.batches.clear()
    return line


async def test_in_quiet_times_an_operation_goes_out_in_its_callers_task() -> None:
    store = Store()
    line = await quiet_line(store)
    store.gate.clear()
    alone = asyncio.create_task(line.submit(1, 1))
    await asyncio.sleep(0)
    assert store.batches == [[1]]
    others = [asyncio.create_task(line.submit(number, number)) for number in (2, 3)]
    await settle()
    store.gate.set()
    assert await asyncio.gather(alone, *others) == [2, 4, 6]
    assert store.batches == [[1], [2, 3]]
    # A crowd came: the next ones are collected again.
    await asyncio.gather(*(line.submit(number, number) for number in (4, 5, 6)))
    assert store.batches[2:] == [[4, 5, 6]]


async def test_a_lone_caller_that_is_cancelled_gives_its_operation_up_and_others_go_on() -> None:
    store = Store()
    line = await quiet_line(store)
    store.gate.clear()
    alone = asyncio.create_task(line.submit(1, 1))
    await settle()
    waiting = asyncio.create_task(line.submit(2, 2))
    await settle()
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    assert store.cancelled == 1
    store.gate.set()
    assert await waiting == 4


async def test_nothing_is_sent_until_what_a_cancelled_caller_sent_is_over() -> None:
    store, over = Store(), asyncio.Event()

    async def settled() -> None:
        await over.wait()

    line = Coalescer[int, int](store.run, lone=True, settled=settled)
    await line.submit(0, 0)
    store.gate.clear()
    alone = asyncio.create_task(line.submit(1, 1))
    await settle()
    alone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await alone
    store.gate.set()
    waiting = asyncio.create_task(line.submit(1, 2))
    await settle()
    assert store.batches == [[0], [1]]
    over.set()
    assert await waiting == 4
    assert store.batches == [[0], [1], [2]]


async def test_a_lone_failure_is_raised() -> None:
    line = await quiet_line(Store())
    with pytest.raises(ValueError, match="bad"):
        await line.submit(1, -1)
    assert await line.submit(1, 1) == 2
