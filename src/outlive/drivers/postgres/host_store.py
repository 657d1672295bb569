"""Host sessions in PostgreSQL: one row per living process.

Owns the rows of sessions. An ended session keeps its row for a while, as the proof that its id
was used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.errors import Fenced, LeaseExpired
from outlive.model.session import HostSession
from outlive.names import HostId

# One screen of hosts; a fleet larger than this reads on in pages of its own making.
_LIMIT_MAX = 1000

# The same id may open again while it lives, because the first reply may have been lost.
_OPEN = """
INSERT INTO {s}.host AS h (namespace, id, name, ttl_us, metadata, started_at, expires_at)
VALUES ($1, $2, $3, $4::bigint, $5, clock_timestamp(),
    clock_timestamp() + $4::bigint * interval '1 microsecond')
ON CONFLICT (namespace, id) DO UPDATE
SET name = $3, ttl_us = $4::bigint, metadata = $5,
    expires_at = clock_timestamp() + $4::bigint * interval '1 microsecond'
WHERE h.ended_at IS NULL AND h.expires_at > clock_timestamp()
RETURNING h.id
"""

# Strict: a session whose time ran out never revives; a peer may be reaping it.
_RENEW = """
UPDATE {s}.host SET ttl_us = $3::bigint,
    expires_at = clock_timestamp() + $3::bigint * interval '1 microsecond'
WHERE namespace = $1 AND id = $2 AND ended_at IS NULL AND expires_at > clock_timestamp()
RETURNING id
"""

_REFUSAL = """
SELECT ended_at IS NULL AS late FROM {s}.host WHERE namespace = $1 AND id = $2
"""

# Locked as reaping locks it: a plain update would pass by the claims under way, which hold the row
# FOR KEY SHARE, and whoever then takes back what the session claimed would not see them.
_CLOSE = """
WITH mine AS MATERIALIZED (
    SELECT id FROM {s}.host WHERE namespace = $1 AND id = $2 AND ended_at IS NULL
    FOR UPDATE
)
UPDATE {s}.host h SET ended_at = clock_timestamp() FROM mine
WHERE h.namespace = $1 AND h.id = mine.id
"""

# Ends what is late under its row lock: the condition is judged again on the newest version, so a
# session that renewed in between lives, and two reapers never get the same one. Ended sessions
# older than a week go with it; ids are random, and nobody retries an open for a week.
_REAP = """
WITH late AS MATERIALIZED (
    SELECT id FROM {s}.host
    WHERE namespace = $1 AND ended_at IS NULL AND expires_at <= clock_timestamp()
    ORDER BY id LIMIT $2
    FOR UPDATE SKIP LOCKED
), forgotten AS (
    DELETE FROM {s}.host
    WHERE namespace = $1 AND ended_at < clock_timestamp() - interval '7 days'
)
UPDATE {s}.host h SET ended_at = clock_timestamp() FROM late
WHERE h.namespace = $1 AND h.id = late.id
RETURNING h.id, h.name, h.ttl_us, h.metadata, h.started_at, 0::float8 AS remaining_s,
    false AS alive
"""

_LIVING = """
SELECT id, name, ttl_us, metadata, started_at,
    extract(epoch FROM expires_at - clock_timestamp())::float8 AS remaining_s,
    expires_at > clock_timestamp() AS alive
FROM {s}.host WHERE namespace = $1 AND ended_at IS NULL
"""
_GET = _LIVING + "AND id = $2"
_LIST = _LIVING + "ORDER BY started_at, id LIMIT $2"


class PostgresHostStore:
    """The ``HostStore`` of one namespace in one schema."""

    def __init__(
        self, connections: Connections, settings: PostgresSettings, namespace: str
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._open = settings.sql(_OPEN)
        self._renew = settings.sql(_RENEW)
        self._refusal = settings.sql(_REFUSAL)
        self._close = settings.sql(_CLOSE)
        self._reap = settings.sql(_REAP)
        self._get = settings.sql(_GET)
        self._list = settings.sql(_LIST)

    async def open(self, session: HostSession) -> None:
        """Begin a session; see the port."""
        rows = await self._connections.fetch(
            self._open,
            self._namespace,
            session.id,
            session.name,
            session.ttl_us,
            session.metadata,
            write=True,
        )
        if not rows:
            raise Fenced(f"host/{session.id}")

    async def renew(self, host: HostId, ttl_us: int) -> None:
        """Keep a session alive; see the port."""
        rows = await self._connections.fetch(self._renew, self._namespace, host, ttl_us, write=True)
        if rows:
            return
        found = await self._connections.fetch(self._refusal, self._namespace, host, write=False)
        if found and found[0]["late"]:
            raise LeaseExpired(f"host/{host}")
        raise Fenced(f"host/{host}")

    async def close(self, host: HostId) -> None:
        """End a session; see the port."""
        await self._connections.fetch(self._close, self._namespace, host, write=True)

    async def reap(self, *, limit: int) -> Sequence[HostSession]:
        """End expired sessions and return them; see the port."""
        rows = await self._connections.fetch(
            self._reap, self._namespace, max(0, min(limit, _LIMIT_MAX)), write=True
        )
        return [_session(row) for row in rows]

    async def get(self, host: HostId) -> HostSession | None:
        """One session; see the port."""
        rows = await self._connections.fetch(self._get, self._namespace, host, write=False)
        return _session(rows[0]) if rows else None

    async def list(self, *, limit: int) -> Sequence[HostSession]:
        """Sessions that have not ended; see the port."""
        rows = await self._connections.fetch(
            self._list, self._namespace, max(0, min(limit, _LIMIT_MAX)), write=False
        )
        return [_session(row) for row in rows]


def _session(row: Any) -> HostSession:
    return HostSession(
        id=HostId(row["id"]),
        name=row["name"],
        ttl_us=row["ttl_us"],
        metadata=row["metadata"],
        started_at=row["started_at"],
        remaining_s=max(0.0, row["remaining_s"]),
        alive=row["alive"],
    )
