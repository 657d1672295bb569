"""Acquiring a key: look at its blob, lease it, and write who owns it.

Owns the order of those requests and what each refusal means. A grant is reported only after the
record was written under the lease and the ETag that was read. What is given up before that leaves a
lease without an owner, which ends by itself and keeps the key from others until then.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from outlive.drivers.azblob.blob_names import lease_id_of
from outlive.drivers.azblob.blobs import Blobs
from outlive.drivers.azblob.cache import Cache
from outlive.drivers.azblob.records import BlobRecord, Seen, next_token, remaining_s
from outlive.drivers.azblob.service_clock import ServiceClock
from outlive.drivers.azblob.translate import Refusal
from outlive.drivers.azblob.ttls import lease_seconds
from outlive.errors import OutcomeUnknown, StoreUnavailable
from outlive.model.lease import AcquireRequest, Grant, Held
from outlive.names import Owner, Token, host_of
from outlive.ports.driver import DriverContext

# How often an attempt finds the blob changed under its hands. Each time somebody else was granted
# the key or gave it up, so that more than a few mean a storm, in which others will be refused.
_TRIES_MAX = 8

# Between the lease and the record of another's attempt lie two requests. A refusal waits so long
# for the record to say who it is; who is not named after that has probably crashed in between.
_UNNAMED_PAUSES_S = (0.01, 0.02, 0.04, 0.08, 0.16)

# What a refused caller is told to wait where nobody knows when the lease ends.
_UNNAMED_RETRY_S = 1.0

# Attempts that ended without an answer are remembered until their owner asks again, as it does
# within seconds; what falls out costs that owner a lease period.
_IN_DOUBT_MAX = 1024

# A lease lasts for whole seconds, and our reading of the service's clock is a little behind: its
# end may seem to have passed.
_RETRY_LEAST_S = 0.1


class Acquiring:
    """Attempts on the blobs of one namespace."""

    def __init__(
        self, blobs: Blobs, context: DriverContext, clock: ServiceClock, cache: Cache
    ) -> None:
        self._blobs = blobs
        self._local = context.clock
        self._random = context.random
        self._clock = clock
        self._cache = cache
        # Owners that may have the lease of a blob whose record does not say so.
        self._in_doubt: dict[Owner, None] = {}

    async def acquire(self, name: str, request: AcquireRequest) -> Grant | Held:
        """Own the key whose blob is ``name``, or learn who does.

        Raises:
            StoreUnavailable: Nothing was applied.
            OutcomeUnknown: The lease may have been taken; the same owner finds it again.
        """
        self._cache.drop(name)
        try:
            return await self._acquire(name, request)
        except StoreUnavailable as error:
            if request.owner in self._in_doubt:
                raise OutcomeUnknown(
                    f"{error}; the lease may have been acquired: repeat the request"
                ) from error
            raise

    async def _acquire(self, name: str, request: AcquireRequest) -> Grant | Held:
        for _ in range(_TRIES_MAX):
            seen = await self._blobs.read(name) or await self._blobs.create(name)
            if seen is None:
                continue
            owner = seen.owner_at(self._clock.now_us())
            if owner not in (None, request.owner) and not (
                request.owner in self._in_doubt or await self._resumed(name, owner, request)
            ):
                return self._held(request.key, seen, owner)
            outcome = await self._take(name, seen, request)
            if outcome is not None:
                return outcome
        raise OutcomeUnknown(
            f"lease {request.key!r} changed during every attempt to acquire it; try again"
        )

    async def _take(self, name: str, seen: Seen, request: AcquireRequest) -> Grant | Held | None:
        """Lease the blob and write the record; ``None`` if it must be looked at again."""
        lease_id, seconds = lease_id_of(request.owner), lease_seconds(request.ttl_us)
        since, now_us = self._local.monotonic(), self._clock.now_us()
        record = granted(seen.record, request, now_us)
        if shortens(seen, record):
            # Written before the lease is shortened, and looked at again: the record must never
            # promise more than the lease, because a renewal goes by the record.
            await self._blobs.write(name, record, seen, lease_id=lease_id)
            return None
        refusal = await self._lease(name, request.owner, seconds)
        if refusal is not None:
            return await self._unnamed(name, request) if refusal is Refusal.LEASE else None
        after = await self._blobs.write(name, record, seen, lease_id=lease_id)
        if isinstance(after, Refusal):
            return None
        self._in_doubt.pop(request.owner, None)
        self._cache.put(name, as_leased(after), since=since)
        return _grant(record, request, seen.record)

    async def _lease(self, name: str, owner: Owner, seconds: int) -> Refusal | None:
        """Lease the blob; until its record says so, the owner is in doubt."""
        doubted = owner in self._in_doubt
        self._doubt(owner)
        try:
            refusal = await self._blobs.acquire(name, lease_id_of(owner), seconds)
        except StoreUnavailable:
            if not doubted:
                self._in_doubt.pop(owner, None)
            raise
        if refusal is not None:
            self._in_doubt.pop(owner, None)
        return refusal

    def _doubt(self, owner: Owner) -> None:
        self._in_doubt[owner] = None
        if len(self._in_doubt) > _IN_DOUBT_MAX:
            del self._in_doubt[next(iter(self._in_doubt))]

    async def _resumed(self, name: str, owner: Owner, request: AcquireRequest) -> bool:
        """Whether the lease of a former self was made ours, without a moment in which it is free.

        The former self cannot write any more from then on; its token is outdone by the next write.
        """
        if not request.resume or host_of(owner) != host_of(request.owner):
            return False
        new_id = lease_id_of(request.owner)
        if await self._blobs.change(name, lease_id_of(owner), new_id) is not None:
            return False
        self._doubt(request.owner)
        return True

    async def _unnamed(self, name: str, request: AcquireRequest) -> Held | None:
        """The refusal by an owner that the record does not name yet; ``None`` if it is gone."""
        for pause_s in _UNNAMED_PAUSES_S:
            await self._local.sleep(pause_s * self._random.uniform(0.5, 1.5))
            seen = await self._blobs.read(name)
            if seen is None or not seen.leased:
                return None
            owner = seen.owner_at(self._clock.now_us())
            if owner is not None and owner != request.owner:
                return self._held(request.key, seen, owner)
        return Held(request.key, None, _UNNAMED_RETRY_S)

    def _held(self, key: str, seen: Seen, owner: Owner) -> Held:
        assert seen.record is not None
        left_s = remaining_s(seen.record, self._clock.now_us())
        return Held(key, owner, max(_RETRY_LEAST_S, left_s))


def granted(before: BlobRecord | None, request: AcquireRequest, now_us: int) -> BlobRecord:
    """The record of a grant. The same owner keeps its token; everybody else gets a greater one."""
    again = before is not None and before.owner == request.owner
    return BlobRecord(
        key=request.key,
        token=before.token if before is not None and again else next_token(before, now_us),
        version=1 if before is None else before.version + 1,
        owner=request.owner,
        ttl_us=request.ttl_us,
        acquired_us=before.acquired_us if before is not None and again else now_us,
        renewed_us=now_us,
        metadata=request.metadata,
        state=None if before is None else before.state,
    )


def shortens(seen: Seen, record: BlobRecord) -> bool:
    """Whether ``record`` shortens the lease that its owner has."""
    before = seen.record
    if before is None or before.owner != record.owner or not seen.leased:
        return False
    return lease_seconds(record.ttl_us) < lease_seconds(before.ttl_us)


def as_leased(seen: Seen) -> Seen:
    """A blob after its lease was taken."""
    return Seen(etag=seen.etag, lease_state="leased", record=seen.record)


@contextmanager
def begun(applied: bool = True) -> Generator[None]:  # noqa: FBT001, FBT002 - reads as one word
    """After the first request of a step was ``applied``, no failure means that nothing was."""
    try:
        yield
    except StoreUnavailable as error:
        if not applied:
            raise
        raise OutcomeUnknown(
            f"{error}; part of the request was applied: read the lease again"
        ) from error


def _grant(record: BlobRecord, request: AcquireRequest, before: BlobRecord | None) -> Grant:
    previous = None if before is None or before.owner == request.owner else before.owner
    return Grant(
        request.key,
        0,
        request.owner,
        Token(record.token),
        record.version,
        request.ttl_us,
        record.state,
        previous,
    )
