"""The values a lease store speaks in: requests, grants, refusals, records, history.

Pure. Instants are integers in microseconds of the store's own clock only inside drivers; here a
duration carries its unit in its name, and an instant shown to people is an aware datetime.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from outlive.names import HostId, Owner, Token, WaiterId

# History explains takeovers after the fact; a hundred ended grants per key is a day of a busy
# lock, and keeps a key's history within one or two pages of any database.
HISTORY_MAX = 100

# One page of a listing: enough for a screen or a script, small enough to build inline.
LIST_LIMIT_MAX = 1000

# More slots than this is a queue, not a semaphore; every refusal looks at all slots of the key.
SEMAPHORE_LIMIT_MAX = 1024


class Ended(StrEnum):
    """Why a grant ended."""

    RELEASED = "released"
    EXPIRED = "expired"
    BROKEN = "broken"
    RESUMED = "resumed"


# Requests and grants are msgspec Structs, because every acquire makes one of each and a frozen
# dataclass takes five times as long. They refer to nothing that could refer back to them.
class AcquireRequest(msgspec.Struct, frozen=True, gc=False):
    """One attempt to own ``key``.

    ``owner`` is unique to one call of acquire and stays the same when that call retries after a
    lost reply, which is what makes acquire safe to repeat. ``queue_us`` above zero asks for a
    place in the queue when refused, kept for so long unless refreshed by another attempt that
    carries it as ``waiter``. ``resume`` takes the key over at once from any owner of the same
    host name.
    """

    key: str
    owner: Owner
    ttl_us: int
    metadata: str
    host: HostId
    limit: int = 1
    waiter: WaiterId | None = None
    queue_us: int = 0
    resume: bool = False


class Grant(msgspec.Struct, frozen=True, gc=False):
    """Proof of ownership: every later write by the owner carries it.

    ``previous_owner`` names the owner whose expired (or resumed) grant was taken over, ``None``
    when the key was free. ``state`` is the text the owners of this key keep with it; it outlives
    them all.
    """

    key: str
    slot: int
    owner: Owner
    token: Token
    version: int
    ttl_us: int
    state: str | None = None
    previous_owner: str | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A refusal: somebody else owns the key, or those who queued earlier come first.

    ``retry_in_s`` is the soonest the answer could change without anybody releasing: the owner's
    remaining time, plus the turns of those ahead in the queue. ``waiter`` is the place in the
    queue, if one was asked for. ``limit`` is the number of slots the key has now, which differs
    from the one asked for when two programs disagree about a semaphore.
    """

    key: str
    owner: str | None
    retry_in_s: float
    waiter: WaiterId | None = None
    ahead: int = 0
    limit: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """What the store knows of one key (of one slot of it, for a semaphore).

    ``owner`` is ``None`` when the key is free. An owner whose time ran out is still named here,
    with ``active`` false, until somebody takes the key.
    """

    key: str
    slot: int
    limit: int
    token: Token
    version: int
    owner: str | None
    active: bool
    ttl_s: float
    remaining_s: float
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime | None
    metadata: str
    state: str | None
    waiters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """One entry of a key's history: who owned it, from when to when, and why it ended.

    The present owner's entry has neither ``ended_at`` nor ``ended``.
    """

    key: str
    slot: int
    token: Token
    owner: str
    acquired_at: datetime
    ended_at: datetime | None
    ended: Ended | None
    detail: str | None
