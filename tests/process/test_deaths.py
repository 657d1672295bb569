"""Owners that end: killed, forgotten, closed in order. The next waits no longer than it must."""

from __future__ import annotations

import re

import pytest

pytestmark = pytest.mark.process

TTL_S = 1.0
# What the next owner may need after the ttl has passed: its turn in the queue and one request.
GRACE_S = 0.5


def wait_in_queue(store, owner, count, key="k"):
    """Return when ``count`` others wait for the owner's key."""
    table = "outlive_waiter" if store.kind == "sqlite" else "outlive.waiter"
    while store.ask(f"SELECT count(*) FROM {table} WHERE key = '{key}'") != [(count,)]:
        # A look at the owner is the pause between two questions to the store.
        assert owner.ask("look", key=key)["is_held"]


def queued(store, owner, *others, key="k", ttl=TTL_S):
    """``owner`` owns the key and the others stand in its queue, in this order; gives the grant."""
    granted = owner.ask("acquire", key=key, ttl=ttl)
    for count, other in enumerate(others, 1):
        other.tell("acquire", key=key, ttl=TTL_S)
        wait_in_queue(store, owner, count, key)
    return granted


def test_killed_owner_is_followed_within_the_ttl(store, cast, lateness):
    owner, other, dead, second = cast.owners(store.url, "owner", "other", "dead", "second")
    granted = queued(store, owner, other)
    # Of this key the first in the queue dies as well, and must be passed over.
    queued(store, owner, dead, second, key="dead-head")
    dead.kill()
    killed_at = owner.kill()
    for successor in (other, second):
        taken = successor.wait("did", do="acquire")
        waited_s = taken["at"] - killed_at
        print(f"{store.kind}: taken over {waited_s:.3f} s after SIGKILL, ttl {TTL_S} s")
        assert waited_s <= TTL_S + GRACE_S + lateness.since(killed_at)
        assert taken["token"] == granted["token"] + 1
        assert taken["is_held"]
    assert owner.process.returncode == -9


def test_dropped_handle_stops_renewing_and_the_log_names_its_line(store, cast, lateness):
    owner, other = cast.owners(store.url, "owner", "other")
    granted = queued(store, owner, other)
    dropped = owner.ask("drop", key="k")
    taken = other.wait("did", do="acquire")
    waited_s = taken["at"] - dropped["at"]
    print(f"{store.kind}: taken over {waited_s:.3f} s after the drop, ttl {TTL_S} s")
    assert waited_s <= TTL_S + GRACE_S + lateness.since(dropped["at"])
    assert taken["token"] == granted["token"] + 1
    (line,) = [m["text"] for m in owner.all("log") if "dropped without release" in m["text"]]
    assert re.search(r"acquired at \S*programs/owner\.py:\d+", line), line
    # The process itself is well, and may ask again.
    assert owner.provoke("acquire", key="k", timeout=0)["error"] == "LeaseHeld"


def test_clean_exit_hands_over_at_once(store, cast):
    owner, other = cast.owners(store.url, "owner", "other")
    # So long a ttl that nothing but the hand-over can explain a takeover in time.
    granted = queued(store, owner, other, ttl=30)
    assert owner.join() == 0
    taken = other.wait("did", do="acquire", limit_s=5)
    closed = owner.wait("closed")
    print(f"{store.kind}: taken over {taken['at'] - closed['at']:+.3f} s after the close")
    assert taken["at"] - closed["at"] < 3.0
    assert taken["token"] == granted["token"] + 1
    assert other.all("lost") == []
