"""Commits that come alone are written where they were decided; whatever else goes the usual way."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from outlive.errors import OutcomeUnknown
from outlive.flows.committing import Writes
from outlive.names import HostId
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession

pytestmark = pytest.mark.whitebox


class Store:
    """Answers each member with itself; at once, while it is ``quick``."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.under_way = self.most = 0
        self.done_at_once: list[str] = []
        self.quick = True
        self.error: Exception | None = None

    async def write(self, members: Any) -> list[str]:
        self.batches.append(list(members))
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        # As a server would.
        await asyncio.sleep(0.01)
        self.under_way -= 1
        return list(members)

    def at_once(self, member: str) -> str | None:
        if self.error is not None:
            raise self.error
        if not self.quick:
            return None
        # One in a turn of the loop, as the port has it.
        self.quick = False
        asyncio.get_running_loop().call_soon(setattr, self, "quick", True)
        self.done_at_once.append(member)
        return member


class Bench:
    """Writes to a store, and what was answered."""

    def __init__(self, *, at_once: bool = True) -> None:
        runtime = Runtime()
        self.store = Store()
        self.session = LiveSession(HostId("a"), runtime.clock, 60.0)
        self.session.accept(runtime.clock.monotonic())
        self.writes: Writes[str, str] = Writes(
            runtime,
            self.store.write,
            logging.getLogger("test"),
            at_once=self.store.at_once if at_once else None,
        )
        self.answers: list[str | None] = []

    def put(self, member: str, *, last: bool = False) -> None:
        self.writes.put(member, self.session, self.answers.append, last=last)

    async def lone(self) -> Bench:
        """After one that came alone."""
        self.put("first")
        await self.writes.flushed()
        return self


@pytest.fixture
async def bench() -> Bench:
    return await Bench().lone()


async def test_the_first_waits_for_company(bench: Bench) -> None:
    assert bench.store.batches == [["first"]]


async def test_what_comes_alone_is_written_at_once_and_told_a_turn_later(bench: Bench) -> None:
    bench.put("a")
    assert bench.store.done_at_once == ["a"]
    assert bench.answers == ["first"]
    await asyncio.sleep(0)
    assert bench.answers == ["first", "a"]


async def test_the_last_of_an_instance_is_told_in_the_same_turn(bench: Bench) -> None:
    bench.put("a", last=True)
    assert bench.answers == ["first", "a"]
    # Whoever comes in this turn is company, nevertheless.
    bench.put("b", last=True)
    bench.put("c", last=True)
    assert bench.answers == ["first", "a"]
    await bench.writes.flushed()
    assert bench.store.done_at_once == ["a"]
    assert bench.store.batches[1:] == [["b", "c"]]
    assert bench.answers == ["first", "a", "b", "c"]


async def test_the_turn_after_a_last_one_goes_at_once_again(bench: Bench) -> None:
    bench.put("a", last=True)
    await asyncio.sleep(0)
    bench.put("b", last=True)
    assert bench.answers == ["first", "a", "b"]


async def test_one_after_the_other_all_go_at_once(bench: Bench) -> None:
    for name in "abc":
        bench.put(name)
        await bench.writes.flushed()
    assert bench.store.done_at_once == ["a", "b", "c"]
    assert bench.answers == ["first", "a", "b", "c"]


async def test_who_comes_in_the_same_turn_shares_a_batch(bench: Bench) -> None:
    for name in "abcd":
        bench.put(name)
    await bench.writes.flushed()
    assert bench.store.done_at_once == ["a"]
    assert bench.store.batches[1:] == [["b", "c", "d"]]
    assert sorted(filter(None, bench.answers)) == ["a", "b", "c", "d", "first"]
    # They came together, and so may the next.
    bench.put("e")
    assert bench.store.done_at_once == ["a"]
    await bench.writes.flushed()


async def test_a_store_that_would_have_to_wait_is_asked_in_the_usual_way(bench: Bench) -> None:
    bench.store.quick = False
    bench.put("a")
    await bench.writes.flushed()
    assert bench.store.batches == [["first"], ["a"]]
    assert bench.answers == ["first", "a"]


async def test_a_lost_answer_is_asked_for_again_in_the_usual_way(bench: Bench) -> None:
    bench.store.error = OutcomeUnknown("the disk")
    bench.put("a")
    await bench.writes.flushed()
    assert bench.store.batches == [["first"], ["a"]]
    assert bench.answers == ["first", "a"]


async def test_nothing_is_written_at_once_for_a_lost_session(bench: Bench) -> None:
    bench.session.lost = "reaped"
    bench.put("a")
    await bench.writes.flushed()
    assert bench.store.done_at_once == []
    assert bench.store.batches == [["first"]]
    assert bench.answers == ["first", None]


async def test_one_that_cannot_go_on_is_told_of_and_harms_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(_: object) -> None:
        raise RuntimeError("a mistake")

    bench.writes.put("a", bench.session, raising)
    await bench.writes.flushed()
    bench.put("b")
    await bench.writes.flushed()
    assert bench.answers == ["first", "b"]
    assert "could not continue" in caplog.text


async def test_one_batch_is_under_way_and_what_comes_meanwhile_is_the_next() -> None:
    bench = Bench(at_once=False)
    members = [str(number) for number in range(20)]
    for member in members:
        bench.put(member)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    bench.put("late")
    bench.put("later")
    await bench.writes.flushed()
    assert bench.store.batches == [members, ["late", "later"]]
    assert bench.store.most == 1
    assert bench.answers == [*members, "late", "later"]
