"""The checker: each invariant has a smallest history that breaks it, and one that keeps it."""

from __future__ import annotations

import pytest

from tests.simulation.oracles.history import History, Served
from tests.simulation.oracles.lease_checker import (
    LIVENESS_BOUND_S,
    Facts,
    check,
    check_abandoned,
    check_l1,
    check_l2,
    check_l3,
    check_l4,
    check_l5,
    check_l6,
    check_l7,
    check_l8,
    check_l9,
    check_l10,
)
from tests.simulation.oracles.lease_reference import check_served

TTL_S = 10.0


class Script:
    """A history written by hand: each line is who, what, from when to when."""

    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(99, lambda: self.now)

    def call(self, proc, op, start, end, *, ok=True, token=None, grant=None, **more):
        self.now = start
        deadline = more.pop("deadline", None)
        call = self.history.start(
            proc, op, "k", ttl_s=TTL_S, token=token, grant=grant or f"{proc}/{token}", **more
        )
        self.now = end
        call.finish(ok=ok, deadline=deadline)
        return self

    def serve(self, at, op, grant, *, ok=True, token=0, **more):
        self.history.serve(
            Served(at=at, op=op, key="k", grant=grant, ok=ok, token=token, ttl_s=TTL_S, **more)
        )
        return self

    def write(self, at, proc, token, *, fenced=True):
        self.now = at
        self.history.resource("k", fenced=fenced).apply(proc, token, at)
        return self

    @property
    def facts(self) -> Facts:
        return Facts(self.history)


def rules(found) -> set[str]:
    assert all(violation.seed == 99 and str(violation) for violation in found)
    return {violation.rule for violation in found}


def test_a_quiet_history_breaks_nothing():
    script = (
        Script()
        .call("a", "acquire", 0, 1, token=1, deadline=9.0)
        .call("a", "write", 1.5, 1.6, token=1)
        .write(1.55, "a", 1)
        .call("a", "release", 2, 3, token=1)
        .call("b", "acquire", 4, 5, token=2, deadline=13.0)
    )
    assert check(script.history, healed_at=0.0) == []


def test_l1_one_token_twice():
    script = Script().call("a", "acquire", 0, 1, token=1).call("b", "acquire", 0, 1, token=1)
    assert rules(check_l1(script.facts)) == {"L1"}


def test_l1_a_retry_by_the_same_owner_is_one_grant():
    script = Script()
    script.call("a", "store.acquire", 0, 1, token=1).call("a", "store.acquire", 2, 3, token=1)
    assert check_l1(script.facts) == []


def test_l2_tokens_go_back():
    script = Script().call("a", "acquire", 0, 1, token=5).call("b", "acquire", 2, 3, token=4)
    assert rules(check_l2(script.facts)) == {"L2"}


def test_l2_concurrent_grants_may_come_in_any_order():
    script = Script().call("a", "acquire", 0, 3, token=5).call("b", "acquire", 2, 3, token=4)
    assert check_l2(script.facts) == []


def test_l3_two_believe_at_once():
    script = Script()
    script.call("a", "acquire", 0, 1, token=1, deadline=9.0)
    script.call("b", "acquire", 5, 6, token=2, deadline=14.0)
    assert rules(check_l3(script.facts)) == {"L3"}


@pytest.mark.parametrize("op", ["release", "lost"])
def test_l3_belief_ends_with(op):
    script = Script()
    script.call("a", "acquire", 0, 1, token=1, deadline=9.0)
    script.call("a", op, 2, 2, token=1)
    script.call("b", "acquire", 5, 6, token=2, deadline=14.0)
    assert check_l3(script.facts) == []


def test_l3_belief_ends_with_a_crash():
    script = Script().call("a", "acquire", 0, 1, token=1, deadline=9.0)
    script.now = 2.0
    script.history.crash("a")
    script.call("b", "acquire", 5, 6, token=2, deadline=14.0)
    assert check_l3(script.facts) == []


def test_l3_a_semaphore_is_as_deep_as_its_capacity():
    script = Script()
    for number in range(3):
        script.call(
            "abc"[number], "acquire", number, number + 0.5, token=number, capacity=2, deadline=9.0
        )
    assert rules(check_l3(script.facts)) == {"L3"}


def test_l4_a_deadline_from_the_reply():
    script = Script().call("a", "acquire", 0, 3, token=1, deadline=3 + TTL_S)
    assert rules(check_l4(script.facts)) == {"L4"}


def test_l4_a_slow_clock_may_believe_for_longer_in_true_time():
    deadline = TTL_S / 0.9
    script = Script().call("a", "acquire", 0, 3, token=1, deadline=deadline, rate=0.9)
    assert check_l4(script.facts) == []


def test_l4_a_protected_call_after_the_deadline():
    script = Script().call("a", "acquire", 0, 1, token=1).call("a", "write", 11, 12, token=1)
    assert rules(check_l4(script.facts)) == {"L4"}


def test_l4_a_renewal_moves_the_deadline():
    script = Script().call("a", "acquire", 0, 1, token=1)
    script.call("a", "store.renew", 5, 6, token=1).call("a", "write", 11, 12, token=1)
    assert check_l4(script.facts) == []


def test_l4_use_after_the_loss():
    script = Script().call("a", "acquire", 0, 1, token=1)
    script.call("a", "lost", 3, 3, token=1).call("a", "believe", 4, 4, token=1)
    assert rules(check_l4(script.facts)) == {"L4"}


