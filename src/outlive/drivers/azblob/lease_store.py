"""Leases in a container: the port.

Owns what is asked of the service in which order. A key is a blob; having its lease is owning the
key; the blob's metadata says who, under which token. Every grant writes the metadata under its
lease id and the ETag it has read, so that tokens grow whatever happens in between, and a crash
between two requests costs at most one lease period.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outlive.drivers.azblob.acquiring import Acquiring, begun
from outlive.drivers.azblob.blob_names import key_of, lease_id_of, name_of, prefix_of
from outlive.drivers.azblob.blobs import Blobs, shown_properties
from outlive.drivers.azblob.cache import Cache
from outlive.drivers.azblob.records import Seen, lease_record, next_token, tenancy
from outlive.drivers.azblob.renewing import Renewing
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.drivers.azblob.translate import Refusal
from outlive.drivers.azblob.ttls import check_ttl
from outlive.drivers.azblob.turns import Turns
from outlive.errors import LeaseNotFound, StoreUnavailable, UnsupportedByDriver
from outlive.model.lease import (
    LIST_LIMIT_MAX,
    AcquireRequest,
    Grant,
    Held,
    LeaseRecord,
    Tenancy,
)
from outlive.names import Owner, WaiterId, host_of
from outlive.ports.driver import DriverContext

# How often a break finds the blob changed under its hands before it gives up.
_BREAK_TRIES_MAX = 5


class AzureBlobLeaseStore:
    """The ``LeaseStore`` of one namespace in one container."""

    def __init__(self, blobs: Blobs, context: DriverContext, clock: ServiceClock) -> None:
        self._blobs = blobs
        self._namespace = context.namespace
        self._clock = clock
        cache = Cache(context.clock)
        self._turns = Turns(abandons=context.role == "keeper")
        self._acquiring = Acquiring(blobs, context, clock, cache)
        self._renewing = Renewing(blobs, context, clock, cache)

    # -- owning ---------------------------------------------------------------------------------

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port. There is no queue to stand in."""
        self._blobs.check_open()
        if request.limit != 1:
            raise UnsupportedByDriver(
                "Azure Blob Storage does not support semaphores: limit must be 1"
            )
        check_ttl(request.ttl_us)
        name = name_of(self._namespace, request.key)
        return await self._turns.run(request.key, lambda: self._acquiring.acquire(name, request))

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend the grant; see the port."""
        self._blobs.check_open()
        check_ttl(ttl_us)
        name = name_of(self._namespace, grant.key)
        return await self._turns.run(
            grant.key, lambda: self._renewing.renew(name, grant, ttl_us, state)
        )

    async def release(self, grant: Grant) -> None:
        """Give the key up; see the port. Nobody is woken: waiters poll."""
        self._blobs.check_open()
        name = name_of(self._namespace, grant.key)
        await self._turns.run(grant.key, lambda: self._renewing.release(name, grant))

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Do nothing: there is no queue, so nobody has a place in it."""
        del key, waiter, owner
        self._blobs.check_open()

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End the grant of the key; see the port. The reason is not kept."""
        del reason
        self._blobs.check_open()
        return await self._turns.run(key, lambda: self._break(key))

    async def _break(self, key: str) -> Sequence[LeaseRecord]:
        """Take the owner out of the record first, under its own lease id; then end the lease.

        The owner is fenced by the first request; a crash before the second costs a lease period.
        """
        name = name_of(self._namespace, key)
        for _ in range(_BREAK_TRIES_MAX):
            seen = await self._blobs.read(name)
            if seen is None or seen.record is None:
                raise LeaseNotFound(key)
            if not seen.leased:
                return []
            record, now_us = seen.record, self._clock.now_us()
            owner = seen.owner_at(now_us)
            after: Seen | Refusal = Refusal.LEASE
            if owner is not None:
                ended = record.ended(token=next_token(record, now_us))
                after = await self._blobs.write(name, ended, seen, lease_id=lease_id_of(owner))
            if after is Refusal.LEASE:
                # Somebody leased it and wrote nothing since: a crash, or an acquire that is under
                # way and will find its lease gone.
                if await self._blobs.end_lease(name, seen.etag) is not Refusal.CHANGED:
                    return []
            elif isinstance(after, Seen):
                with begun():
                    # Refused where the key has already passed to somebody else, which is fine.
                    await self._blobs.end_lease(name, after.etag)
                broken = lease_record(seen, now_us)
                return [] if broken is None else [broken]
        raise StoreUnavailable(f"lease {key!r} changed during every attempt to break it; try again")

    # -- looking --------------------------------------------------------------------------------

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The record of one key; see the port."""
        seen = await self._blobs.read(name_of(self._namespace, key))
        record = None if seen is None else lease_record(seen, self._clock.now_us())
        return [] if record is None else [record]

    async def raw(self, key: str) -> Sequence[Mapping[str, Any]]:
        """The blob of one key as the service holds it; see the port."""
        name = name_of(self._namespace, key)
        seen = await self._blobs.read(name)
        if seen is None or seen.record is None:
            return []
        properties = await self._blobs.properties(name)
        return [] if properties is None else [shown_properties(properties)]

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port.

        Azure lists from the beginning of a prefix: a page costs a request for each 5,000 blobs up
        to its end.
        """
        page: list[LeaseRecord] = []
        blobs = self._blobs.walk(prefix_of(self._namespace, prefix))
        try:
            async for name, seen in blobs:
                if len(page) >= min(limit, LIST_LIMIT_MAX):
                    break
                record = self._listed(name, seen)
                if record is None or not record.key.startswith(prefix):
                    continue
                if (after is None or record.key > after) and _matches(record, owner, active=active):
                    page.append(record)
        finally:
            await blobs.aclose()
        return page

    def _listed(self, name: str, seen: Seen) -> LeaseRecord | None:
        record = lease_record(seen, self._clock.now_us())
        # Somebody may keep blobs of their own here, or copy one of ours.
        return record if record and record.key == key_of(self._namespace, name) else None

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """At most the present owner: ended grants are not kept."""
        return [tenancy(record) for record in await self.get(key) if record.active][:limit]

    async def guard(self, grant: Grant, tx: object) -> None:
        """Refuse: a container has no transactions."""
        del tx
        raise UnsupportedByDriver(
            f"Azure Blob Storage has no transactions, so lease {grant.key!r} cannot guard one; "
            "carry lease.token in the write instead"
        )

    async def close(self) -> None:
        """Give up what is under way. Repeatable."""
        await self._turns.close()


def _matches(record: LeaseRecord, owner: str | None, *, active: bool) -> bool:
    if active and not record.active:
        return False
    if owner is None:
        return True
    return record.owner is not None and (record.owner == owner or host_of(record.owner) == owner)
