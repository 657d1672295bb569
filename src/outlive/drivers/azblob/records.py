"""What is kept with a blob: its record, as metadata, and what others may read of it. Pure.

Metadata of a blob is ASCII text of at most 8 KiB in all. The record stands there in readable form;
where a grant's metadata and state are too long for it, both go into the blob's content instead, in
the same write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from outlive.clock import instant
from outlive.drivers.azblob.ttls import lease_seconds
from outlive.errors import SchemaMismatch, StoreError
from outlive.model.lease import LeaseRecord, Tenancy
from outlive.names import Owner, Token
from outlive.serialization import decode_json, encode_json

# Names of metadata are C# identifiers; the prefix keeps ours apart from a user's own.
_PREFIX = "outlive_"

# How a record is written. A release that reads more raises it, and goes on reading less.
SCHEMA = 1

# The metadata and state of a grant stay in the blob's metadata up to this size, encoded. The key
# and the owner need up to 3.5 KiB of the 8 KiB when every character of them is escaped.
INLINE_BYTES_MAX = 4 * 1024

# Metadata of 8 KiB and state of 4 KiB, each escaped as JSON; whatever is larger was not written by
# Outlive, and is not read into memory.
CONTENT_BYTES_MAX = 128 * 1024

# Printable ASCII but for "%", which escapes; the space, of which headers keep only some; and what
# XML, in which listings come, gives a meaning.
_SAFE = "!\"#$'()*+,-./:;=?@[\\]^_`{|}~"

# A record whose end lies this far back, under a lease that somebody holds, is not that somebody's.
# Our reading of the service's clock is behind by at most a second and the way of a reply.
_STALE_US = 2_000_000

# States of a blob's lease in which nobody else can have it.
_HELD = frozenset({"leased", "breaking"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRecord:
    """The last grant of one key. ``owner`` is ``None`` once it was released or broken."""

    key: str
    token: int
    version: int
    owner: Owner | None
    ttl_us: int
    acquired_us: int
    renewed_us: int
    metadata: str = "{}"
    state: str | None = None

    def ended(self, *, token: int | None = None) -> BlobRecord:
        """The record after a release, or after a break that left ``token``."""
        return replace(
            self,
            owner=None,
            version=self.version + 1,
            token=self.token if token is None else token,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A blob as it was read: ``record`` is ``None`` if its key was never granted."""

    etag: str
    lease_state: str
    record: BlobRecord | None

    @property
    def leased(self) -> bool:
        """Whether somebody has its lease, by the service's clock."""
        return self.lease_state in _HELD

    def owner_at(self, now_us: int) -> Owner | None:
        """Who has its lease; ``None`` if nobody has, or if that one is not recorded (yet)."""
        record = self.record
        if record is None or not self.leased or record.owner is None:
            return None
        ends_us = record.renewed_us + lease_seconds(record.ttl_us) * 1_000_000
        return record.owner if now_us < ends_us + _STALE_US else None


def next_token(record: BlobRecord | None, now_us: int) -> int:
    """A token greater than all before, even where a blob was deleted and with it its token."""
    return max(0 if record is None else record.token + 1, now_us)


def encode(record: BlobRecord) -> tuple[dict[str, str], bytes | None]:
    """The metadata of a blob, and its content if the record does not fit without."""
    fields = {
        "schema": str(SCHEMA),
        "key": _escaped(record.key),
        "token": str(record.token),
        "version": str(record.version),
        "ttl_us": str(record.ttl_us),
        "acquired_us": str(record.acquired_us),
        "renewed_us": str(record.renewed_us),
    }
    if record.owner is not None:
        fields["owner"] = _escaped(record.owner)
    # A header's value should not be empty: what is, is left out; a sign tells it from none.
    texts = {"metadata": _escaped(record.metadata)} if record.metadata else {}
    if record.state is not None:
        texts["state"] = f"={_escaped(record.state)}"
    content = None
    if sum(len(text) for text in texts.values()) > INLINE_BYTES_MAX:
        document = {"metadata": record.metadata, "state": record.state}
        content = encode_json(document, "the record", limit=CONTENT_BYTES_MAX).encode()
        texts = {"content": "true"}
    return {f"{_PREFIX}{name}": text for name, text in (fields | texts).items()}, content


def is_in_content(metadata: Mapping[str, str]) -> bool:
    """Whether the blob's content must be read to know its record."""
    return metadata.get(f"{_PREFIX}content") == "true"


def decode(
    name: str, metadata: Mapping[str, str] | None, content: bytes | None
) -> BlobRecord | None:
    """The record in the metadata (and content) of the blob ``name``, or ``None`` if there is none.

    Raises:
        SchemaMismatch: A newer release wrote it.
        StoreError: There is one, and somebody has damaged it.
    """
    fields = {
        field.lower().removeprefix(_PREFIX): text
        for field, text in (metadata or {}).items()
        if field.lower().startswith(_PREFIX)
    }
    if "token" not in fields:
        return None
    try:
        _check_schema(int(fields["schema"]))
        owner, state = fields.get("owner"), fields.get("state")
        texts = (unquote(fields.get("metadata", "")), None if state is None else _unsigned(state))
        if content is not None:
            document = decode_json(content)
            texts = (document["metadata"], document["state"])
        return BlobRecord(
            key=unquote(fields["key"]),
            token=int(fields["token"]),
            version=int(fields["version"]),
            owner=None if owner is None else Owner(unquote(owner)),
            ttl_us=int(fields["ttl_us"]),
            acquired_us=int(fields["acquired_us"]),
            renewed_us=int(fields["renewed_us"]),
            metadata=texts[0],
            state=texts[1],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"the record in the blob {name!r} cannot be read ({type(error).__name__}): it was "
            "changed by another program"
        ) from error


def lease_record(seen: Seen, now_us: int) -> LeaseRecord | None:
    """What people are told about a blob, or ``None`` if its key was never granted."""
    record = seen.record
    if record is None:
        return None
    active = seen.owner_at(now_us) is not None
    ends_us = record.renewed_us + record.ttl_us
    return LeaseRecord(
        key=record.key,
        slot=0,
        limit=1,
        token=Token(record.token),
        version=record.version,
        owner=record.owner,
        active=active,
        ttl_s=record.ttl_us / 1e6,
        remaining_s=remaining_s(record, now_us) if active else 0.0,
        acquired_at=instant(record.acquired_us),
        renewed_at=instant(record.renewed_us),
        expires_at=None if record.owner is None else instant(ends_us),
        metadata=record.metadata,
        state=record.state,
        waiters=0,
    )


def remaining_s(record: BlobRecord, now_us: int) -> float:
    """How long the grant of ``record`` lasts if nobody renews it."""
    left_us = record.renewed_us + record.ttl_us - now_us
    return max(0, min(record.ttl_us, left_us)) / 1e6


def tenancy(record: LeaseRecord) -> Tenancy:
    """The entry of the present owner in a history."""
    assert record.owner is not None
    return Tenancy(
        key=record.key,
        slot=0,
        token=record.token,
        owner=record.owner,
        acquired_at=record.acquired_at,
        ended_at=None,
        ended=None,
        detail=None,
    )


def _check_schema(found: int) -> None:
    if found > SCHEMA:
        raise SchemaMismatch(
            f"a lease was written by a newer release (schema {found}, this release reads "
            f"{SCHEMA}): upgrade Outlive on this host",
            found=found,
            expected=SCHEMA,
        )


def _escaped(text: str) -> str:
    return quote(text, safe=_SAFE)


def _unsigned(text: str) -> str:
    return unquote(text.removeprefix("="))
