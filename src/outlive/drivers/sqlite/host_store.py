"""Sessions of hosts, in the sidecar file.

Owns the host port. The sidecar has a writer of its own, because a user's long write transaction
on the main file must not make every host look dead. Expiry follows the boot-time clock; a session
of another clock domain is observed for one ttl before it may be reaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.clock import instant
from outlive.drivers.sqlite import host_sql as sql
from outlive.drivers.sqlite.transaction import Turn
from outlive.drivers.sqlite.writer import Writer
from outlive.errors import Fenced, LeaseExpired
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.model.session import HostSession
from outlive.names import HostId

# How long an ended id is remembered, in UTC: far longer than any process sleeps through.
_TOMBSTONE_US = 7 * 86_400_000_000


class SqliteHostStore:
    """The host port of one namespace in one file."""

    def __init__(self, writer: Writer, *, namespace: str, domain: str) -> None:
        self._submit = writer.submit
        self._namespace = namespace
        self._domain = domain

    async def open(self, session: HostSession) -> None:
        """Begin the session of a new host."""
        await self._submit(self._open, session)

    async def renew(self, host: HostId, ttl_us: int) -> None:
        """Keep the session alive for ``ttl_us`` from now."""
        await self._submit(self._renew, (host, ttl_us))

    async def close(self, host: HostId) -> None:
        """End the session at once."""
        await self._submit(self._close, host)

    async def reap(self, *, limit: int) -> Sequence[HostSession]:
        """End up to ``limit`` sessions whose time has run out, and return them."""
        return await self._submit(self._reap, limit)

    async def get(self, host: HostId) -> HostSession | None:
        """One session; ``None`` if it has ended or never was."""
        return await self._submit(self._get, host)

    async def list(self, *, limit: int) -> Sequence[HostSession]:
        """Sessions that have not ended, oldest first."""
        return await self._submit(self._list, limit)

    def _open(self, turn: Turn, session: HostSession) -> None:
        turn.savepoint()
        cursor = turn.cursor
        row = cursor.execute(sql.FIND, (self._namespace, session.id)).fetchone()
        if row is not None and row[0] is not None:
            raise Fenced(session.id, message=f"the session {session.id} has ended; use a new id")
        cursor.execute(sql.PRUNE, (self._namespace, turn.wall_us - _TOMBSTONE_US))
        cursor.execute(
            sql.OPEN,
            (
                *(self._namespace, session.id, session.name, self._domain, session.ttl_us),
                *(turn.now_us + session.ttl_us, session.metadata, turn.wall_us),
            ),
        )

    def _renew(self, turn: Turn, argument: tuple[HostId, int]) -> None:
        host, ttl_us = argument
        cursor = turn.cursor
        now = turn.now_us
        values = (now + ttl_us, ttl_us, self._namespace, host, self._domain, now)
        if cursor.execute(sql.RENEW, values).rowcount == 1:
            return
        row = cursor.execute(sql.FIND, (self._namespace, host)).fetchone()
        if row is not None and row[0] is None:
            raise LeaseExpired(host, f"the session {host} expired before it was renewed")
        raise Fenced(host, message=f"the session {host} was closed or reaped")

    def _close(self, turn: Turn, host: HostId) -> None:
        turn.savepoint()
        self._end(turn, host)

    def _end(self, turn: Turn, host: str) -> None:
        turn.cursor.execute(sql.END, (turn.wall_us, self._namespace, host))
        turn.cursor.execute(sql.FORGET, (self._namespace, host))

    def _reap(self, turn: Turn, limit: int) -> list[HostSession]:
        cursor = turn.cursor
        now = turn.now_us
        values = {"namespace": self._namespace, "domain": self._domain, "now": now}
        suspects = cursor.execute(sql.SUSPECTS, values).fetchall()
        if not suspects:
            return []
        turn.savepoint()
        reaped: list[HostSession] = []
        for row in suspects:
            host, _, domain, ttl, _, version, _, _, seen = row
            if domain != self._domain:
                # A note from the future is of another clock after all: start again.
                if seen is None or seen > now:
                    note = (self._namespace, host, self._domain, version, now)
                    cursor.execute(sql.OBSERVE, note)
                    continue
                if now < seen + ttl:
                    continue
            if len(reaped) < limit:
                self._end(turn, host)
                reaped.append(self._session(row, now))
        return reaped

    def _get(self, turn: Turn, host: HostId) -> HostSession | None:
        values = {"namespace": self._namespace, "domain": self._domain, "id": host}
        row = turn.cursor.execute(sql.GET, values).fetchone()
        return None if row is None else self._session(row, turn.now_us)

    def _list(self, turn: Turn, limit: int) -> list[HostSession]:
        values = {
            "namespace": self._namespace,
            "domain": self._domain,
            "limit": max(0, min(limit, LIST_LIMIT_MAX)),
        }
        rows = turn.cursor.execute(sql.LIST, values).fetchall()
        return [self._session(row, turn.now_us) for row in rows]

    def _session(self, row: tuple[Any, ...], now_us: int) -> HostSession:
        host, name, domain, ttl, expires, _, metadata, started, seen = row
        if domain != self._domain:
            expires = (now_us if seen is None else seen) + ttl
        return HostSession(
            id=HostId(host),
            name=name,
            ttl_us=ttl,
            metadata=metadata,
            started_at=instant(started),
            remaining_s=max(0, expires - now_us) / 1e6,
            alive=expires > now_us,
        )
