"""Processes that share an etcd: killed, stopped, blocked, and the server with them."""

from __future__ import annotations

import pytest

from tests.process.actors import now
from tests.process.histories import check_history, handovers, owners_of
from tests.services.etcd import EtcdServer

pytestmark = [pytest.mark.service, pytest.mark.process]

TTL_S = 1.0
# etcd looks for expired leases twice a second; then the next in line needs its turn and a call.
GRACE_S = 0.75 + 0.5


def test_contenders_outlive_deaths_stops_and_a_crash_of_the_server(services, cast):
    server = services.start(EtcdServer())
    contenders = [
        cast.start("contender", server.url, f"contender-{seed}", "a,b", TTL_S, seed)
        for seed in range(4)
    ]
    for contender in contenders:
        contender.wait("granted")
    killed, stopped, *well = contenders
    killed.kill()
    stopped.freeze()
    server.kill()
    for contender in well:
        contender.wait("met")
    server.revive()
    revived_at = now()
    for contender in well:
        while contender.wait("granted")["asked"] < revived_at:
            continue
    # Stopped for longer than its ttl by now, or long enough to be late for everything.
    stopped.thaw()
    while stopped.wait("granted")["asked"] < revived_at:
        continue
    for contender in (stopped, *well):
        assert contender.join() == 0, contender
    check_history(contenders)
    met = [message for contender in contenders for message in contender.all("met")]
    assert {message["error"] for message in met} <= {"StoreUnavailable", "OutcomeUnknown"}
    for key in ("a", "b"):
        tokens = [token for token, _ in owners_of(contenders, key)]
        assert len(set(tokens)) == len(tokens) >= 4
        assert handovers(contenders, key) >= 2


def test_a_killed_owner_is_followed_within_the_ttl(services, cast):
    server = services.start(EtcdServer())
    owner, other = cast.owners(server.url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=TTL_S)
    other.tell("acquire", key="k", ttl=TTL_S)
    killed_at = owner.kill()
    taken = other.wait("did", do="acquire")
    waited_s = taken["at"] - killed_at
    print(f"taken over {waited_s:.3f} s after SIGKILL, ttl {TTL_S} s")
    assert waited_s <= TTL_S + GRACE_S
    assert taken["token"] > granted["token"]
    assert taken["is_held"]


def test_a_blocked_loop_keeps_its_lease_and_a_stopped_process_loses_it(services, cast):
    server = services.start(EtcdServer())
    blocked, stopped, heir = cast.owners(server.url, "blocked", "stopped", "heir")
    kept = blocked.ask("acquire", key="kept", ttl=TTL_S)
    lost = stopped.ask("acquire", key="lost", ttl=TTL_S)
    blocked.tell("block", seconds=2.5 * TTL_S)
    blocked.wait("blocking")
    heir.tell("acquire", key="lost", ttl=TTL_S)
    stopped.freeze()
    taken = heir.wait("did", do="acquire")
    assert taken["token"] > lost["token"]
    stopped.thaw()
    assert stopped.wait("lost", key="lost")["key"] == "lost"
    blocked.wait("did", do="block")
    seen = blocked.ask("look", key="kept")
    assert seen["is_held"]
    assert seen["token"] == kept["token"]
    assert blocked.all("lost") == []