def test_l5_an_old_token_is_accepted():
    script = Script().write(1, "b", 2, fenced=False).write(2, "a", 1)
    assert rules(check_l5(script.facts)) == {"L5"}


def test_l5_a_fenced_resource_refuses_it():
    script = Script().write(1, "b", 2).write(2, "a", 1)
    assert [entry.accepted for entry in script.history.applied()] == [True, False]
    assert check_l5(script.facts) == []


def test_l6_a_token_of_somebody_else():
    script = Script().call("a", "acquire", 0, 1, token=1).write(2, "b", 1)
    assert rules(check_l6(script.facts)) == {"L6"}


def test_l7_a_renewal_after_a_newer_grant():
    script = Script().call("a", "acquire", 0, 1, token=1).call("b", "acquire", 12, 13, token=2)
    script.call("a", "renew", 14, 15, token=1)
    assert rules(check_l7(script.facts)) == {"L7"}


def test_l7_a_write_after_the_own_release():
    script = Script().call("a", "acquire", 0, 1, token=1).call("a", "release", 2, 3, token=1)
    script.call("a", "write", 2.5, 4, token=1)
    assert rules(check_l7(script.facts)) == {"L7"}


def test_l7_a_renewal_after_the_own_release_or_a_break():
    released = Script().call("a", "acquire", 0, 1, token=1)
    released.call("a", "store.release", 2, 3, token=1).call("a", "store.renew", 4, 5, token=1)
    assert rules(check_l7(released.facts)) == {"L7"}
    broken = Script().call("a", "acquire", 0, 1, token=1)
    broken.call("x", "break", 2, 3).call("a", "store.renew", 4, 5, token=1)
    assert rules(check_l7(broken.facts)) == {"L7"}


def test_l8_a_release_after_a_newer_grant():
    script = Script().call("a", "acquire", 0, 1, token=1).call("b", "acquire", 12, 13, token=2)
    script.call("a", "store.release", 14, 15, token=1)
    assert rules(check_l8(script.facts)) == {"L8"}


def test_l9_refused_though_nobody_can_own_it():
    end = TTL_S + LIVENESS_BOUND_S + 1
    script = Script().call("a", "acquire", 0, 1, token=1)
    script.call("b", "acquire", 25, 25 + end, ok=False)
    assert rules(check_l9(script.facts, healed_at=2.0)) == {"L9"}
    script.call("c", "store.renew", 30, 31, token=2)
    assert check_l9(script.facts, healed_at=2.0) == []


def test_l10_taken_over_before_its_time():
    script = Script().call("a", "store.acquire", 0, 1, token=1)
    script.call("b", "store.acquire", 5, 6, token=2)
    assert rules(check_l10(script.facts)) == {"L10"}


def test_l10_a_release_of_unknown_outcome_may_have_ended_it():
    script = Script().call("a", "store.acquire", 0, 1, token=1)
    script.call("a", "store.release", 2, 3, ok=None, token=1)
    script.call("b", "store.acquire", 5, 6, token=2)
    assert check_l10(script.facts) == []


def test_an_abandoned_grant_is_found():
    script = Script().serve(0, "acquire", "a/1", token=1).serve(9, "acquire", "b/1", ok=False)
    assert rules(check_abandoned(script.history, patience_s=1.0)) == {"L9"}
    script.serve(0.5, "release", "a/1", token=1)
    assert check_abandoned(script.history, patience_s=1.0) == []


@pytest.mark.parametrize(
    ("rule", "lines"),
    [
        ("L1", [(0, "acquire", "a", 1, True), (20, "acquire", "b", 1, True)]),
        ("L2", [(0, "acquire", "a", 5, True), (20, "acquire", "b", 4, True)]),
        ("L7", [(0, "acquire", "a", 1, True), (11, "renew", "a", 1, True)]),
        ("L7", [(0, "acquire", "a", 1, True), (5, "renew", "a", 1, False)]),
        ("L7", [(0, "renew", "a", 1, True)]),
        ("L8", [(0, "acquire", "a", 1, True), (5, "release", "b", 1, True)]),
        ("L8", [(0, "acquire", "a", 1, True), (5, "release", "a", 1, False)]),
        ("L9", [(0, "acquire", "a", 0, False)]),
        ("L10", [(0, "acquire", "a", 1, True), (5, "acquire", "b", 2, True)]),
    ],
)
def test_the_reference_store_finds(rule, lines):
    script = Script()
    for at, op, grant, token, ok in lines:
        script.serve(at, op, grant, token=token, ok=ok)
    assert rule in rules(check_served(script.history))


def test_the_reference_store_counts_slots():
    script = Script().serve(0, "acquire", "a", token=1, slot=0)
    script.serve(1, "acquire", "b", token=2, slot=1)
    assert rules(check_served(script.history)) == {"L3"}


def test_the_reference_store_follows_a_normal_life():
    script = Script().serve(0, "acquire", "a", token=1).serve(3, "renew", "a", token=1)
    script.serve(4, "acquire", "b", ok=False).serve(5, "acquire", "a", token=1)
    script.serve(6, "release", "a", token=1).serve(7, "acquire", "b", token=2)
    script.serve(8, "break", "").serve(9, "renew", "b", token=2, ok=False)
    script.serve(10, "acquire", "c", token=4)
    assert check_served(script.history) == []
