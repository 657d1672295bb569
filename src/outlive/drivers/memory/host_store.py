"""Host sessions in memory: one row per living process of the namespace.

Owns the session rows. An id that ended never lives again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NoReturn

from outlive.clock import Clock
from outlive.drivers.memory.rows import SessionRow, Space
from outlive.errors import Fenced, LeaseExpired, StoreUnavailable
from outlive.model.session import HostSession
from outlive.names import HostId

# Ids are random, so that a reused one is a programming mistake made within minutes; remembering
# the newest ten thousand finds it and keeps a year-long process small.
_ENDED_MAX = 10_000


class MemoryHostStore:
    """The ``HostStore`` of one namespace. Every method is one step under the space's lock."""

    def __init__(self, space: Space, clock: Clock) -> None:
        self._space: Space | None = space
        self._clock = clock

    def close_store(self) -> None:
        """Let go of the rows; every later call raises ``StoreUnavailable``."""
        self._space = None

    async def open(self, session: HostSession) -> None:
        """Begin a session; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = self._now_us()
            row = space.sessions.get(session.id)
            if session.id in space.ended_hosts or (row is not None and row.expires_us <= now_us):
                raise Fenced(f"host/{session.id}")
            started_us = now_us if row is None else row.started_us
            space.sessions[session.id] = SessionRow(session, started_us, now_us + session.ttl_us)

    async def renew(self, host: HostId, ttl_us: int) -> None:
        """Keep a session alive; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = self._now_us()
            row = space.sessions.get(host)
            if row is None:
                raise Fenced(f"host/{host}")
            if row.expires_us <= now_us:
                raise LeaseExpired(f"host/{host}")
            row.session = replace(row.session, ttl_us=ttl_us)
            row.expires_us = now_us + ttl_us

    async def close(self, host: HostId) -> None:
        """End a session; see the port."""
        space = self._space or _closed()
        with space.lock:
            if space.sessions.pop(host, None) is not None:
                _remember_ended(space, host)

    async def reap(self, *, limit: int) -> Sequence[HostSession]:
        """End expired sessions and return them; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = self._now_us()
            late = [row for row in space.sessions.values() if row.expires_us <= now_us][:limit]
            for row in late:
                del space.sessions[row.session.id]
                _remember_ended(space, row.session.id)
            return [self._shown(row, now_us) for row in late]

    async def get(self, host: HostId) -> HostSession | None:
        """One session; see the port."""
        space = self._space or _closed()
        with space.lock:
            row = space.sessions.get(host)
            return None if row is None else self._shown(row, self._now_us())

    async def list(self, *, limit: int) -> Sequence[HostSession]:
        """Sessions that have not ended; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = self._now_us()
            rows = sorted(space.sessions.values(), key=lambda row: row.started_us)
            return [self._shown(row, now_us) for row in rows[:limit]]

    def _now_us(self) -> int:
        return round(self._clock.monotonic() * 1e6)

    def _shown(self, row: SessionRow, now_us: int) -> HostSession:
        age = timedelta(microseconds=now_us - row.started_us)
        return replace(
            row.session,
            started_at=self._clock.now() - age,
            remaining_s=max(0, row.expires_us - now_us) / 1e6,
            alive=row.expires_us > now_us,
        )


def check_alive(space: Space, session: HostId, clock_us: int) -> None:
    """Whether a session may own anything now; its caller holds the lock.

    Raises:
        LeaseExpired: Its time had run out.
        Fenced: It has ended, or never was.
    """
    row = space.sessions.get(session)
    if row is None:
        raise Fenced(f"host/{session}")
    if row.expires_us <= clock_us:
        raise LeaseExpired(f"host/{session}")


def _remember_ended(space: Space, host: HostId) -> None:
    space.ended_hosts[host] = None
    if len(space.ended_hosts) > _ENDED_MAX:
        del space.ended_hosts[next(iter(space.ended_hosts))]


def _closed() -> NoReturn:
    raise StoreUnavailable("the memory store is closed")
