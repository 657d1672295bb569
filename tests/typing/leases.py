"""What a type checker must say about leases. Checked by pyright, never run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, assert_type

import outlive
from outlive.names import HostId, Owner, Token
from outlive.ports.capabilities import Capabilities


async def connecting() -> None:
    async with outlive.connect("memory://", session_ttl=timedelta(seconds=5)) as host:
        assert_type(host, outlive.Host)
    host = await outlive.connect()
    assert_type(host, outlive.Host)
    assert_type(host.leases, outlive.Leases)
    assert_type(host.name, str)
    assert_type(host.id, HostId)
    assert_type(host.capabilities, Capabilities)
    assert_type(await host.health(), outlive.Health)
    assert_type(await host.run(), None)
    assert_type(await host.close(), None)


async def acquiring(leases: outlive.Leases) -> None:
    tried = await leases.try_acquire("report", ttl=5, metadata={"region": "eu"}, auto_renew=False)
    assert_type(tried, outlive.Lease | None)
    assert_type(await leases.acquire("report", timeout=timedelta(seconds=1)), outlive.Lease)
    assert_type(await leases.acquire_all(["a", "b"], timeout=1), list[outlive.Lease])
    async with leases.hold("report", timeout=1) as held:
        assert_type(held, outlive.Lease)
    async with leases.hold_all({"a", "b"}) as several:
        assert_type(several, list[outlive.Lease])
    async with leases.semaphore("gpu", limit=4) as slot:
        assert_type(slot, outlive.Lease)
    async with await leases.acquire("report") as block:
        assert_type(block, outlive.Lease)


async def reading(leases: outlive.Leases) -> None:
    info = await leases.get("report")
    assert_type(info, outlive.LeaseInfo | None)
    assert_type(await leases.list(prefix="a/", limit=5), list[outlive.LeaseInfo])
    history = await leases.history("report")
    assert_type(history, list[outlive.Tenancy])
    assert_type(history[0].ended, outlive.Ended | None)
    assert_type(history[0].ended_at, datetime | None)
    assert_type(await leases.raw("report"), list[dict[str, Any]])
    assert_type(await leases.break_lease("report", reason="x"), list[outlive.LeaseInfo])
    assert_type(leases.owned, int)
    assert_type(leases.options, outlive.LeaseOptions)


async def handle(lease: outlive.Lease, tx: object) -> None:
    assert_type(lease.token, Token)
    number: int = lease.token
    assert_type(lease.owner, Owner)
    text: str = lease.owner
    assert_type(lease.is_held, bool)
    assert_type(lease.expires_at, datetime)
    assert_type(lease.remaining_s, float)
    assert_type(lease.metadata, dict[str, Any])
    assert_type(lease.previous_owner, str | None)
    assert_type(lease.check(), None)
    assert_type(await lease.renew(state={"position": number, "by": text}), None)
    assert_type(await lease.guard(tx), None)
    assert_type(await lease.release(), None)


def heard(event: outlive.Lost) -> None:
    assert_type(event.error, outlive.LeaseLost)
    assert_type(event.reason, str)
    assert_type(event.last_renewed_at, datetime)


async def heard_later(event: outlive.AtRisk) -> None:
    assert_type(event.remaining_s, float)


async def listening(leases: outlive.Leases, lease: outlive.Lease) -> None:
    assert_type(leases.on(outlive.Lost, heard), Callable[[], None])
    assert_type(lease.on(outlive.AtRisk, heard_later), Callable[[], None])
    assert_type(lease.on(outlive.LeaseEvent, print), Callable[[], None])


async def leading(leases: outlive.Leases) -> None:
    async def body(lease: outlive.Lease) -> None:
        lease.check()

    async def ticking(tick: outlive.Tick) -> None:
        assert_type(tick.due_at, datetime)
        assert_type(tick.missed, int)

    assert_type(await leases.lead("scheduler", body, ttl=15), None)
    assert_type(await leases.every(60, ticking, key="reconcile"), None)
