"""Rows as people see them: records and history entries, with wall-clock instants.

Pure. The store's instants are monotonic; each is shown as the wall clock's present reading, moved
by the distance between the instant and now.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta

from outlive.drivers.memory.rows import KeyRow, SlotRow
from outlive.model.lease import LeaseRecord, Tenancy
from outlive.names import Token


def record_of(row: KeyRow, slot: SlotRow, now_us: int, wall: datetime) -> LeaseRecord:
    """The record of one slot."""
    owned = slot.owner is not None
    remaining_us = max(0, slot.expires_us - now_us) if owned else 0
    return LeaseRecord(
        key=row.key,
        slot=slot.number,
        limit=row.limit,
        token=Token(slot.token),
        version=slot.version,
        owner=slot.owner,
        active=remaining_us > 0,
        ttl_s=slot.ttl_us / 1e6,
        remaining_s=remaining_us / 1e6,
        acquired_at=_shown(slot.acquired_us, now_us, wall),
        renewed_at=_shown(slot.renewed_us, now_us, wall),
        expires_at=_shown(slot.expires_us, now_us, wall) if owned else None,
        metadata=slot.metadata,
        state=row.state,
        waiters=sum(1 for place in row.places.values() if place.expires_us > now_us),
    )


def raw_of(row: KeyRow, slot: SlotRow) -> dict[str, object]:
    """The row of one slot as it is kept, beside what is kept once for the key."""
    return {"key": row.key, "limit": row.limit, "state": row.state, **asdict(slot)}


def tenancies_of(row: KeyRow, now_us: int, wall: datetime) -> list[Tenancy]:
    """The key's history, newest grant first; owners of the moment stand before ended ones."""
    present = [
        Tenancy(
            key=row.key,
            slot=slot.number,
            token=Token(slot.token),
            owner=slot.owner,
            acquired_at=_shown(slot.acquired_us, now_us, wall),
            ended_at=None,
            ended=None,
            detail=None,
        )
        for slot in sorted(row.slots, key=lambda slot: -slot.token)
        if slot.owner is not None
    ]
    past = [
        Tenancy(
            key=row.key,
            slot=ended.slot,
            token=Token(ended.token),
            owner=ended.owner,
            acquired_at=_shown(ended.acquired_us, now_us, wall),
            ended_at=_shown(ended.ended_us, now_us, wall),
            ended=ended.ended,
            detail=ended.detail,
        )
        for ended in reversed(row.ended)
    ]
    return present + past


def _shown(instant_us: int, now_us: int, wall: datetime) -> datetime:
    return wall + timedelta(microseconds=instant_us - now_us)
