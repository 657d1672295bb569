"""Another boot or time namespace: a foreign owner is observed for one ttl, never cut short."""

from __future__ import annotations

from pathlib import Path

from outlive.model.lease import Grant, Held
from outlive.model.session import HostSession
from outlive.names import HostId
from outlive.testing import ManualClock
from tests.unit.drivers.sqlite.support import ask, open_store

TTL_S = 10.0
TTL_US = 10_000_000


async def test_a_foreign_owner_is_observed_for_one_ttl(tmp_path: Path) -> None:
    theirs, ours = ManualClock(), ManualClock()
    theirs.advance(1_000_000)
    before = await open_store(tmp_path, domain="boot-1", clock=theirs)
    first = await before.leases.acquire(ask("key", "a/1", TTL_US))
    assert isinstance(first, Grant)
    after = await open_store(tmp_path, "host-2", domain="boot-2", clock=ours)
    held = await after.leases.acquire(ask("key", "b/1", TTL_US))
    assert isinstance(held, Held)
    assert (held.owner, held.retry_in_s) == ("a/1", TTL_S)
    ours.advance(TTL_S / 2)
    held = await after.leases.acquire(ask("key", "b/1", TTL_US))
    assert isinstance(held, Held)
    assert held.retry_in_s == TTL_S / 2
    assert (await after.leases.get("key"))[0].remaining_s == TTL_S / 2
    ours.advance(TTL_S / 2)
    taken = await after.leases.acquire(ask("key", "b/1", TTL_US))
    assert isinstance(taken, Grant)
    assert (taken.token, taken.previous_owner) == (first.token + 1, "a/1")
    await before.close()
    await after.close()


async def test_a_renewal_begins_the_observation_again(tmp_path: Path) -> None:
    theirs, ours = ManualClock(), ManualClock()
    before = await open_store(tmp_path, domain="boot-1", clock=theirs)
    first = await before.leases.acquire(ask("key", "a/1", TTL_US))
    assert isinstance(first, Grant)
    after = await open_store(tmp_path, "host-2", domain="boot-2", clock=ours)
    for _ in range(5):
        assert isinstance(await after.leases.acquire(ask("key", "b/1", TTL_US)), Held)
        ours.advance(TTL_S * 0.9)
        first = await before.leases.renew(first, TTL_US)
    ours.advance(TTL_S * 2)
    # Unchanged for two ttls, but seen in this version for the first time only now.
    assert isinstance(await after.leases.acquire(ask("key", "b/1", TTL_US)), Held)
    await before.leases.release(first)
    assert isinstance(await after.leases.acquire(ask("key", "b/1", TTL_US)), Grant)
    await before.close()
    await after.close()


async def test_an_expiry_far_in_the_past_of_another_clock_means_nothing(tmp_path: Path) -> None:
    theirs, ours = ManualClock(), ManualClock()
    ours.advance(1_000_000)
    before = await open_store(tmp_path, domain="boot-1", clock=theirs)
    await before.leases.acquire(ask("key", "a/1", TTL_US))
    after = await open_store(tmp_path, "host-2", domain="boot-2", clock=ours)
    assert isinstance(await after.leases.acquire(ask("key", "b/1", TTL_US)), Held)
    assert (await after.leases.get("key"))[0].active
    await before.close()
    await after.close()


async def test_semaphores_observe_too(tmp_path: Path) -> None:
    clock = ManualClock()
    before = await open_store(tmp_path, domain="boot-1", clock=clock)
    for number in range(2):
        await before.leases.acquire(ask("gpu", f"a/{number}", TTL_US, limit=2))
    after = await open_store(tmp_path, "host-2", domain="boot-2", clock=clock)
    assert isinstance(await after.leases.acquire(ask("gpu", "b/1", TTL_US, limit=2)), Held)
    clock.advance(TTL_S)
    taken = await after.leases.acquire(ask("gpu", "b/1", TTL_US, limit=2))
    assert isinstance(taken, Grant)
    assert taken.token == 3
    await before.close()
    await after.close()


async def test_a_foreign_session_is_observed_before_it_is_reaped(tmp_path: Path) -> None:
    theirs, ours = ManualClock(), ManualClock()
    ours.advance(1_000_000)
    before = await open_store(tmp_path, domain="boot-1", clock=theirs)
    session = HostSession(id=HostId("old"), name="old", ttl_us=TTL_US, metadata="{}")
    await before.hosts.open(session)
    after = await open_store(tmp_path, "host-2", domain="boot-2", clock=ours)
    assert await after.hosts.reap(limit=10) == []
    ours.advance(TTL_S * 0.9)
    await before.hosts.renew(session.id, TTL_US)
    ours.advance(TTL_S * 0.9)
    assert await after.hosts.reap(limit=10) == []
    ours.advance(TTL_S)
    assert [reaped.id for reaped in await after.hosts.reap(limit=10)] == ["old"]
    assert await after.hosts.reap(limit=10) == []
    await before.close()
    await after.close()
