"""One competitor for one lock: it tries, works while it owns the lock, and tells what happened.

Owns the order of events. Speaks in dictionaries and leaves how they look to ``banners``, so that a
terminal, a script and a race of several processes hear the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outlive.clock import Clock
from outlive.errors import AcquireTimeout, LeaseHeld, LeaseLost
from outlive.host import Host
from outlive.leases.lease import Lease

KEY = "demo/competition"

# Short enough that people wait for a takeover, long enough that several renewals happen in it.
TTL_S = 10.0

# One line a second can be read while it happens.
_ITEM_S = 1.0

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Competitor:
    """Who competes, for what, and what it does when it wins.

    ``ttl_s`` of ``None`` is ten seconds, or the least that the backend accepts. ``wait_s`` above
    zero keeps a loser in line for so long, to take over.
    """

    instance: str
    region: str
    work_s: float
    key: str = KEY
    ttl_s: float | None = None
    wait_s: float = 0.0


async def compete(host: Host, competitor: Competitor, clock: Clock, tell: Tell) -> bool:
    """Try for the lock; work and release it if it was won.

    Returns false if the lock was won and then lost to others, true otherwise: not to win is no
    failure. Raises what ``acquire`` raises when the store is away.
    """
    who = {"instance": competitor.instance, "region": competitor.region, "key": competitor.key}

    def tell_of(event: str, **fields: object) -> None:
        tell({"event": event, **who, **fields})

    asked_at = clock.monotonic()
    try:
        return await _own(host, competitor, clock, tell_of, timeout_s=0.0)
    except LeaseHeld:
        present = await _present_owner(host, competitor.key)
        tell_of("refused", waits_s=competitor.wait_s, **present)
    if competitor.wait_s <= 0:
        return True
    try:
        return await _own(host, competitor, clock, tell_of, timeout_s=competitor.wait_s)
    except AcquireTimeout:
        tell_of("gave_up", waited_s=clock.monotonic() - asked_at)
        return True


async def _own(
    host: Host,
    competitor: Competitor,
    clock: Clock,
    tell_of: Callable[..., None],
    *,
    timeout_s: float,
) -> bool:
    metadata = {"instance": competitor.instance, "region": competitor.region}
    holding = host.leases.hold(
        competitor.key, timeout=timeout_s, ttl=_ttl_s(host, competitor), metadata=metadata
    )
    try:
        async with holding as lease:
            began_at = clock.monotonic()
            tell_of("acquired", **_described(lease), etag=await _etag(host, competitor.key))
            items = await _work(lease, competitor.work_s, clock, tell_of)
            renewals, version = lease.renewals, lease.version
    except LeaseLost as error:
        tell_of("lost", reason=error.reason, message=str(error))
        return False
    held_s = clock.monotonic() - began_at
    tell_of("released", items=items, held_s=held_s, renewals=renewals, version=version)
    return True


async def _work(lease: Lease, work_s: float, clock: Clock, tell_of: Callable[..., None]) -> int:
    """Do ``work_s`` seconds of work, an item a second; cancelled when the lease is lost."""
    began_at = clock.monotonic()
    items = max(1, round(work_s / _ITEM_S))
    for number in range(1, items + 1):
        await clock.sleep(began_at + work_s * number / items - clock.monotonic())
        tell_of(
            "item",
            number=number,
            items=items,
            elapsed_s=clock.monotonic() - began_at,
            renewals=lease.renewals,
            version=lease.version,
            remaining_s=lease.remaining_s,
        )
        # A lost lease is met here at the latest, between two items.
        await asyncio.sleep(0)
    return items


def _ttl_s(host: Host, competitor: Competitor) -> float:
    if competitor.ttl_s is not None:
        return competitor.ttl_s
    return max(TTL_S, host.capabilities.ttl_min_s)


def _described(lease: Lease) -> dict[str, Any]:
    return {
        "lease_id": lease.id,
        "token": lease.token,
        "version": lease.version,
        "owner": lease.owner,
        "expires_at": lease.expires_at,
        "previous_owner": lease.previous_owner,
    }


async def _present_owner(host: Host, key: str) -> dict[str, Any]:
    """Who owns ``key`` now; all ``None`` if it was given up a moment ago."""
    info = await host.leases.get(key)
    if info is None or not info.active:
        return dict.fromkeys(("owner", "owner_region", "token", "acquired_at", "remaining_s"))
    return {
        "owner": info.metadata.get("instance", info.host),
        "owner_region": info.metadata.get("region"),
        "token": info.token,
        "acquired_at": info.acquired_at,
        "remaining_s": info.remaining_s,
    }


async def _etag(host: Host, key: str) -> str | None:
    """The ETag of the stored record, on backends that have one."""
    for record in await host.leases.raw(key):
        for name, value in record.items():
            if name.lower().strip("_") == "etag":
                return str(value)
    return None
