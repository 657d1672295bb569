"""Decisions from folders: who takes, who waits, who is passed."""

from __future__ import annotations

from outlive.drivers.etcd.decide import Take, Wait, decide, is_free
from outlive.model.lease import Ended
from outlive.model.turns import PASS_AFTER_US
from tests.unit.drivers.etcd.folders_by_hand import ask, folder, place, slot


def test_a_key_that_was_never_granted_is_taken() -> None:
    assert decide(folder(), ask("a/1"), 0, 0) == Take(0, 1, None)


def test_a_key_that_was_released_is_taken_with_nothing_to_record() -> None:
    free = slot(0, None, 9)
    assert decide(folder(free), ask("a/1"), 0, 0) == Take(0, 1, free)


def test_a_key_whose_live_key_is_gone_ran_out() -> None:
    late = slot(0, "b/1", 9, live=False)
    assert decide(folder(late), ask("a/1"), 0, 0) == Take(0, 1, late, ending=Ended.EXPIRED)


def test_an_owner_repeats_itself_and_a_host_resumes() -> None:
    held = slot(0, "web-1/x", 9)
    assert decide(folder(held), ask("web-1/x"), 0, 0) == Take(0, 1, held, again=True)
    resumed = decide(folder(held), ask("web-1/y", resume=True), 0, 0)
    assert resumed == Take(0, 1, held, ending=Ended.RESUMED)
    assert isinstance(decide(folder(held), ask("web-1/y"), 0, 0), Wait)
    assert isinstance(decide(folder(held), ask("web-10/y", resume=True), 0, 0), Wait)


def test_those_ahead_are_given_their_time_and_then_passed() -> None:
    first, second = place(11, "b/1"), place(12, "c/1")
    free = folder(slot(0, None, 9), places=(first, second))
    early = decide(free, ask("d/1"), PASS_AFTER_US, 0)
    assert early == Wait((), PASS_AFTER_US, 2)
    late = decide(free, ask("d/1"), 2 * PASS_AFTER_US, 0)
    assert isinstance(late, Take)
    assert late.passed == (first, second)


def test_a_passed_place_is_not_waited_for() -> None:
    queue = (place(11, "b/1"), place(12, "c/1"))
    free = folder(slot(0, None, 9), places=queue, passed=(11,))
    taken = decide(free, ask("c/1"), 0, 0)
    assert isinstance(taken, Take)
    assert taken.passed == ()


def test_a_slot_that_no_waiter_needs_is_for_a_newcomer() -> None:
    both_free = folder(slot(0, None, 9), slot(1, None, 8), limit=2, places=(place(11, "b/1"),))
    taken = decide(both_free, ask("d/1", limit=2), 0, 0)
    assert isinstance(taken, Take)
    assert taken.passed == ()


def test_another_limit_waits_until_all_slots_are_free() -> None:
    held = slot(0, "b/1", 9)
    three = folder(held, limit=3)
    assert decide(three, ask("a/1", limit=2), 0, 0) == Wait((held.live,), 0, 0)
    taken = decide(folder(slot(0, None, 9), limit=3), ask("a/1", limit=2), 0, 0)
    assert isinstance(taken, Take)
    assert taken.limit == 2


def test_the_first_free_slot_is_taken_or_the_next_unused() -> None:
    middle = folder(slot(0, "b/1", 7), slot(1, None, 8), slot(2, "c/1", 9), limit=4)
    taken = decide(middle, ask("a/1", limit=4), 0, 0)
    assert isinstance(taken, Take)
    assert taken.number == 1
    full = folder(slot(0, "b/1", 7), slot(1, "c/1", 8), limit=3)
    taken = decide(full, ask("a/1", limit=3), 0, 0)
    assert isinstance(taken, Take)
    assert (taken.number, taken.former) == (2, None)


def test_a_key_is_free_while_a_slot_is() -> None:
    assert not is_free(folder())
    assert not is_free(folder(slot(0, "b/1", 9)))
    assert is_free(folder(slot(0, "b/1", 9, live=False)))
    assert is_free(folder(slot(0, "b/1", 9), limit=2))
