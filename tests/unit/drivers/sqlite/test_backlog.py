"""Rings that a full bell did not take: sent later, in few datagrams, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from outlive.drivers.sqlite.backlog import Backlog, Ring
from outlive.ports.wakeups import MISSED
from outlive.testing.loop import VirtualLoop

pytestmark = pytest.mark.whitebox

TOGETHER = 4


class Bell:
    """A bell with room for so many datagrams, which are taken when the test says so."""

    def __init__(self) -> None:
        self.room = 0
        self.tried = 0
        self.took: list[list[Ring]] = []

    def send(self, rings: Sequence[Ring], name: str) -> bool:
        assert name == "bell"
        self.tried += 1
        if not self.room:
            return False
        self.room -= 1
        self.took.append(list(rings))
        return True


def rings(count: int, first: int = 0) -> list[Ring]:
    return [(f"instance/{number}", 0, 0) for number in range(first, first + count)]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = VirtualLoop()
    yield made
    made.close()


def let_pass(loop: asyncio.AbstractEventLoop, seconds: float) -> None:
    loop.run_until_complete(asyncio.sleep(seconds))


def test_what_had_no_room_arrives_when_there_is_some(loop: asyncio.AbstractEventLoop) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    for ring in rings(6):
        backlog.add([ring], "bell")
    let_pass(loop, 0.1)
    assert bell.took == []
    bell.room = 9
    let_pass(loop, 0.1)
    assert bell.took == [rings(4), rings(2, 4)]


def test_the_same_ring_is_sent_once(loop: asyncio.AbstractEventLoop) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    for _ in range(3):
        backlog.add(rings(2), "bell")
    bell.room = 9
    let_pass(loop, 0.1)
    assert bell.took == [rings(2)]


def test_who_takes_some_is_given_the_rest(loop: asyncio.AbstractEventLoop) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    backlog.add(rings(10), "bell")
    # Longer in all than anybody is waited for who takes nothing.
    for _ in range(3):
        let_pass(loop, 4.0)
        bell.room = 1
    let_pass(loop, 1.0)
    assert [len(took) for took in bell.took] == [4, 4, 2]


def test_who_never_reads_is_given_up(loop: asyncio.AbstractEventLoop) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    backlog.add(rings(1), "bell")
    let_pass(loop, 10.0)
    tried = bell.tried
    # About each 50 ms, for five seconds.
    assert 0 < tried < 150
    bell.room = 9
    let_pass(loop, 60.0)
    assert bell.tried == tried
    backlog.add(rings(1, 1), "bell")
    let_pass(loop, 0.1)
    assert bell.took == [rings(1, 1)]


def test_what_comes_later_has_as_much_time_as_what_came_first(
    loop: asyncio.AbstractEventLoop,
) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    backlog.add(rings(1), "bell")
    let_pass(loop, 4.9)
    backlog.add(rings(1, 1), "bell")
    let_pass(loop, 0.5)
    bell.room = 9
    let_pass(loop, 0.1)
    assert bell.took == [rings(2)]


def test_who_has_missed_too_much_is_told_to_look(loop: asyncio.AbstractEventLoop) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    backlog.add(rings(1024), "bell")
    backlog.add(rings(2, 1024), "bell")
    bell.room = 9
    let_pass(loop, 0.1)
    assert bell.took == [[(MISSED.topic, 0, 0)]]


def test_a_last_attempt_is_made_at_the_end(loop: asyncio.AbstractEventLoop) -> None:
    bell = Bell()
    backlog = Backlog(loop, bell.send, TOGETHER)
    backlog.add(rings(3), "bell")
    bell.room = 1
    backlog.close()
    backlog.close()
    assert bell.took == [rings(3)]
    tried = bell.tried
    let_pass(loop, 60.0)
    assert bell.tried == tried
