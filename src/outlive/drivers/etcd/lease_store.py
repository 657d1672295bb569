"""Leases in etcd: the port, joined from those who acquire, own and read.

Owns nothing of its own but the joining.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outlive.drivers.etcd.acquiring import Acquirer
from outlive.drivers.etcd.guard import guard
from outlive.drivers.etcd.owning import Owners
from outlive.drivers.etcd.reading import Reader
from outlive.model.lease import AcquireRequest, Grant, Held, LeaseRecord, Tenancy
from outlive.names import Owner, WaiterId


class EtcdLeaseStore:
    """The ``LeaseStore`` of one namespace."""

    def __init__(self, acquirer: Acquirer, owners: Owners, reader: Reader) -> None:
        self._acquirer = acquirer
        self._owners = owners
        self._reader = reader

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port."""
        return await self._acquirer.acquire(request)

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend the grant; see the port."""
        return await self._owners.renew(grant, ttl_us, state=state)

    async def release(self, grant: Grant) -> None:
        """Give the key up; see the port."""
        await self._owners.release(grant)

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up a place in the queue; see the port."""
        await self._acquirer.leave(key, waiter, owner)

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of the key; see the port."""
        return await self._owners.break_lease(key, reason=reason)

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of one key; see the port."""
        return await self._reader.get(key)

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port."""
        return await self._reader.list(
            prefix=prefix, owner=owner, active=active, after=after, limit=limit
        )

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history; see the port."""
        return await self._reader.history(key, limit=limit)

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The stored records of the key exactly as etcd holds them, for people who debug."""
        return await self._reader.raw(key)

    async def guard(self, grant: Grant, tx: object) -> None:
        """Tie the user's etcd transaction to the grant; see the port."""
        await guard(self._owners, grant, tx)
