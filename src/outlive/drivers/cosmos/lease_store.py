"""Leases in Azure Cosmos DB: look, decide, and write if nobody else has written since.

Owns the lease port. Each step ends in at most one successful write, conditional on the ETag of the
item it was decided from; a refused write changes nothing, and everything is decided anew. It must
never write without an ETag, and never take a key because a host's wall clock says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from outlive.drivers.cosmos.connection import Connection, Reply
from outlive.drivers.cosmos.container import Container
from outlive.drivers.cosmos.items import (
    Item,
    Moment,
    Writer,
    broken,
    grant_of,
    granted,
    read_item,
    released,
    renewed,
)
from outlive.drivers.cosmos.lease_reader import LeaseReader
from outlive.drivers.cosmos.observation import Observations, Sighting
from outlive.errors import (
    Fenced,
    LeaseExpired,
    LeaseNotFound,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    UnsupportedByDriver,
)
from outlive.model.lease import AcquireRequest, Grant, Held, LeaseRecord, Tenancy
from outlive.names import Owner, WaiterId, host_of
from outlive.ports.driver import DriverContext

# Each lost race means that somebody else's write succeeded; after so many in a row the caller is
# better off with an answer than with the next one.
_RACES_MAX = 8

# What a caller is told to wait when it only lost races.
_BUSY_RETRY_S = 0.05

# Waiters that saw the same item at the same time do not all come at the same time. A tenth of a
# second spreads a dozen of them, and is hardly felt beside a ttl.
_SPREAD_S = 0.1
_SPREAD_OF_WAIT = 0.05


class Written(NamedTuple):
    """What became of a write: ``item`` if it succeeded, else what stood there instead."""

    item: Item | None
    found: Sighting | None


class CosmosLeaseStore:
    """The ``LeaseStore`` of one namespace in one container."""

    def __init__(
        self,
        connection: Connection,
        container: Container,
        reader: LeaseReader,
        observations: Observations,
        context: DriverContext,
        region: str,
    ) -> None:
        self._connection = connection
        self._container = container
        self._reader = reader
        self._observations = observations
        self._clock = context.clock
        self._random = context.random
        self._writer = Writer(context.namespace, context.host, region)

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port.

        One request where this driver saw the key last and it may be had; else a read comes first.
        """
        if request.limit != 1:
            raise UnsupportedByDriver(
                "Azure Cosmos DB does not support semaphores: limit must be 1"
            )
        sighting = self._observations.last(request.key)
        if sighting is None or isinstance(self._decide(sighting, request), Wait):
            sighting = await self._reader.look(request.key)
        for _ in range(_RACES_MAX):
            outcome = self._decide(sighting, request)
            if isinstance(outcome, Wait):
                return Held(request.key, outcome.owner, self._spread(outcome.retry_s))
            before = None if sighting is None else sighting.item
            moment = self._moment()
            wanted = granted(before, request, self._writer, moment, again=outcome.again)
            item, sighting = await self._write(wanted)
            if item is not None:
                return grant_of(item, outcome.previous_owner)
        owner = None if sighting is None else sighting.item.owner
        return Held(request.key, owner, self._spread(_BUSY_RETRY_S))

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend the grant; see the port. One request where this driver wrote the item last."""

        def extend(sighting: Sighting) -> Item:
            if self._observations.remaining_s(sighting) <= 0:
                raise LeaseExpired(grant.key)
            moment = self._moment()
            return renewed(sighting.item, self._writer, moment, ttl_us=ttl_us, state=state)

        return grant_of(await self._change(grant, extend), grant.previous_owner)

    async def release(self, grant: Grant) -> None:
        """Give the key up; see the port. One request where this driver wrote the item last."""
        await self._change(
            grant, lambda sighting: released(sighting.item, self._writer, self._moment())
        )

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Do nothing: there is no queue to leave."""
        del key, waiter, owner
        self._connection.check_open()

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End the grant of the key, whoever owns it; see the port.

        Also frees a key whose owner is only believed dead, so that nobody has to wait out its ttl;
        only an owner that may be alive is returned.
        """
        for _ in range(_RACES_MAX):
            sighting = await self._reader.look(key)
            if sighting is None:
                raise LeaseNotFound(key)
            if sighting.item.owner is None:
                return []
            record = self._reader.record(sighting)
            wanted = broken(sighting.item, self._writer, self._moment(), reason=reason)
            item, _ = await self._write(wanted)
            if item is not None:
                return [record] if record.active else []
        raise self._busy(key)

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The record of one key; see the port."""
        sighting = await self._reader.look(key)
        return [] if sighting is None else [self._reader.record(sighting)]

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port."""
        return await self._reader.page(
            prefix=prefix, owner=owner, active=active, after=after, limit=limit
        )

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The item of ``key`` exactly as the service holds it, its ETag and all; see the port."""
        document = await self._reader.raw(key)
        return [] if document is None else [dict(document)]

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The present owner, if there is one: ended grants are not kept."""
        return [
            Tenancy(
                key=record.key,
                slot=0,
                token=record.token,
                owner=record.owner,
                acquired_at=record.acquired_at,
                ended_at=None,
                ended=None,
                detail=None,
            )
            for record in await self.get(key)
            if record.owner is not None and record.active
        ][:limit]

    async def guard(self, grant: Grant, tx: object) -> None:
        """Refuse: no transaction reaches beyond one partition of a container."""
        del tx
        raise UnsupportedByDriver(
            f"Azure Cosmos DB has no transactions, so lease {grant.key!r} cannot guard one; "
            "carry lease.token in the write instead"
        )

    # -- looking, deciding, writing -------------------------------------------------------------

    def _decide(self, sighting: Sighting | None, request: AcquireRequest) -> Take | Wait:
        if sighting is None:
            return decide(None, request, 0.0)
        return decide(sighting.item, request, self._observations.free_in_s(sighting))

    async def _change(self, grant: Grant, change: Callable[[Sighting], Item]) -> Item:
        """Write what ``change`` makes of the item of ``grant``, which must be the newest grant."""
        sighting = self._observations.last(grant.key)
        if sighting is None or not self._is_worth_a_write(sighting, grant):
            sighting = await self._reader.look(grant.key)
        for _ in range(_RACES_MAX):
            if sighting is not None and _is_before(sighting.item, grant):
                raise StoreUnavailable(
                    f"a replica of Azure Cosmos DB is behind: it returned lease {grant.key!r} "
                    "without its last write; nothing was applied"
                )
            if sighting is None or not _is_of(sighting.item, grant):
                raise Fenced(grant.key)
            item, sighting = await self._write(change(sighting))
            if item is not None:
                return item
        raise self._busy(grant.key)

    def _is_worth_a_write(self, sighting: Sighting, grant: Grant) -> bool:
        """Whether it is what the grant last saw, and in time: its ETag is probably still good."""
        is_last = _is_of(sighting.item, grant) and sighting.item.version == grant.version
        return is_last and self._observations.remaining_s(sighting) > 0

    async def _write(self, wanted: Item) -> Written:
        """Send ``wanted``; it replaces the item whose ETag it carries, or is the first.

        Refused or unanswered, it is looked up: an earlier attempt whose reply was lost may have
        succeeded, and is then recognised and adopted.

        Raises:
            OutcomeUnknown: No reply, and the item does not tell.
        """
        try:
            reply = await self._send(wanted)
        except OutcomeUnknown as unknown:
            return Written(await self._find_unanswered(wanted, unknown), None)
        except BaseException:
            # Cancelled on its way: what is remembered may be outdated.
            self._observations.forget(wanted.key)
            raise
        if reply.document is not None:
            item = read_item(reply.document)
            self._observations.see(item, self._connection.service_s)
            return Written(item, None)
        found = await self._reader.look(wanted.key)
        if found is not None and found.item.is_write(wanted):
            return Written(found.item, None)
        return Written(None, found)

    async def _send(self, wanted: Item) -> Reply:
        if wanted.etag:
            return await self._container.replace(wanted.body(), wanted.etag)
        return await self._container.create(wanted.body())

    async def _find_unanswered(self, wanted: Item, unknown: OutcomeUnknown) -> Item:
        self._observations.forget(wanted.key)
        try:
            found = await self._reader.look(wanted.key)
        except StoreError:
            raise unknown from None
        if found is None or not found.item.is_write(wanted):
            # It may still be on its way.
            raise unknown
        return found.item

    def _moment(self) -> Moment:
        return Moment(
            sent_us=round(self._clock.monotonic() * 1e6),
            wall=self._clock.now(),
            service_us=round(self._connection.service_s * 1e6),
        )

    def _spread(self, wait_s: float) -> float:
        return wait_s + self._random.uniform(0.0, min(_SPREAD_S, wait_s * _SPREAD_OF_WAIT))

    def _busy(self, key: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the item of lease {key!r} was changed by other hosts during each of {_RACES_MAX} "
            "attempts to write it; nothing was applied"
        )


def _is_before(item: Item, grant: Grant) -> bool:
    """Whether a read showed the past, as one by another connection may: a keeper's, or its host's.

    Versions grow with each write, and a record that was lost begins anew with a greater token.
    """
    return item.version < grant.version and item.token <= grant.token


def _is_of(item: Item, grant: Grant) -> bool:
    return item.owner == grant.owner and item.token == grant.token


class Take(NamedTuple):
    """The attempt may write.

    ``again`` means that the owner had the key already and keeps its token. ``previous_owner`` is
    whose grant ends by it, if one does.
    """

    again: bool = False
    previous_owner: str | None = None


class Wait(NamedTuple):
    """The attempt is refused; ``owner`` may lose the key in ``retry_s`` at the earliest."""

    owner: str
    retry_s: float


def decide(item: Item | None, request: AcquireRequest, free_in_s: float) -> Take | Wait:
    """The outcome of ``request`` on ``item``, which others may take in ``free_in_s``. Pure.

    The write that follows is conditional on the ETag of that very item, so that a decision from an
    item that has changed since is refused by the store.

    An owner that asks again keeps its token, even after its time ran out, as long as nobody took
    the key. A resuming host takes over from its former self at once.
    """
    if item is None or item.owner is None:
        return Take()
    if item.owner == request.owner:
        return Take(again=True)
    if request.resume and host_of(item.owner) == host_of(request.owner):
        return Take(previous_owner=item.owner)
    if free_in_s > 0:
        return Wait(item.owner, free_in_s)
    return Take(previous_owner=item.owner)
