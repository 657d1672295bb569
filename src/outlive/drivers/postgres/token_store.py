"""Bearer tokens in PostgreSQL.

Owns the tokens and the log of acts. Each method is one statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.clock import instant, instant_or_none
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
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

# least() passes over nulls: the earlier of both ends counts.
_CREATE = """
WITH clock AS MATERIALIZED (
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us
), forgotten AS (
    DELETE FROM {s}.bearer USING clock
    WHERE namespace = $1 AND id <> $2 AND least(expires_at_us, revoked_at_us) < now_us - $7::bigint
), made AS (
    INSERT INTO {s}.bearer (namespace, id, name, digest, scopes, created_at_us, expires_at_us)
    SELECT $1, $2, $3, $4, $5, now_us, now_us + $6::bigint FROM clock
    ON CONFLICT DO NOTHING
    RETURNING id, created_at_us
)
INSERT INTO {s}.act (namespace, at_us, actor, action, subject)
SELECT $1, created_at_us, $8, 'token create', id FROM made
"""

_SELECT = """
SELECT id, name, digest, scopes, created_at_us, expires_at_us, revoked_at_us,
    revoked_at_us IS NULL AND (
        expires_at_us IS NULL
        OR expires_at_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    ) AS active
FROM {s}.bearer WHERE namespace = $1
"""
_FIND = _SELECT + "AND digest = $2"
_LIST = _SELECT + "ORDER BY created_at_us DESC, id LIMIT $2"

# What follows sees the row as it was before, and so finds it only if it was revoked already.
_REVOKE = """
WITH revoked AS (
    UPDATE {s}.bearer
    SET revoked_at_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
    WHERE namespace = $1 AND id = $2 AND revoked_at_us IS NULL
    RETURNING id, name, digest, scopes, created_at_us, expires_at_us, revoked_at_us,
        false AS active
), recorded AS (
    INSERT INTO {s}.act (namespace, at_us, actor, action, subject)
    SELECT $1, revoked_at_us, $3, 'token revoke', id FROM revoked
)
SELECT * FROM revoked
UNION ALL
SELECT id, name, digest, scopes, created_at_us, expires_at_us, revoked_at_us, false AS active
FROM {s}.bearer WHERE namespace = $1 AND id = $2 AND revoked_at_us IS NOT NULL
"""

# The row that is found is the first to go; those written at the same moment may let one more stay.
_RECORD = """
WITH forgotten AS (
    DELETE FROM {s}.act
    WHERE namespace = $1 AND seq <= (
        SELECT seq FROM {s}.act WHERE namespace = $1
        ORDER BY seq DESC LIMIT 1 OFFSET $5
    )
)
INSERT INTO {s}.act (namespace, at_us, actor, action, subject)
VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $2, $3, $4)
"""
_ACTS = """
SELECT at_us, actor, action, subject FROM {s}.act
WHERE namespace = $1 ORDER BY seq DESC LIMIT $2
"""


class PostgresTokenStore:
    """The ``TokenStore`` of one namespace in one schema."""

    def __init__(
        self, connections: Connections, settings: PostgresSettings, namespace: str
    ) -> None:
        self._fetch = connections.fetch
        self._sql = settings.sql
        self._namespace = namespace

    async def create(self, bearer: NewBearer, *, actor: str) -> None:
        """Keep a token; see the port."""
        await self._fetch(
            self._sql(_CREATE),
            self._namespace,
            bearer.id,
            bearer.name,
            bearer.digest,
            " ".join(bearer.scopes),
            bearer.ttl_us,
            ENDED_KEPT_US,
            actor,
            write=True,
        )

    async def find(self, digest: str) -> BearerRecord | None:
        """The token with this digest; see the port."""
        rows = await self._fetch(self._sql(_FIND), self._namespace, digest, write=False)
        return _record_of(rows[0]) if rows else None

    async def list(self, *, limit: int) -> Sequence[BearerRecord]:
        """Tokens, newest first; see the port."""
        rows = await self._fetch(self._sql(_LIST), self._namespace, _page(limit), write=False)
        return [_record_of(row) for row in rows]

    async def revoke(self, id: BearerId, *, actor: str) -> BearerRecord | None:  # noqa: A002
        """End a token; see the port."""
        rows = await self._fetch(self._sql(_REVOKE), self._namespace, id, actor, write=True)
        return _record_of(rows[0]) if rows else None

    async def record(self, act: Act) -> None:
        """Add to the log; see the port."""
        await self._fetch(
            self._sql(_RECORD),
            self._namespace,
            act.actor,
            act.action,
            act.subject,
            ACTS_MAX - 1,
            write=True,
        )

    async def acts(self, *, limit: int) -> Sequence[Act]:
        """The log, newest first; see the port."""
        rows = await self._fetch(self._sql(_ACTS), self._namespace, _page(limit), write=False)
        return [
            Act(at=instant(at), actor=actor, action=action, subject=subject)
            for at, actor, action, subject in rows
        ]


def _page(limit: int) -> int:
    return max(0, min(limit, PAGE_MAX))


def _record_of(row: Any) -> BearerRecord:
    bearer, name, digest, scopes, created, expires, revoked, active = row
    return BearerRecord(
        id=BearerId(bearer),
        name=name,
        digest=digest,
        scopes=tuple(Scope(scope) for scope in scopes.split()),
        created_at=instant(created),
        expires_at=instant_or_none(expires),
        revoked_at=instant_or_none(revoked),
        active=active,
    )
