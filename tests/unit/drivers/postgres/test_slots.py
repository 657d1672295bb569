"""The decision about a slot, without a database."""

from __future__ import annotations

import pytest

from outlive.drivers.postgres.slots import Slot, Take, Wait, decide
from outlive.model.lease import AcquireRequest, Ended
from outlive.names import HostId, Owner

pytestmark = pytest.mark.whitebox

NOW_US = 10_000_000


def ask(owner: str = "b/1", limit: int = 2, *, resume: bool = False) -> AcquireRequest:
    return AcquireRequest("k", Owner(owner), 1, "{}", HostId("h"), limit=limit, resume=resume)


def owned(number: int, token: int, owner: str = "a/1", until_us: int = NOW_US + 1) -> Slot:
    return Slot(number, token, 1, owner, until_us, active=until_us > NOW_US)


def free(number: int, token: int, since_us: int = 0) -> Slot:
    return Slot(number, token, 1, None, since_us, active=False)


def test_a_slot_given_back_comes_before_one_that_expired() -> None:
    slots = [owned(0, 1, until_us=5), free(1, 2)]
    taken = decide(ask(), slots, limit=2, ahead=0, now_us=NOW_US)
    assert isinstance(taken, Take)
    assert (taken.number, taken.token) == (1, 3)


def test_a_slot_never_used_is_added() -> None:
    taken = decide(ask(), [owned(0, 4)], limit=2, ahead=0, now_us=NOW_US)
    assert taken == Take(None, 1, 5)


def test_a_full_key_waits_for_the_first_to_expire() -> None:
    slots = [owned(0, 1, until_us=NOW_US + 9), owned(1, 2, "c/1", until_us=NOW_US + 5)]
    assert decide(ask(), slots, limit=2, ahead=0, now_us=NOW_US) == Wait("c/1", 5)


def test_another_limit_waits_for_all_to_expire() -> None:
    refused = decide(ask(limit=3), [owned(0, 1)], limit=2, ahead=0, now_us=NOW_US)
    assert isinstance(refused, Wait)
    taken = decide(ask(limit=3), [free(0, 1)], limit=2, ahead=0, now_us=NOW_US)
    assert isinstance(taken, Take)


def test_those_ahead_come_first_for_a_quarter_of_a_second_each() -> None:
    slots = [owned(0, 1), free(1, 2, since_us=NOW_US - 100_000)]
    assert decide(ask(), slots, limit=2, ahead=1, now_us=NOW_US) == Wait(None, 150_000)
    later = decide(ask(), slots, limit=2, ahead=1, now_us=NOW_US + 150_000)
    assert isinstance(later, Take)
    assert later.passed == 1


def test_the_owner_gets_its_own_slot_again() -> None:
    own = owned(1, 7, "b/1", until_us=5)
    assert decide(ask(), [owned(0, 8), own], limit=2, ahead=9, now_us=NOW_US) == Take(own, 1, 7)


def test_a_restarted_host_resumes() -> None:
    own = owned(0, 7, "b/old")
    taken = decide(ask(limit=1, resume=True), [own], limit=1, ahead=0, now_us=NOW_US)
    assert taken == Take(own, 0, 8, Ended.RESUMED)
