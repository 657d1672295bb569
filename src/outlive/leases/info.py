"""What others may know of a lease: the record as the store shows it to everybody. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from outlive.model.lease import LeaseRecord
from outlive.names import Token, host_of
from outlive.serialization import decode_json, decode_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseInfo:
    """One key (one slot of it, for a semaphore), as of the moment of reading.

    ``active`` says whether somebody owned it then. An owner whose time ran out is still named,
    with ``active`` false, until somebody takes the key.
    """

    key: str
    slot: int
    limit: int
    token: Token
    version: int
    owner: str | None
    host: str | None
    active: bool
    ttl_s: float
    remaining_s: float
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime | None
    metadata: dict[str, Any]
    state: Any
    waiters: int


def info_of(record: LeaseRecord) -> LeaseInfo:
    """The public form of a stored record."""
    return LeaseInfo(
        key=record.key,
        slot=record.slot,
        limit=record.limit,
        token=record.token,
        version=record.version,
        owner=record.owner,
        host=None if record.owner is None else host_of(record.owner),
        active=record.active,
        ttl_s=record.ttl_s,
        remaining_s=record.remaining_s,
        acquired_at=record.acquired_at,
        renewed_at=record.renewed_at,
        expires_at=record.expires_at,
        metadata=decode_metadata(record.metadata),
        state=None if record.state is None else decode_json(record.state),
        waiters=record.waiters,
    )
