"""PostgreSQL crashes, and the network between it and its clients loses replies or falls silent."""

from __future__ import annotations

import pytest

from tests.process.actors import now
from tests.process.histories import check_history, handovers, owners_of
from tests.process.stores import PostgresStore, create_schema, newest_token
from tests.services.postgres import PostgresServer
from tests.services.proxy import FaultProxy

pytestmark = [pytest.mark.process, pytest.mark.service]

TTL_S = 1.0
GRACE_S = 0.5

# Words that stand in one statement of the driver each; the tests assert that they were met.
ACQUIRE = b'INSERT INTO "outlive".lease ('
RENEW = b"ttl_us = c.ttl_us, renewed_at"
# Ends the message: the statement that begins says READ COMMITTED.
COMMIT = b"COMMIT\x00"


def test_clients_outlive_a_crash_of_the_server(services, cast):
    server = services.start(PostgresServer(durable=False))
    url = server.create_database()
    create_schema(url)
    contenders = [
        cast.start("contender", url, f"contender-{seed}", "a,b", TTL_S, seed) for seed in range(4)
    ]
    (keeper,) = cast.owners(url, "keeper")
    kept = keeper.ask("acquire", key="kept", ttl=30)
    for contender in contenders:
        contender.wait("granted")
    crashed_at = now()
    server.kill_immediate()
    # Nobody is spared: each client meets the outage itself.
    for contender in contenders:
        contender.wait("met")
    server.revive()
    revived_at = now()
    for contender in contenders:
        while contender.wait("granted")["asked"] < revived_at:
            continue
    for contender in contenders:
        assert contender.join() == 0, contender
    print(f"down for {revived_at - crashed_at:.2f} s")
    check_history(contenders, "postgres")
    met = [message for contender in contenders for message in contender.all("met")]
    assert all(message["typed"] for message in met)
    assert {message["error"] for message in met} <= {"StoreUnavailable", "OutcomeUnknown"}
    for key in ("a", "b"):
        tokens = [token for token, _ in owners_of(contenders, key)]
        assert len(set(tokens)) == len(tokens) >= 4
        assert handovers(contenders, key) >= 2
        assert newest_token(PostgresStore(url), key) >= max(tokens)
    # A lease that is longer than the outage outlives it, under the same token.
    seen = keeper.ask("renew", key="kept")
    assert seen["is_held"]
    assert seen["token"] == kept["token"] == newest_token(PostgresStore(url), "kept")
    assert keeper.all("lost") == []


@pytest.fixture
def proxy(postgres_store):
    with FaultProxy.for_url(postgres_store.url) as running:
        yield running


@pytest.fixture
def far_and_near(postgres_store, proxy, cast):
    """One host behind the proxy, one beside the server."""
    far = cast.start("owner", proxy.url_of(postgres_store.url), "far")
    (near,) = cast.owners(postgres_store.url, "near")
    far.wait("ready")
    return far, near


@pytest.mark.parametrize(
    ("needle", "options"),
    [(ACQUIRE, {}), (COMMIT, {"limit": 2})],
    ids=["statement", "commit"],
)
def test_acquire_whose_reply_is_lost_gives_the_grant_it_made(
    postgres_store, proxy, far_and_near, needle, options
):
    far, near = far_and_near
    proxy.drop_reply_after(needle)
    granted = far.ask("acquire", key="k", ttl=TTL_S, **options)
    assert proxy.counters.triggered == proxy.counters.cut == 1
    # The grant was made before the reply was lost; asking again found it and made no second one.
    assert granted["token"] == 1 == newest_token(postgres_store, "k")
    assert granted["version"] >= 2
    assert far.ask("renew", key="k")["is_held"]
    far.ask("release", key="k")
    taken = near.ask("acquire", key="k", timeout=TTL_S, **options)
    assert taken["token"] == 2


