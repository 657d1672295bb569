"""Folders as people see them: records, history entries, and the stored values themselves.

Pure. Instants come from the wall clocks of the hosts that wrote them, because etcd tells no time;
what is left of a grant comes from etcd, in whole seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from outlive.drivers.etcd.folder import EndedValue, Folder, Slot
from outlive.drivers.etcd.keys import Names
from outlive.drivers.etcd.operations import Stored
from outlive.model.lease import LeaseRecord, Tenancy
from outlive.names import Token


def remaining_s(seconds_left: int, ttl_s: float) -> float:
    """How long a grant may still last. etcd rounds down, so a second is added, up to the ttl."""
    return 0.0 if seconds_left < 0 else min(ttl_s, seconds_left + 1.0)


def record_of(folder: Folder, slot: Slot, seconds_left: int, now: datetime) -> LeaseRecord:
    """The record of one slot; ``seconds_left`` is below 0 when its grant does not last."""
    value = slot.value
    ttl_s = value.ttl_us / 1e6
    left_s = remaining_s(seconds_left, ttl_s) if slot.live is not None else 0.0
    acquired_at = instant(value.acquired_us)
    renewed_at, expires_at = acquired_at, None
    if left_s > 0:
        expires_at = now + timedelta(seconds=left_s)
        renewed_at = max(acquired_at, expires_at - timedelta(seconds=ttl_s))
    elif value.owner is not None:
        expires_at = acquired_at + timedelta(seconds=ttl_s)
    return LeaseRecord(
        key=folder.key,
        slot=slot.number,
        limit=folder.limit,
        token=Token(slot.token),
        version=value.version,
        owner=value.owner,
        active=left_s > 0,
        ttl_s=ttl_s,
        remaining_s=left_s,
        acquired_at=acquired_at,
        renewed_at=renewed_at,
        expires_at=expires_at,
        metadata=value.metadata,
        state=folder.state,
        waiters=len(folder.places),
    )


def tenancies_of(folder: Folder, ended: Sequence[tuple[int, EndedValue]]) -> list[Tenancy]:
    """The key's history, newest grant first; owners of the moment stand before ended ones."""
    present = [
        Tenancy(
            key=folder.key,
            slot=slot.number,
            token=Token(slot.token),
            owner=slot.value.owner,
            acquired_at=instant(slot.value.acquired_us),
            ended_at=None,
            ended=None,
            detail=None,
        )
        for slot in sorted(folder.slots, key=lambda slot: -slot.token)
        if slot.value.owner is not None
    ]
    past = [
        Tenancy(
            key=folder.key,
            slot=slot,
            token=Token(entry.token),
            owner=entry.owner,
            acquired_at=instant(entry.acquired_us),
            ended_at=instant(entry.ended_us),
            ended=entry.ended,
            detail=entry.detail,
        )
        for slot, entry in ended
    ]
    return present + past


def raw_of(names: Names, folder: Folder, stored: Sequence[Stored]) -> list[Mapping[str, object]]:
    """What etcd holds, by slot: the slot's own keys, and those that all slots share."""
    shown: dict[str, dict[str, object]] = {item.key.decode(): _shown(item) for item in stored}
    shared = {
        name: value
        for name, value in shown.items()
        if b"\tslot\t" not in name.encode() and b"\tlive\t" not in name.encode()
    }
    found: list[Mapping[str, object]] = []
    for slot in folder.slots:
        own = [names.slot(folder.key, slot.number)]
        if slot.live is not None:
            own.append(slot.live.name)
        found.append({**{name.decode(): shown[name.decode()] for name in own}, **shared})
    return found


def _shown(item: Stored) -> dict[str, object]:
    return {
        "value": item.value.decode(errors="replace"),
        "create_revision": item.created,
        "mod_revision": item.modified,
        "lease": f"{item.lease:x}" if item.lease else None,
    }


def instant(microseconds: int) -> datetime:
    """A stored instant."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC)


def microseconds(moment: datetime) -> int:
    """An instant to be stored."""
    return round(moment.timestamp() * 1e6)
