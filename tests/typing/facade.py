"""What a type checker must say about the blocking façade: the same, without await."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import outlive
from outlive import blocking
from outlive.names import Token


def connecting() -> None:
    with blocking.connect("memory://", name="web-1") as host:
        assert_type(host, blocking.Host)
        assert_type(host.leases, blocking.Leases)
        assert_type(host.health(), outlive.Health)


def acquiring(leases: blocking.Leases) -> None:
    assert_type(leases.try_acquire("report"), blocking.Lease | None)
    assert_type(leases.acquire("report", timeout=1), blocking.Lease)
    assert_type(leases.acquire_all(["a", "b"]), list[blocking.Lease])
    with leases.hold("report") as held:
        assert_type(held, blocking.Lease)
    with leases.hold_all(["a", "b"]) as several:
        assert_type(several, list[blocking.Lease])
    with leases.semaphore("gpu", limit=4) as slot:
        slot.check()


def reading(leases: blocking.Leases) -> None:
    assert_type(leases.get("report"), outlive.LeaseInfo | None)
    assert_type(leases.list(), list[outlive.LeaseInfo])
    assert_type(leases.history("report"), list[outlive.Tenancy])
    assert_type(leases.raw("report"), list[dict[str, Any]])
    assert_type(leases.break_lease("report", reason="x"), list[outlive.LeaseInfo])


def handle(lease: blocking.Lease, tx: object) -> None:
    assert_type(lease.token, Token)
    assert_type(lease.is_held, bool)
    assert_type(lease.renew(state={"position": 1}), None)
    assert_type(lease.guard(tx), None)
    assert_type(lease.release(), None)
    with lease as same:
        assert_type(same, blocking.Lease)


def listening(lease: blocking.Lease) -> None:
    def lost(event: outlive.Lost) -> None:
        assert_type(event.error, outlive.LeaseLost)

    assert_type(lease.on(outlive.Lost, lost), Callable[[], None])


def leading(leases: blocking.Leases) -> None:
    def body(lease: blocking.Lease) -> None:
        lease.check()

    def ticking(tick: outlive.Tick) -> None:
        assert_type(tick.missed, int)

    assert_type(leases.lead("scheduler", body), None)
    assert_type(leases.every(60, ticking, key="reconcile"), None)
