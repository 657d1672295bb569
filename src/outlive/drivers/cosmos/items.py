"""One lease as one item: how it is written, how it is read back, and what each write changes.

Pure. Owns the schema of the items. An item is never deleted: a release keeps its token, and the
next grant must get a greater one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from outlive.drivers.cosmos.item_ids import item_id, names_of
from outlive.errors import SchemaMismatch, StoreError
from outlive.model.lease import AcquireRequest, Grant, LeaseRecord
from outlive.names import Owner, Token, host_of
from outlive.serialization import decode_metadata

SCHEMA = 1

# Cosmos DB deletes an item after its `ttl`, or after the container's default one; -1 means never.
_NEVER_DELETED = -1


class Moment(NamedTuple):
    """What the clocks said just before a write was sent.

    ``sent_us`` is the writer's own monotonic clock, which only its own host can read; ``wall`` is
    for people; ``service_us`` is the service's clock as far as its last reply told.
    """

    sent_us: int
    wall: datetime
    service_us: int


class Writer(NamedTuple):
    """Who writes: one host, in one namespace, to an account that writes in one region."""

    namespace: str
    host: str
    region: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A lease as it is stored.

    ``host`` is the incarnation that wrote last and ``sent_us`` its own clock at that time: the two
    tell one write from every other, and let the host that wrote judge without a doubt. ``etag``
    and ``ts`` come from the service.
    """

    namespace: str
    key: str
    owner: str | None
    host: str
    token: int
    version: int
    ttl_us: int
    sent_us: int
    acquired_at: datetime
    renewed_at: datetime
    metadata: str
    region: str
    state: str | None = None
    break_reason: str | None = None
    etag: str = ""
    ts: int = 0

    def is_write(self, written: Item) -> bool:
        """Whether this item is what ``written`` was sent to become: its reply was lost."""
        return (
            self.host == written.host
            and self.sent_us == written.sent_us
            and self.version == written.version
            and self.token == written.token
            and self.owner == written.owner
            # A host and its keeper may write in the same microsecond.
            and self.ttl_us == written.ttl_us
            and self.state == written.state
        )

    def body(self) -> dict[str, Any]:
        """The item as it is sent."""
        given = decode_metadata(self.metadata)
        expires_at = self.renewed_at + timedelta(microseconds=self.ttl_us)
        return {
            "id": item_id(self.namespace, self.key),
            "leaseKey": self.key,
            "namespace": self.namespace,
            "leaseId": None if self.owner is None else self.owner.rpartition("/")[2],
            "ownerId": None if self.owner is None else host_of(self.owner),
            "acquiredAt": _text(self.acquired_at),
            "renewedAt": _text(self.renewed_at),
            "expiresAt": None if self.owner is None else _text(expires_at),
            "token": self.token,
            "version": self.version,
            "ttlMs": self.ttl_us / 1000,
            "hostId": self.host,
            "sentUs": self.sent_us,
            "state": self.state,
            "breakReason": self.break_reason,
            # For people and other programs; what the owner gave is the text beside it, because a
            # number beyond 2**53 does not survive as a value.
            "metadata": {
                "instanceId": self.host,
                "region": self.region,
                "hostname": given.get("hostname"),
                "startTime": given.get("started_at"),
                **given,
            },
            "metadataJson": self.metadata,
            "schema": SCHEMA,
            "ttl": _NEVER_DELETED,
        }


class _Stored(msgspec.Struct, kw_only=True, rename="camel"):
    """The fields that are read back, and their types: what a hand may have changed is checked."""

    id: str
    schema: int
    namespace: str
    lease_key: str
    owner_id: str | None
    lease_id: str | None
    host_id: str
    token: int
    version: int
    ttl_ms: float
    sent_us: int
    acquired_at: datetime
    renewed_at: datetime
    metadata: dict[str, Any]
    metadata_json: str
    state: str | None
    break_reason: str | None
    etag: str = msgspec.field(name="_etag")
    ts: int = msgspec.field(name="_ts")


