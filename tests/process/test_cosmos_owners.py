"""Processes that share leases on Cosmos DB, and die, or stop, without a word."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.service, pytest.mark.process]

TTL_S = 1.5


@pytest.fixture
def url(cosmos_emulator):
    return cosmos_emulator.new_url()


def test_killed_owner_is_followed_after_its_silence(url, cast):
    owner, other = cast.owners(url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=TTL_S)
    assert other.provoke("acquire", key="k", timeout=0)["error"] == "LeaseHeld"
    other.tell("acquire", key="k", ttl=TTL_S)
    killed_at = owner.kill()
    taken = other.wait("did", do="acquire")
    # Never before the owner's own deadline, which its last renewal may have set shortly before.
    assert taken["at"] > killed_at
    assert taken["token"] > granted["token"]
    assert taken["is_held"]


def test_stopped_owner_wakes_up_fenced(url, cast):
    owner, other = cast.owners(url, "owner", "other")
    granted = owner.ask("acquire", key="k", ttl=TTL_S)
    owner.tell("wake_and", key="k", use="store")
    owner.wait("watching")
    owner.freeze()
    taken = other.ask("acquire", key="k", ttl=30, timeout=20)
    owner.thaw()
    assert owner.wait("did", do="wake_and")["error"] in {"LeaseExpired", "Fenced"}
    assert owner.wait("lost", key="k")["reason"] in {"expired", "fenced"}
    assert taken["token"] > granted["token"]
    assert other.ask("look", key="k")["is_held"]


def test_clean_exit_hands_over_without_waiting_for_the_ttl(url, cast):
    owner, other = cast.owners(url, "owner", "other")
    # So long a ttl that nothing but the hand-over can explain a takeover in time.
    granted = owner.ask("acquire", key="k", ttl=120)
    other.tell("acquire", key="k", ttl=TTL_S)
    assert owner.join() == 0
    taken = other.wait("did", do="acquire", limit_s=20)
    assert taken["token"] > granted["token"]


def test_hosts_that_start_together_make_one_container(url, cast):
    hosts = [cast.start("owner", url, f"host-{number}") for number in range(3)]
    for host in hosts:
        host.wait("ready")
    tokens = [host.ask("acquire", key=f"k{n}")["token"] for n, host in enumerate(hosts)]
    assert all(token > 0 for token in tokens)
