"""Whole hosts on Redis: owners that are killed, and servers that are killed under them."""

from __future__ import annotations

import pytest

from tests.process.histories import check_history, handovers
from tests.services.redis import FORGETFUL, RedisServer

pytestmark = [pytest.mark.service, pytest.mark.process]

TTL_S = 1.0
# What the next owner may need after the ttl has passed: its turn in the queue and one request.
GRACE_S = 0.5


def wait_in_queue(server: RedisServer, owner, count: int) -> None:
    while f":{count}\r" not in server.command("ZCARD", "outlive:{default}:until:k"):
        # A look at the owner is the pause between two questions to the store.
        assert owner.ask("look", key="k")["is_held"]


def test_killed_owner_is_followed_within_the_ttl(redis_server, redis_url, cast, lateness):
    owner, other = cast.owners(redis_url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=TTL_S)
    other.tell("acquire", key="k", ttl=TTL_S)
    wait_in_queue(redis_server, owner, 1)
    killed_at = owner.kill()
    taken = other.wait("did", do="acquire")
    assert taken["at"] - killed_at <= TTL_S + GRACE_S + lateness.since(killed_at)
    assert taken["token"] > granted["token"]


def test_clean_exit_hands_over_at_once(redis_server, redis_url, cast):
    owner, other = cast.owners(redis_url, "owner", "other")
    # So long a ttl that nothing but the hand-over can explain a takeover in time.
    owner.ask("acquire", key="k", ttl=30)
    other.tell("acquire", key="k", ttl=TTL_S)
    wait_in_queue(redis_server, owner, 1)
    assert owner.join() == 0
    taken = other.wait("did", do="acquire", limit_s=5)
    assert taken["at"] - owner.wait("closed")["at"] < 3.0


def test_owner_keeps_its_lease_while_the_server_restarts_with_its_log(services, cast):
    server = services.start(RedisServer())
    owner, other = cast.owners(server.url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=1.5)
    server.crash()
    server.revive()
    # Longer than the ttl, so that renewals must have passed.
    owner.linger(2.0)
    seen = owner.ask("look", key="k")
    assert (seen["is_held"], seen["token"]) == (True, granted["token"])
    assert owner.all("lost") == []
    owner.ask("release", key="k")
    assert other.ask("acquire", key="k", ttl=TTL_S)["token"] > granted["token"]


def test_stopped_owner_knows_at_once_that_it_has_lost(redis_url, cast):
    owner, other = cast.owners(redis_url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=TTL_S)
    owner.freeze()
    taken = other.ask("acquire", key="k", ttl=TTL_S)
    owner.thaw()
    assert not owner.ask("look", key="k")["is_held"]
    assert owner.provoke("renew", key="k")["error"] in {"LeaseExpired", "LeaseLost", "Fenced"}
    assert taken["token"] > granted["token"]
    assert other.ask("look", key="k")["is_held"]


# What a store that lost its records waits, and time to notice.
QUIET_S = 50.0
KEYS = ("a", "b")


def contend(cast, server: RedisServer):
    """Start contenders for all keys, and wait until they know the store."""
    contenders = [
        cast.start("contender", server.url, f"contender-{n}", ",".join(KEYS), 0.5, n)
        for n in range(4)
    ]
    for contender in contenders:
        contender.wait("ready")
    return contenders


def each_is_granted(contenders, *, times: int = 1, **limit: float) -> None:
    for contender in times * contenders:
        contender.forget("granted")
        contender.wait("granted", **limit)


def end_of(contenders) -> None:
    """End them, and judge what all of them saw."""
    for contender in contenders:
        assert contender.join() == 0, contender
    check_history(contenders, "redis")
    met = {m["error"] for contender in contenders for m in contender.all("met")}
    assert met <= {"StoreUnavailable", "OutcomeUnknown"}
    for key in KEYS:
        assert handovers(contenders, key) >= 5


def test_nobody_owns_twice_when_the_server_forgets(services, cast):
    """Loses all records once, under contenders and under an owner: half a minute has no grants."""
    server = services.start(RedisServer(settings=FORGETFUL))
    owner, other = cast.owners(server.url, "owner", "other")
    contenders = contend(cast, server)
    # A server that was just started and keeps nothing would be quiet for half a minute.
    server.command("HSET", "outlive:{default}:epoch", "until", "0")
    each_is_granted(contenders, times=3)
    granted = owner.ask("acquire", key="k", ttl=2.0)
    other.tell("acquire", key="k", ttl=2.0)
    wait_in_queue(server, owner, 1)
    server.crash()
    server.revive()
    lost = owner.wait("lost", key="k")
    taken = other.wait("did", do="acquire", limit_s=QUIET_S)
    assert lost["reason"] in {"fenced", "expired"}
    assert taken["at"] > lost["at"]
    assert taken["token"] > granted["token"]
    each_is_granted(contenders, limit_s=QUIET_S)
    end_of(contenders)


@pytest.mark.soak
def test_no_key_has_two_owners_while_a_server_with_a_log_is_killed(services, cast):
    server = services.start(RedisServer())
    contenders = contend(cast, server)
    for _ in range(3):
        each_is_granted(contenders, times=3)
        server.crash()
        server.revive()
    each_is_granted(contenders, limit_s=QUIET_S)
    end_of(contenders)
