"""Reading leases: records, pages, history. Never writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres import record_sql
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.model.lease import HISTORY_MAX, LIST_LIMIT_MAX, Ended, LeaseRecord, Tenancy
from outlive.names import Token

_HIGHEST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


class RecordReader:
    """Reads of one namespace."""

    def __init__(
        self, connections: Connections, settings: PostgresSettings, namespace: str
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._get = settings.sql(record_sql.GET)
        self._list = settings.sql(record_sql.LIST)
        self._history = settings.sql(record_sql.HISTORY)
        self._raw = settings.sql(record_sql.RAW)

    async def get(self, key: str) -> list[LeaseRecord]:
        """The records of ``key``, in slot order."""
        rows = await self._connections.fetch(self._get, self._namespace, key, write=False)
        return [_record(row) for row in rows]

    async def get_in(self, tx: Any, key: str) -> list[LeaseRecord]:
        """The same, inside a transaction."""
        return [_record(row) for row in await tx.fetch(self._get, self._namespace, key)]

    async def page(
        self, prefix: str, owner: str | None, *, active: bool, after: str | None, limit: int
    ) -> list[LeaseRecord]:
        """A page of records in key order, ending between keys."""
        rows = await self._connections.fetch(
            self._list,
            self._namespace,
            prefix,
            _end_of(prefix),
            after,
            owner,
            active,
            max(0, min(limit, LIST_LIMIT_MAX)),
            write=False,
        )
        return [_record(row) for row in rows]

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries, newest first."""
        rows = await self._connections.fetch(
            self._history, self._namespace, key, max(0, min(limit, HISTORY_MAX)), write=False
        )
        return [
            Tenancy(
                key=key,
                slot=row["slot"],
                token=Token(row["token"]),
                owner=row["owner"],
                acquired_at=row["acquired_at"],
                ended_at=row["ended_at"],
                ended=None if row["ended"] is None else Ended(row["ended"]),
                detail=row["detail"],
            )
            for row in rows
        ]

    async def raw(self, key: str) -> list[dict[str, object]]:
        """The rows of ``key``, column by column."""
        rows = await self._connections.fetch(self._raw, self._namespace, key, write=False)
        return [dict(row) for row in rows]


def _end_of(prefix: str) -> str | None:
    """The least text above all that start with ``prefix``, or ``None`` when there is none."""
    while prefix:
        code = ord(prefix[-1]) + 1
        if code <= _HIGHEST:
            if code in _SURROGATES:
                code = _SURROGATES.stop
            return prefix[:-1] + chr(code)
        prefix = prefix[:-1]
    return None


def _record(row: Any) -> LeaseRecord:
    return LeaseRecord(
        key=row["key"],
        slot=row["slot"],
        limit=row["limit_"],
        token=Token(row["token"]),
        version=row["version"],
        owner=row["owner"],
        active=row["active"],
        ttl_s=row["ttl_us"] / 1e6,
        remaining_s=max(0.0, row["remaining_s"]),
        acquired_at=row["acquired_at"],
        renewed_at=row["renewed_at"],
        expires_at=row["expires_at"],
        metadata=row["metadata"],
        state=row["state"],
        waiters=row["waiters"],
    )
