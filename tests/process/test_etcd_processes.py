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


def test_contenders_outlive_a_stop_and_a_crash_of_the_server(services, cast):
    server = services.start(EtcdServer())
    contenders = [
        cast.start("contender", server.url, f"contender-{seed}", "a,b", TTL_S, seed)
        for seed in range(4)
    ]
    for contender in contenders:
        contender.wait("granted")
    # None is killed here: one that dies between its release and its word of it would seem to own
    # the key still, while the next one does.
    stopped, *well = contenders
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
    check_history(contenders, "etcd")
    met = [message for contender in contenders for message in contender.all("met")]
    assert {message["error"] for message in met} <= {"StoreUnavailable", "OutcomeUnknown"}
    for key in ("a", "b"):
        tokens = [token for token, _ in owners_of(contenders, key)]
        assert len(set(tokens)) == len(tokens) >= 4
        assert handovers(contenders, key) >= 2


def test_a_blocked_loop_keeps_its_lease_and_a_dead_or_stopped_process_loses_it(etcd_server, cast):
    url = f"{etcd_server.url}?prefix=processes"
    blocked, dead, stopped, heir, other = cast.owners(
        url, "blocked", "dead", "stopped", "heir", "other"
    )
    kept = blocked.ask("acquire", key="kept", ttl=TTL_S)
    of_dead = dead.ask("acquire", key="dead", ttl=TTL_S)
    of_stopped = stopped.ask("acquire", key="stopped", ttl=TTL_S)
    heir.tell("acquire", key="dead", ttl=TTL_S)
    other.tell("acquire", key="stopped", ttl=TTL_S)
    blocked.tell("block", seconds=2.5 * TTL_S)
    blocked.wait("blocking")
    stopped.freeze()
    killed_at = dead.kill()
    taken = heir.wait("did", do="acquire")
    waited_s = taken["at"] - killed_at
    print(f"taken over {waited_s:.3f} s after SIGKILL, ttl {TTL_S} s")
    assert waited_s <= TTL_S + GRACE_S
    assert taken["token"] > of_dead["token"]
    assert other.wait("did", do="acquire")["token"] > of_stopped["token"]
    stopped.thaw()
    assert stopped.wait("lost", key="stopped")["key"] == "stopped"
    blocked.wait("did", do="block")
    seen = blocked.ask("look", key="kept")
    assert seen["is_held"]
    assert seen["token"] == kept["token"]
    assert blocked.all("lost") == []
