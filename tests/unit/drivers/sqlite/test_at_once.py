"""Operations that come one by one run at once, and yet nobody else is kept from running."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from outlive.drivers.sqlite import writer
from outlive.drivers.sqlite.at_once import AtOnce
from outlive.drivers.sqlite.transaction import Turn
from outlive.errors import StoreUnavailable
from tests.unit.drivers.sqlite.test_writer import Bench, note

pytestmark = pytest.mark.whitebox


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Bench, None]:
    """A writer that has just seen a lone operation, on a disk that is never too slow for it."""
    monkeypatch.setattr(writer, "_INLINE_COMMIT_MAX_S", math.inf)
    made = Bench(tmp_path / "bench.db")
    await made.writer.submit(note, "first")
    yield made
    await made.close()


async def test_a_lone_operation_is_committed_before_it_is_awaited(bench: Bench) -> None:
    performed = bench.writer.perform(note, "a")
    assert isinstance(performed, AtOnce)
    assert bench.committed() == ["first", "a"]
    assert await performed == "a"
    assert bench.writer._thread is None


async def test_one_who_writes_again_and_again_lets_others_run(bench: Bench) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(other())
    for number in range(50):
        await bench.writer.perform(note, str(number))
    beside.cancel()
    assert turns >= 50


async def test_one_who_writes_alone_lets_timers_and_sockets_be_looked_at(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    passed = 0

    def look() -> None:
        nonlocal passed
        passed += 1
        # In a turn of its own, and only when time has passed: nobody is ready meanwhile.
        loop.call_later(1e-6, look)

    look()
    for number in range(40):
        await bench.writer.perform(note, str(number))
    assert passed >= 5


async def test_one_who_writes_alone_takes_no_turn_for_nobody(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    turns, run_once = 0, loop._run_once

    def counted() -> None:
        nonlocal turns
        turns += 1
        run_once()

    loop._run_once = counted
    for number in range(40):
        await bench.writer.perform(note, str(number))
    # One for each seventh.
    assert turns == 5
    assert bench.committed() == ["first", *map(str, range(40))]


async def test_those_who_come_in_the_same_turn_share_a_transaction(bench: Bench) -> None:
    seen: list[int] = []

    def count(turn: Turn, text: str) -> None:
        note(turn, text)
        seen.append(turn.now_us)

    async def write(text: str) -> None:
        for _ in range(3):
            await bench.writer.perform(count, text)

    await asyncio.gather(*(write(str(n)) for n in range(20)))
    # The first of all could not know that others would come.
    assert len(set(seen)) <= 5
    assert len(seen) == 60


async def test_two_who_come_together_go_on_together(bench: Bench) -> None:
    seen: list[int] = []

    async def write() -> None:
        for _ in range(10):
            await bench.writer.perform(lambda turn, _: seen.append(turn.now_us), None)

    await asyncio.gather(write(), write())
    assert len(set(seen)) <= 12


async def test_a_failure_is_raised_where_it_is_awaited(bench: Bench) -> None:
    performed = bench.writer.perform(note, "refused")
    with pytest.raises(StoreUnavailable):
        await performed
    assert await bench.writer.perform(note, "b") == "b"
    assert bench.committed() == ["first", "b"]


async def test_a_lock_is_waited_for_off_the_loop(bench: Bench) -> None:
    bench.other.execute("BEGIN IMMEDIATE")
    performed = asyncio.ensure_future(bench.writer.perform(note, "a"))
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert not performed.done()
    bench.other.execute("COMMIT")
    assert await performed == "a"


async def test_a_large_one_goes_to_the_thread(bench: Bench) -> None:
    ran_on: list[str] = []
    await bench.writer.perform(
        lambda *_: ran_on.append(threading.current_thread().name), None, large=True
    )
    assert ran_on == ["writer-under-test"]


async def test_a_caller_that_is_cancelled_leaves_what_was_committed(bench: Bench) -> None:
    async def write() -> None:
        await bench.writer.perform(note, "a")

    task = asyncio.create_task(write())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.committed() == ["first", "a"]
    assert await bench.writer.perform(note, "b") == "b"


async def test_a_closed_writer_refuses(bench: Bench) -> None:
    await bench.writer.close()
    with pytest.raises(StoreUnavailable):
        bench.writer.perform(note, "a")


async def test_a_result_may_be_had_without_awaiting(bench: Bench) -> None:
    assert bench.writer.at_once(note, "a") == "a"
    assert bench.committed() == ["first", "a"]


async def test_whoever_comes_in_that_turn_is_company(bench: Bench) -> None:
    # A few may be one after the other, each in a turn that nobody has seen.
    done = [name for name in "abcdefg" if bench.writer.at_once(note, name) is not None]
    assert done == ["a", "b", "c"]
    await asyncio.sleep(0)
    assert bench.writer.at_once(note, "h") == "h"
    assert bench.committed() == ["first", *done, "h"]


async def test_whoever_comes_beside_others_who_are_ready_is_company(bench: Bench) -> None:
    asyncio.get_running_loop().call_soon(lambda: None)
    assert bench.writer.at_once(note, "a") == "a"
    assert bench.writer.at_once(note, "b") is None
    await asyncio.sleep(0)
    assert bench.writer.at_once(note, "b") == "b"


async def test_nothing_is_done_at_once_beside_what_waits(bench: Bench) -> None:
    waiting = bench.writer.submit(note, "a")
    assert bench.writer.at_once(note, "b") is None
    await waiting
    assert bench.committed() == ["first", "a"]


async def test_a_failure_at_once_is_raised(bench: Bench) -> None:
    def refuse(_turn: Turn, _argument: object) -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError):
        bench.writer.at_once(refuse, None)
    await asyncio.sleep(0)
    assert bench.writer.at_once(note, "a") == "a"
