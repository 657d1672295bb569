"""Bearer tokens in SQLite.

Owns the tokens and the log of acts. Reads pass through the writer as well: a server remembers what
it read for seconds, and a token that was just revoked must not be read from an older snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.clock import instant, instant_or_none
from outlive.drivers.sqlite.transaction import Turn
from outlive.drivers.sqlite.writer import Writer
from outlive.model.bearer import (
    ACTS_MAX,
    ENDED_KEPT_US,
    PAGE_MAX,
    Act,
    BearerRecord,
    NewBearer,
    Scope,
)
from outlive.names import BearerId

_CREATE = """
INSERT INTO outlive_bearer (namespace, id, name, digest, scopes, created_at_us, expires_at_us)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
# The earlier of both ends counts; min() of a null is null, and compares as not true.
_FORGET = """
DELETE FROM outlive_bearer
WHERE namespace = ?
  AND min(coalesce(expires_at_us, revoked_at_us), coalesce(revoked_at_us, expires_at_us)) < ?
"""
_SELECT = """
SELECT id, name, digest, scopes, created_at_us, expires_at_us, revoked_at_us
FROM outlive_bearer WHERE namespace = ?
"""
_FIND = _SELECT + "AND digest = ?"
_GET = _SELECT + "AND id = ?"
_LIST = _SELECT + "ORDER BY created_at_us DESC, id LIMIT ?"
_REVOKE = """
UPDATE outlive_bearer SET revoked_at_us = ?
WHERE namespace = ? AND id = ? AND revoked_at_us IS NULL
"""
_ACT = "INSERT INTO outlive_act (namespace, at_us, actor, action, subject) VALUES (?, ?, ?, ?, ?)"
# The newest ones of this namespace stay; the row that is found is the first to go.
_ACTS_FORGET = """
DELETE FROM outlive_act
WHERE namespace = ? AND seq <= (
    SELECT seq FROM outlive_act WHERE namespace = ? ORDER BY seq DESC LIMIT 1 OFFSET ?
)
"""
_ACTS = """
SELECT at_us, actor, action, subject FROM outlive_act
WHERE namespace = ? ORDER BY seq DESC LIMIT ?
"""


class SqliteTokenStore:
    """The ``TokenStore`` of one namespace in one file."""

    def __init__(self, writer: Writer, *, namespace: str) -> None:
        self._submit = writer.submit
        self._namespace = namespace

    async def create(self, bearer: NewBearer, *, actor: str) -> None:
        """Keep a token; see the port."""
        await self._submit(self._create, (bearer, actor))

    async def find(self, digest: str) -> BearerRecord | None:
        """The token with this digest; see the port."""
        return await self._submit(self._find, digest)

    async def list(self, *, limit: int) -> Sequence[BearerRecord]:
        """Tokens, newest first; see the port."""
        return await self._submit(self._list, limit)

    async def revoke(self, id: BearerId, *, actor: str) -> BearerRecord | None:  # noqa: A002
        """End a token; see the port."""
        return await self._submit(self._revoke, (id, actor))

    async def record(self, act: Act) -> None:
        """Add to the log; see the port."""
        await self._submit(self._record, act)

    async def acts(self, *, limit: int) -> Sequence[Act]:
        """The log, newest first; see the port."""
        return await self._submit(self._acts, limit)

    def _create(self, turn: Turn, argument: tuple[NewBearer, str]) -> None:
        bearer, actor = argument
        now = turn.wall_us
        turn.savepoint()
        turn.cursor.execute(_FORGET, (self._namespace, now - ENDED_KEPT_US))
        made = turn.cursor.execute(
            _CREATE,
            (
                *(self._namespace, bearer.id, bearer.name, bearer.digest),
                *(" ".join(bearer.scopes), now),
                None if bearer.ttl_us is None else now + bearer.ttl_us,
            ),
        ).rowcount
        if made:
            self._append(turn, Act(actor=actor, action="token create", subject=bearer.id))

    def _find(self, turn: Turn, digest: str) -> BearerRecord | None:
        row = turn.cursor.execute(_FIND, (self._namespace, digest)).fetchone()
        return None if row is None else _record_of(row, turn.wall_us)

    def _list(self, turn: Turn, limit: int) -> list[BearerRecord]:
        rows = turn.cursor.execute(_LIST, (self._namespace, _page(limit))).fetchall()
        return [_record_of(row, turn.wall_us) for row in rows]

    def _revoke(self, turn: Turn, argument: tuple[BearerId, str]) -> BearerRecord | None:
        bearer, actor = argument
        turn.savepoint()
        if turn.cursor.execute(_REVOKE, (turn.wall_us, self._namespace, bearer)).rowcount:
            self._append(turn, Act(actor=actor, action="token revoke", subject=bearer))
        row = turn.cursor.execute(_GET, (self._namespace, bearer)).fetchone()
        return None if row is None else _record_of(row, turn.wall_us)

    def _record(self, turn: Turn, act: Act) -> None:
        turn.savepoint()
        self._append(turn, act)

    def _append(self, turn: Turn, act: Act) -> None:
        values = (self._namespace, turn.wall_us, act.actor, act.action, act.subject)
        turn.cursor.execute(_ACT, values)
        turn.cursor.execute(_ACTS_FORGET, (self._namespace, self._namespace, ACTS_MAX))

    def _acts(self, turn: Turn, limit: int) -> list[Act]:
        rows = turn.cursor.execute(_ACTS, (self._namespace, _page(limit))).fetchall()
        return [
            Act(at=instant(at), actor=actor, action=action, subject=subject)
            for at, actor, action, subject in rows
        ]


def _page(limit: int) -> int:
    return max(0, min(limit, PAGE_MAX))


def _record_of(row: tuple[Any, ...], now_us: int) -> BearerRecord:
    bearer, name, digest, scopes, created, expires, revoked = row
    return BearerRecord(
        id=BearerId(bearer),
        name=name,
        digest=digest,
        scopes=tuple(Scope(scope) for scope in scopes.split()),
        created_at=instant(created),
        expires_at=instant_or_none(expires),
        revoked_at=instant_or_none(revoked),
        active=revoked is None and (expires is None or expires > now_us),
    )
