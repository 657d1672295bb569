"""Host sessions in Redis: the port, each method one script in one round trip.

Owns the names of the keys and what the answers mean; the scripts decide, by the server's clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.redis.epoch import Epoch
from outlive.drivers.redis.link import Link
from outlive.drivers.redis.records import instant_of
from outlive.drivers.redis.scripts import load_host_scripts
from outlive.errors import Fenced, LeaseExpired
from outlive.model.session import HostSession
from outlive.names import HostId

# One screen of hosts, and a millisecond or two in which nobody else is served.
_LIMIT_MAX = 1000


class RedisHostStore:
    """The ``HostStore`` of one namespace in one database."""

    def __init__(self, link: Link, epoch: Epoch, keys: str) -> None:
        self._link = link
        self._epoch = epoch
        self._scripts = load_host_scripts()
        self._keys = keys
        self._hosts = f"{keys}hosts"

    async def open(self, session: HostSession) -> None:
        """Begin a session; see the port."""
        self._epoch.learn_session(session.ttl_us)
        opened = await self._link.run(
            self._scripts.open,
            2,
            self._hosts,
            self._epoch.key,
            self._keys,
            session.id,
            session.name,
            session.ttl_us,
            session.metadata,
        )
        if not opened:
            raise Fenced(f"host/{session.id}")

    async def renew(self, host: HostId, ttl_us: int) -> None:
        """Keep a session alive; see the port."""
        self._epoch.learn_session(ttl_us)
        refusal = await self._link.run(
            self._scripts.renew,
            2,
            self._hosts,
            self._epoch.key,
            self._keys,
            host,
            ttl_us,
        )
        if refusal == "expired":
            raise LeaseExpired(f"host/{host}")
        if refusal:
            raise Fenced(f"host/{host}")

    async def close(self, host: HostId) -> None:
        """End a session; see the port."""
        await self._link.run(self._scripts.close, 1, self._hosts, self._keys, host)

    async def reap(self, *, limit: int) -> Sequence[HostSession]:
        """End expired sessions and return them; see the port."""
        most = max(0, min(limit, _LIMIT_MAX))
        now_us, *found = await self._link.run(self._scripts.reap, 1, self._hosts, self._keys, most)
        return [_session(row, now_us) for row in found]

    async def get(self, host: HostId) -> HostSession | None:
        """One session; see the port."""
        now_us, *found = await self._link.run(self._scripts.get, 1, self._hosts, self._keys, host)
        return _session(found[0], now_us) if found else None

    async def list(self, *, limit: int) -> Sequence[HostSession]:
        """Sessions that have not ended; see the port."""
        if limit <= 0:
            return []
        most = min(limit, _LIMIT_MAX)
        now_us, *found = await self._link.run(self._scripts.list, 1, self._hosts, self._keys, most)
        return [_session(row, now_us) for row in found]


def _session(row: Any, now_us: int) -> HostSession:
    """The session that ``describe_session`` of hosts.lua gave."""
    host, name, ttl_us, metadata, started, expires = row
    remaining_us = max(0, int(float(expires)) - now_us)
    return HostSession(
        id=HostId(host),
        name=name,
        ttl_us=int(ttl_us),
        metadata=metadata,
        started_at=instant_of(started),
        remaining_s=remaining_us / 1e6,
        alive=remaining_us > 0,
    )
