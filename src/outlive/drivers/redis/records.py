"""What the scripts answer, as the values of the port. Pure.

Instants are microseconds of the server's clock since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from outlive.clock import instant
from outlive.model.lease import Ended, LeaseRecord, Tenancy
from outlive.names import Token

# Fields of the key before the records of its slots, as describe() in records.lua gives them.
_HEAD = 3


def records_of(key: str, now_us: int, found: list[Any] | None) -> list[LeaseRecord]:
    """The records of ``key`` in slot order; ``found`` is what ``describe`` gave."""
    if found is None:
        return []
    limit, waiters, state = found[:_HEAD]
    return [_record(key, now_us, (limit, waiters, state), slot) for slot in found[_HEAD:]]


def _record(key: str, now_us: int, head: tuple[int, int, str | None], slot: Any) -> LeaseRecord:
    number, owner, token, version, ttl, expires, acquired, renewed, metadata = slot
    remaining_us = 0 if owner is None else max(0, int(expires) - now_us)
    return LeaseRecord(
        key=key,
        slot=number,
        limit=head[0],
        token=Token(int(token)),
        version=int(version),
        owner=owner,
        active=remaining_us > 0,
        ttl_s=int(ttl) / 1e6,
        remaining_s=remaining_us / 1e6,
        acquired_at=instant_of(acquired),
        renewed_at=instant_of(renewed),
        expires_at=None if owner is None else instant_of(expires),
        metadata=metadata,
        state=head[2],
        waiters=head[1],
    )


def tenancies_of(
    key: str, now_us: int, found: list[Any] | None, ended: list[str], limit: int
) -> list[Tenancy]:
    """The history of ``key``, newest grant first; owners of the moment before ended ones."""
    present = [
        Tenancy(
            key=key,
            slot=record.slot,
            token=record.token,
            owner=record.owner,
            acquired_at=record.acquired_at,
            ended_at=None,
            ended=None,
            detail=None,
        )
        for record in records_of(key, now_us, found)
        if record.owner is not None
    ]
    present.sort(key=lambda entry: -entry.token)
    return [*present, *(_tenancy(key, entry) for entry in ended)][:limit]


def _tenancy(key: str, entry: str) -> Tenancy:
    slot, token, acquired, ended, why, owner, detail = entry.split("\n", 6)
    return Tenancy(
        key=key,
        slot=int(slot),
        token=Token(int(token)),
        owner=owner,
        acquired_at=instant_of(acquired),
        ended_at=instant_of(ended),
        ended=Ended(why),
        detail=detail or None,
    )


def raw_of(fields: list[str]) -> list[Mapping[str, Any]]:
    """The stored fields of a key, one mapping per slot; those of the key itself are in each."""
    stored = dict(zip(fields[::2], fields[1::2], strict=True))
    shared = {name: value for name, value in stored.items() if ":" not in name}
    return [
        {**shared, **{name: value for name, value in stored.items() if name.endswith(f":{slot}")}}
        for slot in range(int(stored.get("slots", 0)))
    ]


def instant_of(us: str) -> datetime:
    """The instant that the store wrote as microseconds since 1970."""
    return instant(int(us))