def read_item(document: Mapping[str, Any]) -> Item:
    """The lease that ``document`` holds.

    Raises:
        SchemaMismatch: A newer release wrote it.
        StoreError: It is not one that Outlive wrote.
    """
    schema = document.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise SchemaMismatch(
            f"an item was written by a newer release (schema {schema}): upgrade Outlive on this "
            "host",
            found=schema,
            expected=SCHEMA,
        )
    try:
        stored = msgspec.convert(dict(document), _Stored)
        if names_of(stored.id) != (stored.namespace, stored.lease_key):
            raise ValueError("its id belongs to another lease")
    except ValueError as error:
        raise StoreError(
            f"the item {document.get('id')!r} was not written by Outlive or was changed by hand "
            f"({error}); give Outlive a container of its own"
        ) from None
    return Item(
        namespace=stored.namespace,
        key=stored.lease_key,
        owner=None if stored.owner_id is None else f"{stored.owner_id}/{stored.lease_id}",
        host=stored.host_id,
        token=stored.token,
        version=stored.version,
        ttl_us=round(stored.ttl_ms * 1000),
        sent_us=stored.sent_us,
        acquired_at=stored.acquired_at,
        renewed_at=stored.renewed_at,
        metadata=stored.metadata_json,
        region=str(stored.metadata.get("region", "")),
        state=stored.state,
        break_reason=stored.break_reason,
        etag=stored.etag,
        ts=stored.ts,
    )


def granted(
    before: Item | None, request: AcquireRequest, writer: Writer, moment: Moment, *, again: bool
) -> Item:
    """The item after ``request`` was granted; ``again`` when its owner had the key already.

    The token is greater than the last one, and never below the service's clock: should the item
    be lost with its token, the next one is greater all the same.
    """
    token = 0 if before is None else before.token
    return Item(
        namespace=writer.namespace,
        key=request.key,
        owner=request.owner,
        host=writer.host,
        token=token if again else max(token + 1, moment.service_us),
        version=1 if before is None else before.version + 1,
        ttl_us=request.ttl_us,
        sent_us=moment.sent_us,
        acquired_at=before.acquired_at if again and before is not None else moment.wall,
        renewed_at=moment.wall,
        metadata=request.metadata,
        region=writer.region,
        state=None if before is None else before.state,
        etag="" if before is None else before.etag,
    )


def renewed(
    before: Item, writer: Writer, moment: Moment, *, ttl_us: int, state: str | None
) -> Item:
    """The item after its owner renewed; ``state`` of ``None`` leaves what was there."""
    return replace(
        before,
        host=writer.host,
        version=before.version + 1,
        ttl_us=ttl_us,
        sent_us=moment.sent_us,
        renewed_at=moment.wall,
        state=before.state if state is None else state,
    )


def released(before: Item, writer: Writer, moment: Moment) -> Item:
    """The item after its owner gave it up: free, and the token kept."""
    return replace(
        before, owner=None, host=writer.host, version=before.version + 1, sent_us=moment.sent_us
    )


def broken(before: Item, writer: Writer, moment: Moment, *, reason: str) -> Item:
    """The item after somebody broke it: free, and old writes fenced by a greater token."""
    return replace(
        before,
        owner=None,
        host=writer.host,
        token=before.token + 1,
        version=before.version + 1,
        sent_us=moment.sent_us,
        break_reason=reason,
    )


def grant_of(item: Item, previous_owner: str | None) -> Grant:
    """The proof of ownership that ``item`` stands for."""
    assert item.owner is not None
    return Grant(
        item.key,
        0,
        Owner(item.owner),
        Token(item.token),
        item.version,
        item.ttl_us,
        item.state,
        previous_owner,
    )


def record_of(item: Item, remaining_s: float, now: datetime) -> LeaseRecord:
    """What people are shown of ``item``, ``remaining_s`` before its end."""
    left_s = max(0.0, remaining_s) if item.owner is not None else 0.0
    return LeaseRecord(
        key=item.key,
        slot=0,
        limit=1,
        token=Token(item.token),
        version=item.version,
        owner=item.owner,
        active=left_s > 0,
        ttl_s=item.ttl_us / 1e6,
        remaining_s=left_s,
        acquired_at=item.acquired_at,
        renewed_at=item.renewed_at,
        expires_at=None if item.owner is None else now + timedelta(seconds=remaining_s),
        metadata=item.metadata,
        state=item.state,
        waiters=0,
    )


def _text(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds")
