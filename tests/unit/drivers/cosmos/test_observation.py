"""Observation: a key is taken after its owner's silence, by the waiter's own clock alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from outlive.drivers.cosmos.items import Item
from outlive.drivers.cosmos.lease_store import Take, Wait, decide
from outlive.drivers.cosmos.observation import Observations, silence_s
from outlive.model.lease import AcquireRequest
from outlive.model.options import CLOCK_DRIFT, LeaseOptions, plan_of
from outlive.names import HostId, Owner
from outlive.testing import ManualClock

pytestmark = pytest.mark.whitebox

TTL_US = 10_000_000
# Of the service's clock; what it is does not matter, only what passes.
WRITTEN_S = 1_000_000


def item(etag: str = "e1", owner: str | None = "a/1", host: str = "host-a") -> Item:
    return Item(
        namespace="n",
        key="k",
        owner=owner,
        host=host,
        token=7,
        version=1,
        ttl_us=TTL_US,
        sent_us=1_000_000_000,
        acquired_at=datetime(2030, 1, 1, tzinfo=UTC),
        renewed_at=datetime(2030, 1, 1, tzinfo=UTC),
        metadata="{}",
        region="",
        etag=etag,
        ts=WRITTEN_S,
    )


def observer(clock: ManualClock, *, fast: bool = False, most: int = 100) -> Observations:
    return Observations(clock, "host-b", fast=fast, skew_s=5.0, most=most)


@pytest.mark.parametrize("ttl_s", [0.1, 1.0, 30.0, 3600.0])
def test_an_observer_waits_longer_than_any_owner_believes(ttl_s):
    believes_s = plan_of(LeaseOptions(ttl=ttl_s), CLOCK_DRIFT).safe_s
    # The owner's clock runs slow and the observer's fast, each by what is allowed for.
    assert silence_s(round(ttl_s * 1e6)) / (1 + CLOCK_DRIFT) > believes_s / (1 - CLOCK_DRIFT)


def test_a_silent_owner_is_observed_for_one_ttl_from_the_first_sight():
    clock = ManualClock()
    observations = observer(clock)
    sighting = observations.see(item(), WRITTEN_S)
    assert observations.free_in_s(sighting) == pytest.approx(silence_s(TTL_US))
    clock.advance(5)
    assert observations.see(item(), WRITTEN_S) is sighting
    assert observations.free_in_s(sighting) == pytest.approx(silence_s(TTL_US) - 5)
    assert observations.remaining_s(sighting) == pytest.approx(5)
    clock.advance(silence_s(TTL_US) - 5 + 0.001)
    assert observations.free_in_s(sighting) <= 0


def test_any_change_begins_the_observation_anew():
    clock = ManualClock()
    observations = observer(clock)
    observations.see(item("e1"), WRITTEN_S)
    clock.advance(9)
    renewed = observations.see(item("e2"), WRITTEN_S + 9)
    clock.advance(9)
    assert observations.free_in_s(renewed) > 0
    # A replica that is behind shows the old form again: seen anew, and never taken for silence.
    behind = observations.see(item("e1"), WRITTEN_S + 18)
    assert observations.free_in_s(behind) == pytest.approx(silence_s(TTL_US))


def test_the_wall_clock_says_nothing():
    clock = ManualClock()
    observations = observer(clock)
    sighting = observations.see(item(), WRITTEN_S)
    before = observations.free_in_s(sighting)
    clock.jump_wall(86_400)
    assert observations.free_in_s(sighting) == before


def test_the_clocks_of_the_service_decide_only_where_that_was_asked_for():
    clock = ManualClock()
    careful, fast = observer(clock), observer(clock, fast=True)
    long_ago = WRITTEN_S + TTL_US / 1e6 + 5.0
    assert careful.free_in_s(careful.see(item(), long_ago)) > 0
    assert fast.free_in_s(fast.see(item(), long_ago)) <= 0
    # For people it has ended, in either case.
    assert careful.remaining_s(careful.see(item(), long_ago)) <= 0


def test_the_fast_path_allows_for_the_skew_of_the_service():
    clock = ManualClock()
    fast = observer(clock, fast=True)
    sighting = fast.see(item(), WRITTEN_S + TTL_US / 1e6 + 4.0)
    assert fast.free_in_s(sighting) == pytest.approx(1.0)
    # A forecast by the own clock does not decide: the service must say so.
    clock.advance(2.0)
    assert fast.free_in_s(sighting) > 0
    assert fast.free_in_s(fast.see(item(), WRITTEN_S + TTL_US / 1e6 + 6.0)) <= 0


def test_what_this_host_wrote_is_judged_from_when_it_was_sent():
    clock = ManualClock()
    observations = observer(clock)
    own = replace(item(host="host-b"), sent_us=round((clock.monotonic() - 4) * 1e6))
    sighting = observations.see(own, WRITTEN_S)
    assert observations.remaining_s(sighting) == pytest.approx(6)
    assert observations.free_in_s(sighting) == pytest.approx(6)


def test_the_memory_is_bounded_and_forgets_the_oldest():
    observations = observer(ManualClock(), most=3)
    for number in range(5):
        observations.see(replace(item(), key=str(number)), WRITTEN_S)
    assert [observations.last(str(number)) is not None for number in range(5)] == [
        *(False, False),
        *(True, True, True),
    ]


def test_a_long_listing_does_not_make_a_waiter_forget():
    clock = ManualClock()
    observations = observer(clock, most=3)
    watched = observations.see(item(), WRITTEN_S)
    for number in range(10):
        observations.see(replace(item(), key=str(number)), WRITTEN_S, glance=True)
    clock.advance(3)
    assert observations.see(item(), WRITTEN_S) is watched


def request(owner: str, *, resume: bool = False) -> AcquireRequest:
    return AcquireRequest("k", Owner(owner), TTL_US, "{}", HostId("h"), resume=resume)


def test_who_gets_a_key():
    held = item(owner="web-1/x")
    assert decide(None, request("b/1"), 0.0) == Take()
    assert decide(item(owner=None), request("b/1"), 0.0) == Take()
    assert decide(held, request("b/1"), 3.0) == Wait("web-1/x", 3.0)
    assert decide(held, request("b/1"), 0.0) == Take(previous_owner="web-1/x")
    assert decide(held, request("web-1/x"), 3.0) == Take(again=True)
    assert decide(held, request("web-1/y"), 3.0) == Wait("web-1/x", 3.0)
    assert decide(held, request("web-1/y", resume=True), 3.0) == Take(previous_owner="web-1/x")
    assert decide(held, request("web-10/y", resume=True), 3.0) == Wait("web-1/x", 3.0)
