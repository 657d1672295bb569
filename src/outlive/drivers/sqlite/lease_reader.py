"""Reading leases: records, listings, history.

Owns the read connection. Reads are short, limited, and run on the event loop; the write-ahead log
lets them pass beside any writer. What is read here is for showing, never for deciding who owns.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from outlive.clock import Clock, instant, instant_or_none
from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.translate import translate
from outlive.errors import Fenced, StoreUnavailable, UsageError
from outlive.model.lease import (
    HISTORY_MAX,
    LIST_LIMIT_MAX,
    Ended,
    Grant,
    LeaseRecord,
    Tenancy,
)
from outlive.names import Token

_SURROGATES = range(0xD800, 0xE000)
_CODE_POINT_MAX = 0x10FFFF


class LeaseReader:
    """Reads of one namespace in one file."""

    def __init__(
        self, connection: sqlite3.Connection, clock: Clock, *, namespace: str, domain: str
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._namespace = namespace
        self._domain = domain
        self._pid = os.getpid()
        self._closed = False

    def close(self) -> None:
        """Close the connection, unless it is another process's. Repeatable."""
        if not self._closed and os.getpid() == self._pid:
            self._connection.close()
        self._closed = True

    def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of ``key``, in slot order."""
        with self._reading() as cursor:
            return self.records_of(cursor, key, *self._instants())

    def records_of(
        self, cursor: sqlite3.Cursor, key: str, now_us: int, wall_us: int
    ) -> list[LeaseRecord]:
        """The records of ``key`` as ``cursor`` sees them, a writer's included."""
        values = {
            "namespace": self._namespace,
            "domain": self._domain,
            "now": now_us,
            "key": key,
        }
        rows = cursor.execute(sql.RECORDS_OF_KEY, values).fetchall()
        return [self._record(row, now_us, wall_us) for row in rows]

    def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records, which ends between keys."""
        now_us, wall_us = self._instants()
        values: dict[str, Any] = {
            "namespace": self._namespace,
            "domain": self._domain,
            "now": now_us,
            "prefix": prefix,
            "upper": upper_bound(prefix),
            "owner": owner,
            "active": active,
            "after": after,
            "limit": max(0, min(limit, LIST_LIMIT_MAX)),
        }
        with self._reading() as cursor:
            rows = cursor.execute(sql.LIST, values).fetchall()
            if rows and len(rows) == values["limit"]:
                values["key"], values["slot"] = rows[-1][0], rows[-1][1]
                rows += cursor.execute(sql.LIST_REST, values).fetchall()
        return [self._record(row, now_us, wall_us) for row in rows]

    def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries, newest first."""
        limit = max(0, min(limit, HISTORY_MAX))
        with self._reading() as cursor:
            rows = cursor.execute(sql.PRESENT, (self._namespace, key)).fetchall()
            rows += cursor.execute(
                sql.HISTORY, sql.of_chain(self._namespace, key, limit)
            ).fetchall()
        rows.sort(key=lambda row: row[1], reverse=True)
        return [
            Tenancy(
                key=key,
                slot=slot,
                token=Token(token),
                owner=owner,
                acquired_at=instant(acquired),
                ended_at=instant_or_none(ended_at),
                ended=None if ended is None else Ended(ended),
                detail=detail,
            )
            for slot, token, owner, acquired, ended_at, ended, detail in rows[:limit]
        ]

    def raw(self, key: str) -> Sequence[dict[str, object]]:
        """The rows of ``key``, column by column."""
        with self._reading() as cursor:
            rows = cursor.execute(sql.RAW, (self._namespace, key)).fetchall()
            names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def fenced(self, grant: Grant) -> Fenced:
        """Why ``grant`` is no longer the newest."""
        values = sql.of_chain(self._namespace, grant.key, grant.token)
        with self._reading() as cursor:
            return fenced_by(grant, cursor.execute(sql.ENDED_OF, values).fetchone())

    def data_version(self) -> int:
        """A number that changes when another connection changes the file."""
        with self._reading() as cursor:
            return cursor.execute("PRAGMA data_version").fetchone()[0]

    def waiters_of(self, host: str, limit: int) -> Sequence[tuple[str, int]]:
        """The places of ``host`` in all queues: key and number."""
        with self._reading() as cursor:
            return cursor.execute(sql.WAITERS_OF_HOST, (self._namespace, host, limit)).fetchall()

    def rows(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """The rows of a short statement of another module."""
        with self._reading() as cursor:
            return cursor.execute(statement, values).fetchall()

    def pragma(self, name: str) -> Any:
        """The value of a setting of the file, for health checks."""
        with self._reading() as cursor:
            row = cursor.execute(f"PRAGMA {name}").fetchone()
        return None if row is None else row[0]

    @contextmanager
    def _reading(self) -> Generator[sqlite3.Cursor]:
        """A cursor on one consistent snapshot."""
        if os.getpid() != self._pid:
            raise UsageError("this driver was opened before the process was forked; connect again")
        if self._closed:
            raise StoreUnavailable("the SQLite driver is closed")
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN")
            try:
                yield cursor
            finally:
                if self._connection.in_transaction:
                    cursor.execute("COMMIT")
        except sqlite3.Error as error:
            raise translate(error) from error

    def _instants(self) -> tuple[int, int]:
        return int(self._clock.monotonic() * 1e6), int(self._clock.now().timestamp() * 1e6)

    def _record(self, row: tuple[Any, ...], now_us: int, wall_us: int) -> LeaseRecord:
        key, slot, limit, token, version, owner, domain, expires, ttl = row[:9]
        acquired, renewed, metadata, state, waiters, seen = row[9:]
        if domain != self._domain:
            # Nobody can say how long it was held before it was first seen here.
            expires = (now_us if seen is None else seen) + ttl
        left_us = expires - now_us
        active = owner is not None and left_us > 0
        return LeaseRecord(
            key=key,
            slot=slot,
            limit=limit,
            token=Token(token),
            version=version,
            owner=owner,
            active=active,
            ttl_s=ttl / 1e6,
            remaining_s=left_us / 1e6 if active else 0.0,
            acquired_at=instant(acquired),
            renewed_at=instant(renewed),
            expires_at=None if owner is None else instant(wall_us + left_us),
            metadata=metadata,
            state=state,
            waiters=waiters,
        )


def fenced_by(grant: Grant, ending: tuple[str, str | None] | None) -> Fenced:
    """The error of a grant that ended as ``ending`` says; ``None`` where the history is pruned."""
    if ending is not None and ending[0] == Ended.BROKEN:
        return Fenced.broken(grant.key, ending[1])
    return Fenced(grant.key)


def upper_bound(prefix: str) -> str | None:
    """The least text above every text that starts with ``prefix``; ``None`` where there is none."""
    while prefix:
        point = ord(prefix[-1]) + 1
        prefix = prefix[:-1]
        if point in _SURROGATES:
            # Half of a pair is no character and cannot be stored.
            point = _SURROGATES.stop
        if point <= _CODE_POINT_MAX:
            return prefix + chr(point)
    return None
