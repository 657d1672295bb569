"""A process that does not run: a blocked event loop, and one stopped by the kernel."""

from __future__ import annotations

import pytest

from tests.process.actors import now
from tests.process.stores import make_ledger, newest_token, read_ledger

pytestmark = pytest.mark.process

TTL_S = 1.0


def freeze_idle(store, actor):
    """Stop a process, but not in the middle of a commit: SQLite's lock would stop everybody."""
    for _ in range(20):
        actor.freeze()
        if store.is_writable():
            return
        # Too short a stop for the process to take notice.
        actor.thaw()
        actor.linger(0.05)
    raise AssertionError(f"always caught in a commit: {actor}")


def test_blocked_loop_keeps_its_lease_until_its_limit_and_the_log_says_where(store, cast):
    patient, limited, other, heir = cast.owners(store.url, "patient", "limited", "other", "heir")
    kept = patient.ask("acquire", key="kept", ttl=TTL_S)
    given_up = limited.ask("acquire", key="given-up", ttl=0.6, stall_limit=1.2)
    heir.tell("acquire", key="given-up", ttl=TTL_S)
    for owner in (patient, limited):
        owner.tell("block", seconds=3.5 * TTL_S)
    began = patient.wait("blocking")["at"]
    refused = 0
    while now() < began + 3 * TTL_S:
        # Each try waits a while in the queue, so that this is no busy loop.
        error = other.provoke("acquire", key="kept", timeout=0.3)
        assert error["error"] == "AcquireTimeout"
        refused += error["at"] < began + 3 * TTL_S
    check_kept(patient, kept, refused)
    check_given_up(limited, heir.wait("did", do="acquire"), given_up)


def check_kept(owner, granted, refused):
    """The keeper renewed for three times the ttl while the loop stood."""
    assert owner.wait("did", do="block")["at"] - granted["at"] >= 3 * TTL_S
    seen = owner.ask("look", key="kept")
    assert refused >= 3
    assert seen["is_held"]
    assert seen["token"] == granted["token"]
    assert seen["renewals"] >= 3
    assert owner.all("lost") == []


def check_given_up(owner, taken, granted):
    """Beyond its limit the owner lost the key while its loop still stood, and the log says why."""
    blocking, unblocked = owner.wait("blocking"), owner.wait("did", do="block")
    assert taken["token"] > granted["token"]
    assert blocking["at"] + 1.2 <= taken["at"] < unblocked["at"]
    assert owner.wait("lost", key="given-up")["reason"] == "stalled"
    assert not owner.ask("look", key="given-up")["is_held"]
    stacks = [m for m in owner.all("log", logger="outlive.host") if "blocked" in m["text"]]
    assert len(stacks) == 1
    assert "block_here" in stacks[0]["text"]


def test_first_use_after_a_stop_says_lost_and_writes_nothing(store, cast):
    make_ledger(store)
    # A process for each first use: the second use would already know.
    uses = ("token", "is_held", "guard", "store")
    successor, *stopped = cast.owners(store.url, "successor", *uses)
    tokens = {}
    for use, owner in zip(uses, stopped, strict=True):
        tokens[use] = owner.ask("acquire", key=use, ttl=TTL_S)["token"]
        owner.ask("write", key=use)
        owner.tell("wake_and", key=use, use=use)
        owner.wait("watching")
    for owner in stopped:
        freeze_idle(store, owner)
    for use in uses:
        taken = successor.ask("acquire", key=use, ttl=30, timeout=10)
        assert taken["token"] > tokens[use]
        successor.ask("write", key=use)
    for owner in stopped:
        owner.thaw()
    for use, owner in zip(uses, stopped, strict=True):
        seen = owner.wait("did", do="wake_and")
        if use == "is_held":
            assert seen["gap"] > TTL_S / 2
            assert seen["is_held"] is False
        else:
            assert seen["error"] in {"LeaseExpired", "Fenced"}, seen
        assert owner.wait("lost", key=use)["reason"] in {"expired", "fenced"}
        assert owner.provoke("write", key=use)["error"] in {"LeaseExpired", "Fenced"}
    rows = read_ledger(store)
    assert len(rows) == 2 * len(uses)
    assert [writer for _, writer in rows[len(uses) :]] == ["successor"] * len(uses)


def test_takeover_waits_for_a_guarded_transaction_of_a_stopped_owner(store, cast):
    make_ledger(store)
    owner, other = cast.owners(store.url, "owner", "other")
    token = owner.ask("acquire", key="k", ttl=TTL_S)["token"]
    owner.tell("stop_inside", key="k")
    owner.wait("watching")
    owner.freeze()
    other.tell("acquire", key="k", ttl=TTL_S, timeout=15)
    with pytest.raises(AssertionError):
        other.wait("did", do="acquire", limit_s=2 * TTL_S)
    thawed_at = now()
    owner.thaw()
    written = owner.wait("did", do="stop_inside")
    assert "error" not in written, written
    assert owner.wait("gap")["seconds"] > TTL_S
    taken = other.wait("did", do="acquire")
    assert taken["at"] > thawed_at
    # The request waited for longer than the ttl; what it won must be worth having nevertheless.
    assert taken["is_held"], taken
    assert taken["token"] == newest_token(store, "k") == token + 1
    other.ask("write", key="k")
    assert owner.provoke("write", key="k")["error"] in {"LeaseExpired", "Fenced"}
    assert read_ledger(store) == [(token, "owner"), (token + 1, "other")]


def test_cancellation_of_a_hold_comes_within_one_turn_after_a_stop(store, cast):
    # Several, because the block races the keeper's thread, which may win or lose.
    successor, *owners = cast.owners(store.url, "successor", *(f"owner-{n}" for n in range(4)))
    for number, owner in enumerate(owners):
        owner.tell("hold_and_turn", key=f"k{number}", ttl=TTL_S)
        owner.wait("holding")
        owner.wait("watching")
    for owner in owners:
        freeze_idle(store, owner)
    for number in range(len(owners)):
        assert successor.ask("acquire", key=f"k{number}", ttl=30, timeout=10)["token"] == 2
    for owner in owners:
        owner.thaw()
    seen = [owner.wait("did", do="hold_and_turn") for owner in owners]
    assert {message["reason"] for message in seen} <= {"expired", "fenced"}
    # The loop learns of the deadline in its first turn; the block sees that turn and no second one.
    assert max(message["returned"] for message in seen) <= 1, seen
