"""Flows of real processes that are killed, stopped and drained, on a file and on a database."""

from __future__ import annotations

import asyncio

import pytest

from outlive.connect import find_factory
from outlive.model.instance import Commit
from outlive.model.location import parse_url
from outlive.names import HostId, InstanceId, Token
from outlive.ports.driver import DriverContext
from outlive.runtime.runtime import Runtime
from tests.process.actors import now
from tests.process.flow_fleet import FlowFleet
from tests.process.job_fleet import is_writable

pytestmark = pytest.mark.process

# What is promised with default settings.
SESSION_TTL_S = 10.0
TAKE_OVER_S = SESSION_TTL_S + 1.0

# Renewed every third of it, also on a machine that is busy; short enough to be waited out.
SHORT_TTL_S = 2.0

LOOPS = ["", "uvloop"]


@pytest.mark.timeout(180)
def test_a_killed_host_s_flow_goes_on_elsewhere_within_the_ttl(store, cast, lateness):
    fleet = FlowFleet(cast, store)
    victim, other = fleet.hosts
    fleet.start("count", 4, 0.5, ids=["order"], by=victim)
    victim.wait("ran", key="order/work#2")
    dead_at = victim.kill()
    again = other.wait("ran", key="order/work#2", limit_s=60)
    took_s = again["at"] - dead_at
    print(f"{store.kind}: running elsewhere after {took_s:.2f} s")
    assert fleet.result("order") == sum(range(4))
    assert fleet.runs() == {f"order/work#{n}": 2 if n == 2 else 1 for n in range(4)}
    assert took_s <= TAKE_OVER_S + lateness.since(dead_at)
    fleet.check_owners()
    fleet.check_histories()
    fleet.check_nothing_stranded()


@pytest.mark.timeout(180)
def test_a_flow_that_a_killed_host_had_put_aside_wakes_in_time(store, cast, lateness):
    grace = {"OUTLIVE_FLOWS_PARK_GRACE": "0.1"}
    fleet = FlowFleet(cast, store, ttl=SHORT_TTL_S, env=grace)
    victim, other = fleet.hosts
    fleet.start("nap", 6.0, ids=["nap"], by=victim)
    slept_at = victim.wait("ran", key="nap/work#0")["at"]
    fleet.wait_until_put_aside("nap")
    victim.kill()
    woke = other.wait("ran", key="nap/work#1", limit_s=60)
    late_s = woke["at"] - slept_at - 6.0
    print(f"{store.kind}: woken {late_s:.2f} s late")
    assert fleet.result("nap") == 1
    # Its host was ended two seconds before: the other had time enough to look.
    assert late_s <= SHORT_TTL_S + lateness.since(slept_at)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_host_that_stood_still_is_refused_and_its_steps_are_stopped(store, cast, loop):
    fleet = FlowFleet(cast, store, ttl=SHORT_TTL_S, loop=loop)
    victim, other = fleet.hosts
    assert all(("uvloop" in host.all("ready")[0]["loop"]) == bool(loop) for host in fleet.hosts)
    fleet.start("both", 1.5, ids=["pair"], by=victim)
    both = {"pair/work#0", "pair/grind#0"}
    fleet.wait_for_runs(victim, both)
    freeze(victim, store)
    fleet.wait_for_runs(other, both)
    victim.thaw()
    told = [victim.wait("stopped", limit_s=30) for _ in range(2)]
    assert {message["kind"] for message in told} == {"async", "sync"}
    assert {message["token"] for message in told} == {1}
    assert fleet.result("pair") == 2
    assert victim.all("finished") == []
    assert not commit_as(store.url, "pair", token=1)
    fleet.check_owners()
    fleet.check_histories()
    # It lost its session, opened another and goes on.
    fleet.start("count", 2, 0.01, ids=["next"], by=victim)
    assert fleet.result("next") == 1


def freeze(victim, store) -> None:
    """Stop a host, but not in a commit, where SQLite's lock would stop everybody with it."""
    while True:
        victim.freeze()
        if is_writable(store):
            return
        victim.thaw()


def commit_as(url: str, flow: str, *, token: int) -> bool:
    """Commit as the owner of an old token would, had nothing stopped it; whether it is taken."""

    async def commit() -> bool:
        runtime, location = Runtime(), parse_url(url)
        context = DriverContext(
            clock=runtime.clock, random=runtime.random, namespace="default", host=HostId("stale")
        )
        driver = await find_factory(location.scheme).open(location, context)
        try:
            assert driver.instances is not None
            record = await driver.instances.get(InstanceId(flow))
            assert record is not None
            late = Commit(
                id=InstanceId(flow),
                token=Token(token),
                version=record.version + 1,
                commit="late",
                events="[]",
            )
            (answer,) = await driver.instances.commit([late])
            return answer.ok
        finally:
            await driver.close()

    return asyncio.run(commit())


@pytest.mark.timeout(180)
@pytest.mark.parametrize("loop", LOOPS)
def test_identical_hosts_never_run_one_flow_at_once(store, cast, loop):
    fleet = FlowFleet(cast, store, hosts=3, ttl=SHORT_TTL_S * 2, loop=loop)
    names = [f"flow-{number}" for number in range(60)]
    fleet.start("count", 3, 0.01, ids=names)
    assert fleet.results(names) == [3] * len(names)
    fleet.hear_out()
    # Nobody died, so that nothing was run twice.
    assert set(fleet.runs().values()) == {1}
    assert len(fleet.runs()) == 3 * len(names)
    assert len({message["by"] for message in fleet.ran()}) > 1
    fleet.check_owners()
    fleet.check_histories()
    fleet.check_nothing_stranded()


@pytest.mark.timeout(180)
def test_a_host_that_is_told_to_stop_hands_over_at_once(store, cast, lateness):
    fleet = FlowFleet(cast, store)
    leaver, other = fleet.hosts
    fleet.start("count", 40, 0.1, ids=["long"], by=leaver)
    leaver.wait("ran", key="long/work#1")
    leaver.terminate()
    left_at = now()
    while not (later := other.all("ran")):
        other.linger(0.5)
        assert now() < left_at + TAKE_OVER_S + lateness.since(left_at)
    handed_over_s = later[0]["at"] - left_at
    print(f"{store.kind}: handed over after {handed_over_s:.2f} s")
    assert handed_over_s < SESSION_TTL_S / 2 + lateness.since(left_at)
    assert fleet.result("long") == sum(range(40))
    # What runs when the host is told gets its grace: nothing is run twice.
    assert set(fleet.runs().values()) == {1}
    fleet.check_owners()
    fleet.check_histories()
