"""Bearer tokens in memory.

Owns the tokens and the log of acts of one namespace; they end with the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NoReturn

from outlive.clock import Clock
from outlive.drivers.memory.rows import Space
from outlive.errors import StoreUnavailable
from outlive.model.bearer import ACTS_MAX, ENDED_KEPT_US, Act, BearerRecord, NewBearer
from outlive.names import BearerId


@dataclass(slots=True)
class AccessRows:
    """Tokens in order of creation, and the newest acts."""

    bearers: dict[BearerId, BearerRecord] = field(default_factory=dict[BearerId, BearerRecord])
    acts: deque[Act] = field(default_factory=lambda: deque[Act](maxlen=ACTS_MAX))


class MemoryTokenStore:
    """The ``TokenStore`` of one namespace. Every method is one step under the space's lock."""

    def __init__(self, space: Space, clock: Clock) -> None:
        self._space: Space | None = space
        self._clock = clock

    def close(self) -> None:
        """Let go of the rows; every later call raises ``StoreUnavailable``."""
        self._space = None

    async def create(self, bearer: NewBearer, *, actor: str) -> None:
        """Keep a token; see the port."""
        space = self._space or _closed()
        with space.lock:
            now = self._clock.now()
            rows = _rows(space)
            if bearer.id in rows.bearers:
                return
            _forget(rows, now)
            expires_at = None
            if bearer.ttl_us is not None:
                expires_at = now + timedelta(microseconds=bearer.ttl_us)
            rows.bearers[bearer.id] = BearerRecord(
                id=bearer.id,
                name=bearer.name,
                digest=bearer.digest,
                scopes=bearer.scopes,
                created_at=now,
                expires_at=expires_at,
                revoked_at=None,
                active=True,
            )
            rows.acts.append(Act(actor=actor, action="token create", subject=bearer.id, at=now))

    async def find(self, digest: str) -> BearerRecord | None:
        """The token with this digest; see the port."""
        space = self._space or _closed()
        with space.lock:
            now = self._clock.now()
            for record in _rows(space).bearers.values():
                if record.digest == digest:
                    return _judged(record, now)
        return None

    async def list(self, *, limit: int) -> Sequence[BearerRecord]:
        """Tokens, newest first; see the port."""
        space = self._space or _closed()
        with space.lock:
            now = self._clock.now()
            newest = reversed(_rows(space).bearers.values())
            return [_judged(record, now) for record in newest][: max(0, limit)]

    async def revoke(self, id: BearerId, *, actor: str) -> BearerRecord | None:  # noqa: A002
        """End a token; see the port."""
        space = self._space or _closed()
        with space.lock:
            now = self._clock.now()
            rows = _rows(space)
            record = rows.bearers.get(id)
            if record is None:
                return None
            if record.revoked_at is None:
                record = rows.bearers[id] = replace(record, revoked_at=now)
                rows.acts.append(Act(actor=actor, action="token revoke", subject=id, at=now))
            return _judged(record, now)

    async def record(self, act: Act) -> None:
        """Add to the log; see the port."""
        space = self._space or _closed()
        with space.lock:
            _rows(space).acts.append(replace(act, at=self._clock.now()))

    async def acts(self, *, limit: int) -> Sequence[Act]:
        """The log, newest first; see the port."""
        space = self._space or _closed()
        with space.lock:
            return list(reversed(_rows(space).acts))[: max(0, limit)]


def _rows(space: Space) -> AccessRows:
    if space.access is None:
        space.access = AccessRows()
    return space.access


def _judged(record: BearerRecord, now: datetime) -> BearerRecord:
    expired = record.expires_at is not None and record.expires_at <= now
    return replace(record, active=record.revoked_at is None and not expired)


def _forget(rows: AccessRows, now: datetime) -> None:
    before = now - timedelta(microseconds=ENDED_KEPT_US)
    for record in list(rows.bearers.values()):
        ends = [at for at in (record.expires_at, record.revoked_at) if at is not None]
        if ends and min(ends) < before:
            del rows.bearers[record.id]


def _closed() -> NoReturn:
    raise StoreUnavailable("the memory store is closed")
