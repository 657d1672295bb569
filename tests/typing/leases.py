"""What a type checker must say about leases. Checked by pyright, never run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, assert_type

import holdfast
from holdfast.names import HostId, Owner, Token
from holdfast.ports.capabilities import Capabilities


async def connecting() -> None:
    async with holdfast.connect("memory://", session_ttl=timedelta(seconds=5)) as hf:
        assert_type(hf, holdfast.Holdfast)
    hf = await holdfast.connect()
    assert_type(hf, holdfast.Holdfast)
    assert_type(hf.leases, holdfast.Leases)
    assert_type(hf.name, str)
    assert_type(hf.id, HostId)
    assert_type(hf.capabilities, Capabilities)
    assert_type(await hf.health(), holdfast.Health)
    assert_type(await hf.run(), None)
    assert_type(await hf.close(), None)


async def acquiring(leases: holdfast.Leases) -> None:
    tried = await leases.try_acquire("report", ttl=5, metadata={"region": "eu"}, auto_renew=False)
    assert_type(tried, holdfast.Lease | None)
    assert_type(await leases.acquire("report", timeout=timedelta(seconds=1)), holdfast.Lease)
    assert_type(await leases.acquire_all(["a", "b"], timeout=1), list[holdfast.Lease])
    async with leases.hold("report", timeout=1) as held:
        assert_type(held, holdfast.Lease)
    async with leases.hold_all({"a", "b"}) as several:
        assert_type(several, list[holdfast.Lease])
    async with leases.semaphore("gpu", limit=4) as slot:
        assert_type(slot, holdfast.Lease)
    async with await leases.acquire("report") as block:
        assert_type(block, holdfast.Lease)


async def reading(leases: holdfast.Leases) -> None:
    info = await leases.get("report")
    assert_type(info, holdfast.LeaseInfo | None)
    assert_type(await leases.list(prefix="a/", limit=5), list[holdfast.LeaseInfo])
    history = await leases.history("report")
    assert_type(history, list[holdfast.Tenancy])
    assert_type(history[0].ended, holdfast.Ended | None)
    assert_type(history[0].ended_at, datetime | None)
    assert_type(await leases.raw("report"), list[dict[str, Any]])
    assert_type(await leases.break_lease("report", reason="x"), list[holdfast.LeaseInfo])
    assert_type(leases.owned, int)
    assert_type(leases.options, holdfast.LeaseOptions)


async def handle(lease: holdfast.Lease, tx: object) -> None:
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


def heard(event: holdfast.Lost) -> None:
    assert_type(event.error, holdfast.LeaseLost)
    assert_type(event.reason, str)
    assert_type(event.last_renewed_at, datetime)


async def heard_later(event: holdfast.AtRisk) -> None:
    assert_type(event.remaining_s, float)


async def listening(leases: holdfast.Leases, lease: holdfast.Lease) -> None:
    assert_type(leases.on(holdfast.Lost, heard), Callable[[], None])
    assert_type(lease.on(holdfast.AtRisk, heard_later), Callable[[], None])
    assert_type(lease.on(holdfast.LeaseEvent, print), Callable[[], None])


async def leading(leases: holdfast.Leases) -> None:
    async def body(lease: holdfast.Lease) -> None:
        lease.check()

    async def ticking(tick: holdfast.Tick) -> None:
        assert_type(tick.due_at, datetime)
        assert_type(tick.missed, int)

    assert_type(await leases.lead("scheduler", body, ttl=15), None)
    assert_type(await leases.every(60, ticking, key="reconcile"), None)
