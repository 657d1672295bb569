"""A fleet that runs flows while hosts are killed and stopped, the server crashes, replies get lost.

Whatever happens: every flow comes to its own end, no step is recorded twice, nobody runs a flow
beside its owner, and nothing is stranded.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.process.actors import Actor, now
from tests.process.flow_fleet import FlowFleet
from tests.process.stores import PostgresStore, create_schema
from tests.process.test_flow_processes import freeze
from tests.services.postgres import PostgresServer
from tests.services.proxy import FaultProxy

pytestmark = pytest.mark.process

SOAK = os.environ.get("OUTLIVE_SOAK") == "1"
FLOWS = 600 if SOAK else 60
FAULTS = 30 if SOAK else 4
TTL_S = 2.0
LIMIT_S = 600.0 if SOAK else 90.0

# Each flow: one step, a nap and a child of three steps.
STEPS, PACE_S = 3, 0.1
RESULT = sum(range(STEPS))


def load(fleet: FlowFleet, count: int, prefix: str = "flow") -> list[str]:
    """Start flows, half of them at the guest, for anybody, and half at a host, for itself."""
    names = [f"{prefix}-{number}" for number in range(count)]
    fleet.start("mixed", STEPS, PACE_S, ids=names[::2])
    fleet.start("mixed", STEPS, PACE_S, ids=names[1::2], by=fleet.hosts[-1])
    return names


def require_sound(fleet: FlowFleet, names: list[str]) -> None:
    """Wait for every end, and check everything."""
    fleet.check_nothing_stranded()
    assert fleet.results(names, LIMIT_S) == [RESULT] * len(names)
    fleet.check_owners()
    fleet.check_histories()
    fleet.check_nothing_stranded()
    repeated = sum(count - 1 for count in fleet.runs().values())
    print(f"{fleet.store.kind}: {len(fleet.ran())} runs of steps, {repeated} of them again")


def busy(fleet: FlowFleet, dice: random.Random, names: list[str]) -> Actor:
    """A host that has just begun something; the others may end all flows before it does."""
    for number in range(20):
        victim = dice.choice(fleet.hosts)
        before = len(victim.all("ran"))
        victim.linger(1.0)
        if len(victim.all("ran")) > before:
            return victim
        names += load(fleet, FLOWS, f"more-{number}")
    raise AssertionError("no host begins anything")


def load_until_busy(fleet: FlowFleet, prefix: str) -> list[str]:
    """Start flows until every host has begun some; one that is late may find none of the first."""
    names: list[str] = []
    before = {host.name: len(host.all("ran")) for host in fleet.hosts}
    for number in range(10):
        names += load(fleet, FLOWS, f"{prefix}-{number}")
        until = now() + 5.0
        while idle := [host for host in fleet.hosts if len(host.all("ran")) == before[host.name]]:
            if now() > until:
                break
            idle[0].linger(0.05)
        if not idle:
            return names
    raise AssertionError(f"it begins nothing: {idle[0]!r}")


@pytest.mark.timeout(120 + 2 * LIMIT_S)
def test_every_flow_comes_to_its_end_whoever_dies_or_stands_still(store, cast, seed):
    dice = random.Random(seed)
    fleet = FlowFleet(cast, store, hosts=3, ttl=TTL_S)
    names = load(fleet, FLOWS)
    for number in range(FAULTS):
        if all(len(host.all("ran")) == 0 for host in fleet.hosts):
            break
        victim = busy(fleet, dice, names) if number == 0 else dice.choice(fleet.hosts)
        if number % 2:
            freeze(victim, store)
            thaw_at = now() + 1.5 * TTL_S
            while now() < thaw_at:
                fleet.guest.linger(0.05)
            victim.thaw()
        else:
            victim.kill()
            fleet.hosts.remove(victim)
            fleet.hosts.append(fleet.hire())
            fleet.hosts[-1].wait("ready", limit_s=60)
    require_sound(fleet, names)


@pytest.mark.service
@pytest.mark.timeout(120 + 2 * LIMIT_S)
def test_a_crash_of_the_server_strands_and_loses_nothing(services, cast):
    server = services.start(PostgresServer(durable=True))
    url = server.create_database()
    create_schema(url)
    fleet = FlowFleet(cast, PostgresStore(url), hosts=2, ttl=2 * TTL_S)
    names: list[str] = []
    for turn in range(2):
        names += load_until_busy(fleet, f"turn-{turn}")
        server.kill_immediate()
        down_at = now()
        server.revive()
        print(f"down for {now() - down_at:.2f} s")
    require_sound(fleet, names)


@pytest.mark.service
@pytest.mark.timeout(120 + 2 * LIMIT_S)
def test_replies_that_are_lost_lose_no_flow_and_repeat_no_record(postgres_store, cast):
    with FaultProxy.for_url(postgres_store.url) as proxy:
        url = proxy.url_of(postgres_store.url)
        fleet = FlowFleet(cast, postgres_store, hosts=2, ttl=2 * TTL_S, url=url)
        names = load(fleet, FLOWS // 2)
        for _ in range(FAULTS):
            proxy.drop_reply_after(COMMIT)
            until = now() + 1.0
            while now() < until:
                fleet.guest.linger(0.2)
            proxy.pass_through()
        assert proxy.counters.triggered > 0
        require_sound(fleet, names)


# Stands in the one statement that writes the history row of a commit.
COMMIT = b"instance_history"
