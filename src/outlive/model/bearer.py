"""Bearer tokens: how one looks, what is kept of it, what it allows, and the log of admin acts.

Pure. A bearer token is what a client of the HTTP API shows; it has nothing to do with the fencing
token of a grant. Its text is seen once, by the person who made it: a store holds its digest only.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from outlive.errors import InvalidName
from outlive.names import BearerId, check_namespace

# Scanners that look for leaked secrets, and people who see one, know it by this.
BEARER_PREFIX = "olt_"

# 256 bits: nobody guesses one, so that a plain digest of it needs no salt and no stretching.
SECRET_BYTES = 32
_SECRET_LENGTH = 43

# A token is made by a person and named for a list that people read.
NAME_LENGTH_MAX = 100

# Revoked and expired tokens stay in the list for a while, so that a page of it explains itself.
ENDED_KEPT_US = 90 * 86_400_000_000

# The newest acts answer who did it; what must be kept for years is sent elsewhere from the log.
ACTS_MAX = 10_000

# One page of tokens or of acts.
PAGE_MAX = 1000


class Scope(StrEnum):
    """What a bearer may do in its namespace.

    ``payload:read`` lets it see payloads, results and errors of jobs that it did not claim.
    """

    READ = "read"
    ENQUEUE = "enqueue"
    WORK = "work"
    ADMIN = "admin"
    PAYLOAD = "payload:read"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBearer:
    """A bearer token to be kept: everything but its text.

    ``ttl_us`` is counted by the store from the moment it is created; ``None`` never ends by itself.
    """

    id: BearerId
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    ttl_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerRecord:
    """What the store knows of a bearer token; ``active`` is judged by the store's clock."""

    id: BearerId
    name: str
    digest: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    active: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One admin act: who did what to what. Never holds a secret or a payload."""

    actor: str
    action: str
    subject: str
    at: datetime | None = None


def bearer_text(secret: bytes, namespace: str) -> str:
    """The text of a new token: prefix, 256 random bits, and the namespace it belongs to.

    The namespace says where to look the token up. It proves nothing: it is part of what is
    digested, so that a changed one is another token, which nobody made.
    """
    assert len(secret) == SECRET_BYTES
    encoded = urlsafe_b64encode(secret).decode().rstrip("=")
    return f"{BEARER_PREFIX}{encoded}.{check_namespace(namespace)}"


def bearer_digest(text: str) -> str:
    """What is stored of a token, and what it is found by."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def claimed_namespace(text: str) -> str | None:
    """The namespace that the text of a token names, if it looks like one at all."""
    rest = text.removeprefix(BEARER_PREFIX)
    if rest == text or rest[_SECRET_LENGTH : _SECRET_LENGTH + 1] != ".":
        return None
    try:
        return check_namespace(rest[_SECRET_LENGTH + 1 :])
    except InvalidName:
        return None
