"""Whose turn it is: nobody is overtaken in time, and nobody waits for the dead for long."""

from __future__ import annotations

import pytest

from outlive.model.turns import PASS_AFTER_US, RING_DEPTH, WAITER_TTL_US, may_take, turn_in_us

FREE_SINCE = 10_000_000


def test_with_nobody_ahead_a_free_key_is_taken_at_once():
    assert may_take(FREE_SINCE, FREE_SINCE, ahead=0, free_slots=1)
    assert turn_in_us(FREE_SINCE, FREE_SINCE, ahead=0, free_slots=1) == 0


def test_without_a_free_slot_nobody_may_take():
    assert not may_take(FREE_SINCE + 10 * PASS_AFTER_US, FREE_SINCE, ahead=0, free_slots=0)
    assert not may_take(FREE_SINCE + 10 * PASS_AFTER_US, FREE_SINCE, ahead=0, free_slots=-1)


@pytest.mark.parametrize("ahead", [1, 2, 3, 10])
def test_each_one_ahead_gets_its_time_to_answer(ahead: int):
    turn = FREE_SINCE + ahead * PASS_AFTER_US
    assert not may_take(turn - 1, FREE_SINCE, ahead=ahead, free_slots=1)
    assert may_take(turn, FREE_SINCE, ahead=ahead, free_slots=1)
    assert turn_in_us(FREE_SINCE, FREE_SINCE, ahead=ahead, free_slots=1) == ahead * PASS_AFTER_US


def test_with_more_slots_than_people_ahead_nobody_is_overtaken():
    assert may_take(FREE_SINCE, FREE_SINCE, ahead=2, free_slots=3)
    assert not may_take(FREE_SINCE, FREE_SINCE, ahead=3, free_slots=3)
    assert turn_in_us(FREE_SINCE, FREE_SINCE, ahead=3, free_slots=3) == PASS_AFTER_US


@pytest.mark.parametrize("now_after", [0, 1, PASS_AFTER_US - 1, PASS_AFTER_US, 3 * PASS_AFTER_US])
@pytest.mark.parametrize("ahead", range(5))
@pytest.mark.parametrize("free_slots", [1, 2, 4])
def test_the_turn_comes_exactly_when_it_was_announced(now_after: int, ahead: int, free_slots: int):
    now = FREE_SINCE + now_after
    wait = turn_in_us(now, FREE_SINCE, ahead=ahead, free_slots=free_slots)
    assert wait >= 0
    assert may_take(now, FREE_SINCE, ahead=ahead, free_slots=free_slots) == (wait == 0)
    assert may_take(now + wait, FREE_SINCE, ahead=ahead, free_slots=free_slots)
    if wait:
        assert not may_take(now + wait - 1, FREE_SINCE, ahead=ahead, free_slots=free_slots)


def test_while_the_key_is_held_the_turn_counts_from_its_expiry():
    expires = FREE_SINCE + 5_000_000
    assert turn_in_us(FREE_SINCE, expires, ahead=2, free_slots=0) == 5_000_000 + 2 * PASS_AFTER_US


def test_more_people_ahead_never_bring_the_turn_nearer():
    waits = [turn_in_us(FREE_SINCE, FREE_SINCE, ahead=n, free_slots=2) for n in range(20)]
    assert waits == sorted(waits)


def test_those_who_are_rung_have_their_turn_while_their_place_lasts():
    assert RING_DEPTH * PASS_AFTER_US < WAITER_TTL_US