def test_acquire_that_never_hears_again_is_unknown_and_does_not_leak(
    postgres_store, proxy, far_and_near, lateness
):
    far, near = far_and_near
    # The client asks again within milliseconds, and may do so before the network is gone.
    for key in ("a", "b", "c", "d", "e"):
        proxy.drop_reply_after(ACQUIRE)
        cuts = proxy.counters.cut
        far.tell("try_acquire", key=key, ttl=TTL_S)
        proxy.wait_for(lambda counters, cuts=cuts: counters.cut > cuts)
        proxy.refuse()
        cut_at = now()
        proxy.reset()
        answer = far.wait("did", do="try_acquire")
        if "error" in answer:
            break
        assert answer["token"] == 1 == newest_token(postgres_store, key)
    taken = near.ask("acquire", key=key, timeout=10)
    print(f"free {taken['at'] - cut_at:.3f} s after the last reply was lost, ttl {TTL_S} s")
    assert answer["error"] == "OutcomeUnknown", answer
    assert taken["token"] == 2
    assert taken["at"] - cut_at <= TTL_S + GRACE_S + lateness.since(cut_at)
    proxy.pass_through()
    assert far.ask("acquire", key="other", timeout=10)["is_held"]


def test_renewal_whose_reply_is_lost_is_made_again(postgres_store, proxy, far_and_near):
    far, near = far_and_near
    ttl_s = 1.5
    granted = far.ask("acquire", key="k", ttl=ttl_s)
    proxy.drop_reply_after(RENEW)
    proxy.wait_for(lambda counters: counters.cut == 1)
    assert near.provoke("acquire", key="k", timeout=1.2 * ttl_s)["error"] == "AcquireTimeout"
    seen = far.ask("look", key="k")
    assert seen["is_held"]
    assert seen["renewals"] >= 2
    # The renewal that nobody heard of was applied: the record is one version ahead of the count.
    assert seen["version"] > seen["renewals"] + granted["version"]
    assert seen["token"] == granted["token"] == newest_token(postgres_store, "k")
    assert far.all("lost") == []


def test_silent_network_that_returns_in_time_costs_no_lease(proxy, far_and_near):
    far, _ = far_and_near
    ttl_s = 4.0
    granted = far.ask("acquire", key="k", ttl=ttl_s)
    proxy.black_hole()
    # The first renewal is due after a third of the ttl, and abandoned after another third.
    proxy.wait_for(lambda counters: counters.held >= 1)
    while "renewal" not in far.wait("log")["text"]:
        continue
    proxy.pass_through()
    failed = [m for m in far.all("log") if "renewal" in m["text"] and "failed" in m["text"]]
    version = far.ask("renew", key="k")["version"]
    seen = far.ask("look", key="k")
    assert failed
    assert seen["is_held"]
    assert version > granted["version"]
    assert seen["token"] == granted["token"]
    assert far.all("lost") == []


def test_silent_network_ends_belief_before_others_own_the_key(proxy, far_and_near, lateness):
    far, near = far_and_near
    granted = far.ask("acquire", key="k", ttl=TTL_S)
    near.tell("acquire", key="k", ttl=TTL_S)
    proxy.black_hole()
    silent_at = now()
    taken = near.wait("did", do="acquire")
    lost = far.wait("lost", key="k")
    print(f"lost {taken['at'] - lost['at']:.3f} s before the next owner, ttl {TTL_S} s")
    assert proxy.counters.held >= 1
    assert lost["reason"] == "expired"
    assert lost["at"] <= taken["at"]
    assert taken["at"] - silent_at <= TTL_S + GRACE_S + lateness.since(silent_at)
    assert taken["token"] == granted["token"] + 1
    proxy.pass_through()
    assert far.provoke("renew", key="k")["error"] == "LeaseExpired"
    assert far.provoke("acquire", key="k", timeout=0)["error"] == "LeaseHeld"
    assert near.ask("look", key="k")["is_held"]
