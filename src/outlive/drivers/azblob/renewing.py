"""Renewing and releasing a grant: only its newest form, and only while it lasts.

Owns the order of those requests. Azure renews a lease that ran out as long as nobody took it;
Outlive does not. A renewal goes out without a look only while the lease cannot have run out since
this driver last counted it anew, by the boot-time clock; otherwise the service is asked first
whether it still runs.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from outlive.drivers.azblob.acquiring import as_leased, begun, shortens
from outlive.drivers.azblob.blob_names import lease_id_of
from outlive.drivers.azblob.blobs import Blobs
from outlive.drivers.azblob.cache import Cache
from outlive.drivers.azblob.records import BlobRecord, Seen
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.drivers.azblob.translate import Refusal
from outlive.drivers.azblob.ttls import lease_seconds
from outlive.errors import Fenced, LeaseExpired, OutcomeUnknown
from outlive.model.lease import Grant
from outlive.ports.driver import DriverContext

# Only the owner's own requests change a blob that it leases, from two drivers at most: the host's
# and its keeper's. More rounds than this mean that something else writes there.
_TRIES_MAX = 5


class Renewing:
    """Renewals and releases of one namespace."""

    def __init__(
        self, blobs: Blobs, context: DriverContext, clock: ServiceClock, cache: Cache
    ) -> None:
        self._blobs = blobs
        self._local = context.clock
        self._clock = clock
        self._cache = cache

    async def renew(self, name: str, grant: Grant, ttl_us: int, state: str | None) -> Grant:
        """Extend ``grant``; keep ``state`` with the key unless it is ``None``.

        Raises:
            LeaseExpired: The time had run out, and nobody took the key.
            Fenced: The grant was ended.
            OutcomeUnknown: It may or may not be extended.
        """
        seen, refused = self._cache.get(name, grant), False
        for tries in range(_TRIES_MAX):
            with begun(tries > 0):
                seen = seen or await self._blobs.read(name)
            record = _owned(seen, grant, live=True, refused=refused)
            assert seen is not None
            new = replace(
                record,
                version=record.version + 1,
                ttl_us=ttl_us,
                renewed_us=self._clock.now_us(),
                state=record.state if state is None else state,
            )
            refusal = await self._extend(name, seen, new)
            if refusal is None:
                return structs.replace(grant, version=new.version, ttl_us=ttl_us, state=new.state)
            seen, refused = None, refusal is Refusal.LEASE
        raise OutcomeUnknown(
            f"lease {grant.key!r} changed during every attempt to renew it; try again"
        )

    async def _extend(self, name: str, seen: Seen, new: BlobRecord) -> Refusal | None:
        """Count the lease anew and write ``new``, or tell why the blob must be looked at again."""
        assert new.owner is not None
        self._cache.drop(name)
        lease_id, since = lease_id_of(new.owner), self._local.monotonic()
        # The record must never promise more than the lease, because a renewal goes by the record:
        # what shortens the lease is written first.
        shorter = shortens(seen, new)
        after: Seen | Refusal = seen
        if shorter:
            after = await self._blobs.write(name, new, seen, lease_id=lease_id)
            if isinstance(after, Refusal):
                return after
        with begun(shorter):
            refusal = await self._count_anew(name, seen, new, lease_id)
        if refusal is not None:
            return refusal
        if not shorter:
            with begun():
                after = await self._blobs.write(name, new, seen, lease_id=lease_id)
            if isinstance(after, Refusal):
                return after
        self._cache.put(name, as_leased(after), since=since)
        return None

    async def _count_anew(
        self, name: str, seen: Seen, new: BlobRecord, lease_id: str
    ) -> Refusal | None:
        """A plain renewal keeps the lease's duration; another one takes another acquire."""
        assert seen.record is not None
        # Always first: unlike acquire it does not bring back what an operator has broken.
        refusal = await self._blobs.renew(name, lease_id)
        seconds = lease_seconds(new.ttl_us)
        if refusal is None and seconds != lease_seconds(seen.record.ttl_us):
            refusal = await self._blobs.acquire(name, lease_id, seconds)
        return refusal

    async def release(self, name: str, grant: Grant) -> None:
        """Write that nobody owns the key, then free its blob.

        Raises:
            Fenced: The grant was ended before. Nothing changed.
            OutcomeUnknown: The reply was lost; the key is free after the rest of its ttl at most.
        """
        seen, refused = self._cache.get(name, grant), False
        lease_id = lease_id_of(grant.owner)
        self._cache.drop(name)
        for _ in range(_TRIES_MAX):
            seen = seen or await self._blobs.read(name)
            if seen is not None and _half_released(seen, grant):
                await self._blobs.release(name, lease_id)
            record = _owned(seen, grant, live=False, refused=refused)
            assert seen is not None
            # Azure and its emulator disagree whether the id of a lease that ran out still writes;
            # without one, both do, unless somebody else has taken the lease.
            held_by = lease_id if seen.leased else None
            after = await self._blobs.write(name, record.ended(), seen, lease_id=held_by)
            if not isinstance(after, Refusal):
                with begun():
                    # A refusal is as good: the lease has ended by itself meanwhile.
                    await self._blobs.release(name, lease_id)
                return
            seen, refused = None, after is Refusal.LEASE
        raise OutcomeUnknown(
            f"lease {grant.key!r} changed during every attempt to release it; try again"
        )


def _half_released(seen: Seen, grant: Grant) -> bool:
    """Whether a release of ``grant`` was recorded, and the request that frees the blob was lost."""
    record = seen.record
    return (
        record is not None and seen.leased and record.owner is None and record.token == grant.token
    )


def _owned(seen: Seen | None, grant: Grant, *, live: bool, refused: bool) -> BlobRecord:
    """The record of ``grant``, if it is the newest (and, for a renewal, has time left).

    ``refused`` says that the service has just refused its lease id: if the blob is leased all the
    same, it is by somebody who is about to write so.

    Raises:
        Fenced: It was ended: released, broken, or taken over.
        LeaseExpired: ``live`` was asked for, the time ran out, and nobody took the key.
    """
    record = None if seen is None else seen.record
    if seen is None or record is None:
        raise Fenced(grant.key)
    if (record.owner, record.token) != (grant.owner, grant.token):
        raise Fenced(grant.key)
    if seen.leased:
        if refused:
            raise Fenced(grant.key)
        return record
    if seen.lease_state != "expired":
        # Broken or freed by other means than Outlive, such as the portal.
        raise Fenced(grant.key, "broken" if seen.lease_state == "broken" else "fenced")
    if live:
        raise LeaseExpired(grant.key)
    return record
