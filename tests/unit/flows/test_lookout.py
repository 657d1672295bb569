"""When a host asks for flows: decided without a clock, so that each case can be told."""

from __future__ import annotations

import pytest

from outlive.flows.lookout import Lookout
from outlive.model.flow_options import FlowOptions

pytestmark = pytest.mark.whitebox

POLL_S, FLOOR_S = 10.0, 0.5


@pytest.fixture
def lookout() -> Lookout:
    return Lookout(FlowOptions(poll=POLL_S, poll_floor=FLOOR_S), 100)


def ask(lookout: Lookout, now: float, *, got: int, limit: int = 5, due_s: float = POLL_S) -> None:
    lookout.asks()
    lookout.answered(now, got=got, limit=limit, due_s=due_s)


def test_a_new_host_asks_at_once(lookout):
    assert lookout.wait_s(100.0, free=1) == 0


def test_while_a_claim_is_full_it_is_followed_by_the_next(lookout):
    ask(lookout, 100.0, got=5)
    assert lookout.wait_s(100.0, free=1) == 0


def test_a_claim_that_was_not_full_is_followed_by_a_wait(lookout):
    ask(lookout, 100.0, got=4)
    assert lookout.wait_s(100.0, free=1) == POLL_S
    assert lookout.wait_s(100.0 + POLL_S, free=1) == 0


def test_without_a_free_slot_hope_waits_for_the_poll(lookout):
    ask(lookout, 100.0, got=5)
    assert lookout.wait_s(101.0, free=0) == POLL_S - 1


def test_a_ring_ends_the_wait(lookout):
    ask(lookout, 100.0, got=0)
    lookout.rang()
    assert lookout.wait_s(100.0, free=1) == 0


def test_a_ring_while_the_store_is_asked_is_not_forgotten(lookout):
    lookout.asks()
    lookout.rang()
    lookout.answered(100.0, got=0, limit=5, due_s=POLL_S)
    assert lookout.wait_s(100.0, free=1) == 0


def test_what_came_due_while_there_was_no_slot_is_there_for_the_next(lookout):
    ask(lookout, 100.0, got=0, due_s=3.0)
    assert not lookout.hopeful
    # Asked for letters only.
    ask(lookout, 103.0, got=0, limit=0)
    assert lookout.wait_s(103.0, free=0) > 0
    assert lookout.wait_s(103.0, free=1) == 0
    ask(lookout, 103.0, got=0)
    assert not lookout.hopeful


def test_what_the_store_knows_to_come_due_is_looked_for_then_and_not_below_the_floor(lookout):
    ask(lookout, 100.0, got=0, due_s=3.0)
    assert lookout.wait_s(100.0, free=1) == 3.0
    ask(lookout, 100.0, got=0, due_s=0.0)
    assert lookout.wait_s(100.0, free=1) == FLOOR_S


def test_a_flow_of_ours_that_comes_due_sooner_moves_the_look(lookout):
    ask(lookout, 100.0, got=0)
    assert lookout.comes_due(100.0, 2.0)
    assert not lookout.comes_due(100.0, 4.0)
    assert lookout.wait_s(100.0, free=1) == 2.0


def test_one_that_came_to_wait_while_the_store_was_asked_is_in_no_answer(lookout):
    lookout.asks()
    lookout.comes_due(100.0, 1.0)
    lookout.answered(100.0, got=0, limit=5, due_s=POLL_S)
    assert lookout.wait_s(100.0, free=1) == 1.0
    # The next answer knows of it.
    ask(lookout, 101.0, got=0)
    assert lookout.wait_s(101.0, free=1) == POLL_S


def test_a_crowd_is_asked_for_in_growing_parts(lookout):
    asked: list[int] = []
    for _ in range(6):
        asked.append(lookout.limit(1000))
        ask(lookout, 100.0, got=asked[-1], limit=asked[-1])
    assert asked == [8, 16, 32, 64, 100, 100]
    # What was too little ends the crowd; the next may be one that others want a part of.
    ask(lookout, 100.0, got=99, limit=100)
    assert lookout.limit(1000) == 8
    assert lookout.limit(3) == 3


def test_without_a_slot_nothing_grows(lookout):
    ask(lookout, 100.0, got=0, limit=0)
    assert lookout.limit(1000) == 8


def test_no_part_is_larger_than_a_claim_may_be():
    small = Lookout(FlowOptions(), 3)
    assert small.limit(10) == 3
    ask(small, 100.0, got=3, limit=3)
    assert small.limit(10) == 3
