"""Claim ids: what an HTTP worker shows to prove that it claimed an item. Pure.

A claim id names namespace, session, job, fencing token and an expiry, and is signed with a key that
is derived from the bearer token of the worker. Every request carries that token, so that any server
of a fleet can check an id, and no key is kept anywhere; who reads the store can sign nothing, and
an id that was stolen is worth nothing to another bearer.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec

from outlive.names import HostId, JobId, Token

_MAC_BYTES = 32
_KEY_LABEL = b"outlive claim key 1"


class ClaimRef(msgspec.Struct, frozen=True, array_like=True):
    """What a claim id says."""

    namespace: str
    session: HostId
    job: JobId
    queue: str
    token: Token
    expires_at_us: int


def signing_key(bearer: str) -> bytes:
    """The key of one bearer. The digest in a store does not lead to it."""
    return hmac.digest(bearer.encode(errors="surrogateescape"), _KEY_LABEL, "sha256")


def derived(key: bytes, *parts: str) -> str:
    """A name that only who has ``key`` can compute from ``parts``, the same on every server."""
    message = msgspec.json.encode(parts)
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:32]


def sign(key: bytes, claim: ClaimRef) -> str:
    """The claim id."""
    body = msgspec.json.encode(claim)
    return f"{_text(body)}.{_text(hmac.digest(key, body, 'sha256'))}"


def verify(key: bytes, namespace: str, text: str) -> ClaimRef | None:
    """What ``text`` says, if this bearer's key signed it for this namespace."""
    body_text, _, mac_text = text.partition(".")
    try:
        body, mac = _bytes(body_text), _bytes(mac_text)
    except (ValueError, binascii.Error):
        return None
    if len(mac) != _MAC_BYTES or not hmac.compare_digest(mac, hmac.digest(key, body, "sha256")):
        return None
    try:
        claim = msgspec.json.decode(body, type=ClaimRef)
    except msgspec.MsgspecError:
        return None
    return claim if claim.namespace == namespace else None


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    data = text.encode("ascii")
    decoded = urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    # Several texts decode to the same bytes; only the one that we wrote is an id.
    if _text(decoded) != text:
        raise ValueError(text)
    return decoded
