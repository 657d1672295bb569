"""The handle: what an owner may believe, and when it must stop believing."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
from datetime import UTC, datetime, timedelta

import pytest

import outlive
from outlive import LeaseExpired, LeaseLost, UsageError
from outlive.drivers.memory.lease_store import MemoryLeaseStore


@pytest.fixture
async def pair():
    """Two hosts on one store."""
    async with (
        outlive.connect("memory://pair", name="a") as a,
        outlive.connect("memory://pair", name="b") as b,
    ):
        yield a, b


async def test_a_held_key_is_refused_to_others_and_free_after_release(pair):
    a, b = pair
    lease = await a.leases.try_acquire("k", metadata={"region": "us-east"})
    assert lease is not None
    assert lease.is_held
    assert lease.token == 1
    assert lease.owner.startswith("a/")
    assert lease.metadata["region"] == "us-east"
    assert {"host", "instance", "hostname", "pid", "started_at"} <= lease.metadata.keys()
    assert await b.leases.try_acquire("k") is None
    await lease.release()
    assert not lease.is_held
    again = await b.leases.try_acquire("k")
    assert again is not None
    assert again.token == 2


async def test_release_is_idempotent_and_a_released_handle_has_no_token(pair):
    a, _ = pair
    lease = await a.leases.acquire("k")
    await lease.release()
    await lease.release()
    with pytest.raises(LeaseLost) as caught:
        _ = lease.token
    assert caught.value.reason == "released"


async def test_a_lease_without_renewal_is_lost_at_its_deadline(pair):
    a, b = pair
    lost = asyncio.Event()
    lease = await a.leases.acquire("k", ttl=0.2, auto_renew=False)
    lease.on(outlive.Lost, lambda _event: lost.set())
    await asyncio.wait_for(lost.wait(), 5)
    assert not lease.is_held
    with pytest.raises(LeaseExpired):
        lease.check()
    with pytest.raises(LeaseExpired):
        await lease.renew()
    successor = await b.leases.acquire("k", timeout=5)
    assert successor.token == 2
    assert successor.previous_owner == lease.owner
    # A release by the one who lost it must not touch the new owner.
    await lease.release()
    assert (await b.leases.get("k")).owner == successor.owner


async def test_renewal_moves_version_and_expiry_and_keeps_the_token(pair):
    a, _ = pair
    lease = await a.leases.acquire("k", ttl=10)
    token, version, expires_at = lease.token, lease.version, lease.expires_at
    await lease.renew(state={"cursor": 7})
    assert lease.token == token
    assert lease.version == version + 1
    assert lease.expires_at > expires_at
    assert lease.renewals == 1
    assert lease.state == {"cursor": 7}
    await lease.release()
    assert (await a.leases.acquire("k")).state == {"cursor": 7}


async def test_a_broken_lease_is_lost_with_the_reason(pair):
    a, b = pair
    events = []
    lease = await a.leases.acquire("k")
    a.leases.on(LeaseLost, events.append)
    ended = await b.leases.break_lease("k", reason="stuck")
    assert [info.owner for info in ended] == [lease.owner]
    with pytest.raises(outlive.Fenced) as caught:
        await lease.renew()
    assert caught.value.reason == "broken"
    await asyncio.sleep(0)
    assert [event.reason for event in events] == ["broken"]
    assert isinstance(events[0].error, outlive.Fenced)
    history = await a.leases.history("k")
    assert history[0].ended == outlive.Ended.BROKEN
    assert history[0].detail == "stuck"


async def test_a_dropped_handle_stops_renewing_and_the_log_names_the_line(pair, caplog):
    a, b = pair
    lease = await a.leases.acquire("k", ttl=0.3)
    with caplog.at_level(logging.WARNING, "outlive.leases"):
        del lease
        gc.collect()
    assert "dropped without release" in caplog.text
    assert "test_handle.py" in caplog.text
    assert await b.leases.acquire("k", timeout=5)


async def test_a_dropped_handle_of_several_keys_names_the_line_too(pair, caplog):
    leases = await pair[0].leases.acquire_all(["k1", "k2"], ttl=0.3)
    with caplog.at_level(logging.WARNING, "outlive.leases"):
        del leases
        gc.collect()
    assert caplog.text.count("test_handle.py") == 2


async def test_a_raising_handler_is_logged_and_harms_nothing(pair, caplog):
    a, _ = pair
    heard = []

    def broken(_event: object) -> None:
        raise RuntimeError("a handler's own mistake")

    async def fine(event: object) -> None:
        heard.append(event)

    lease = await a.leases.acquire("k")
    lease.on(outlive.Renewed, broken)
    lease.on(outlive.Renewed, fine)
    await lease.renew()
    await asyncio.sleep(0.01)
    assert [event.renewals for event in heard] == [1]
    assert "a handler's own mistake" in caplog.text
    assert lease.is_held


async def test_each_event_says_which_grant_and_until_when(pair):
    a, _ = pair
    heard = []
    a.leases.on(outlive.LeaseEvent, heard.append)
    before = datetime.now(UTC)
    lease = await a.leases.acquire("k", ttl=20)
    acquired_at = lease.acquired_at
    assert before <= acquired_at <= datetime.now(UTC)
    await lease.renew()
    await a.leases.break_lease("k", reason="a test of events")
    with pytest.raises(LeaseLost):
        await lease.renew()
    other = await a.leases.acquire("other")
    await other.release()
    await asyncio.sleep(0)
    renewed, lost, released = heard
    assert {type(event) for event in heard} == {outlive.Renewed, outlive.Lost, outlive.Released}
    assert [event.id for event in heard] == [lease.id, lease.id, other.id]
    assert (renewed.lease, lost.lease, released.lease) == (lease, lease, other)
    assert renewed.ttl_s == 20
    assert abs(renewed.expires_at - renewed.at - timedelta(seconds=20)) < timedelta(seconds=1)
    assert lease.acquired_at == acquired_at


async def test_an_unknown_event_is_refused(pair):
    a, _ = pair
    with pytest.raises(UsageError, match="is not a lease event"):
        a.leases.on(ValueError, print)


async def test_automatic_renewal_outlives_many_ttls(pair):
    a, b = pair
    renewed = asyncio.Queue()
    lease = await a.leases.acquire("k", ttl=0.15)
    lease.on(outlive.Renewed, renewed.put_nowait)
    for _ in range(6):
        await asyncio.wait_for(renewed.get(), 5)
        assert lease.is_held
        assert lease.remaining_s <= 0.15
    assert await b.leases.try_acquire("k") is None


async def test_closing_a_host_releases_what_it_owns():
    async with outlive.connect("memory://closing", name="b") as b:
        async with outlive.connect("memory://closing", name="a") as a:
            lease = await a.leases.acquire("k", ttl=60)
        assert not lease.is_held
        assert await b.leases.try_acquire("k") is not None


async def test_guard_says_so_where_the_backend_has_no_transactions(pair):
    a, _ = pair
    lease = await a.leases.acquire("k")
    with pytest.raises(outlive.UnsupportedByDriver):
        await lease.guard(object())


@pytest.mark.parametrize(
    "error",
    [
        outlive.LeaseHeld("k", "a/1"),
        outlive.AlreadyOwned("k", "a/1"),
        outlive.LeaseLost("k", "broken"),
        outlive.LeaseExpired("k"),
        outlive.Fenced("k"),
        outlive.AcquireTimeout("k", None, 3),
        outlive.LeaseNotFound("k"),
        outlive.SchemaMismatch("run it", found=1, expected=2),
    ],
)
def test_errors_survive_a_trip_to_another_process(error):
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert copied.__dict__ == error.__dict__


async def test_a_mistake_of_a_driver_is_a_failed_renewal_and_tried_again(pair, monkeypatch, caplog):
    a, _ = pair
    renew, mistakes = MemoryLeaseStore.renew, 0

    async def mistaken(self, *args, **kwargs):
        nonlocal mistakes
        mistakes += 1
        if mistakes < 3:
            raise ZeroDivisionError
        return await renew(self, *args, **kwargs)

    monkeypatch.setattr(MemoryLeaseStore, "renew", mistaken)
    failed, renewed = [], asyncio.Event()
    lease = await a.leases.acquire("k", ttl=3)
    lease.on(outlive.RenewFailed, failed.append)
    lease.on(outlive.Renewed, lambda _event: renewed.set())
    await asyncio.wait_for(renewed.wait(), 10)
    assert [(type(event.error), event.will_retry) for event in failed] == [
        (ZeroDivisionError, True),
        (ZeroDivisionError, True),
    ]
    assert lease.is_held
    assert "the driver failed to renew lease 'k'" in caplog.text
