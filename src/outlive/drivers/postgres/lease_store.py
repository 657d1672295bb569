"""Leases in PostgreSQL: the port, over batches of single statements.

Owns what a row of an answer means. The usual attempt, renewal and release are one round trip,
shared with whatever else is under way; only a place in the queue, a semaphore, a resumed or a
broken key costs more. Never waits for a row inside a batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from outlive.drivers.postgres import lease_sql, queue_sql, slot_sql
from outlive.drivers.postgres.batches import LeaseBatches, Renewal
from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.guard import Guard
from outlive.drivers.postgres.records import RecordReader
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.slots import SlotStore
from outlive.errors import Fenced, LeaseExpired, LeaseNotFound, StoreError, StoreUnavailable
from outlive.model.lease import (
    AcquireRequest,
    Ended,
    Grant,
    Held,
    LeaseRecord,
    Tenancy,
)
from outlive.names import Owner, Token, WaiterId
from outlive.ports.driver import DriverContext

# A row that somebody locks at this moment is tried again after so long, so often: a batch ends
# within a few milliseconds, and a user's guard that takes longer is a refusal like any other.
_BUSY_PAUSES_S = (0.001, 0.002, 0.004, 0.008)

# What a refused caller is told to wait when only a foreign lock keeps the key from being taken.
_BUSY_RETRY_S = 0.05

# How often a renewal or release meets a locked row before it stands in line for it alone.
_LOCKED_TRIES_MAX = 3

_Answer = TypeVar("_Answer")


class PostgresLeaseStore:
    """The ``LeaseStore`` of one namespace in one schema."""

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        context: DriverContext,
        *,
        channel: str,
        guard: Guard,
    ) -> None:
        self._connections = connections
        self._namespace = context.namespace
        self._clock = context.clock
        self._random = context.random
        self._guard = guard
        self._records = RecordReader(connections, settings, context.namespace)
        self._slots = SlotStore(connections, settings, context.namespace, channel)
        self._refusal_sql = settings.sql(lease_sql.REFUSAL)
        self._enqueue_sql = settings.sql(queue_sql.ENQUEUE)
        self._break_lock_sql = settings.sql(slot_sql.BREAK_LOCK)
        self._break_sql = settings.sql(slot_sql.BREAK)
        batches = LeaseBatches(connections, settings, context.namespace, channel)
        self._batches = batches
        abandons = context.role == "keeper"
        # A renewal or release that is carried out late meets its own token, or changes nothing; a
        # late acquire would own a key for nobody, so that its end is waited for, which cannot be
        # done through a pooler.
        self._acquiring = Coalescer[AcquireRequest, Any](
            batches.acquire,
            abandons=abandons,
            lone=lambda: not (abandons or connections.pooled),
            settled=connections.settled,
        )
        self._renewing = Coalescer[Renewal, Any](batches.renew, abandons=abandons, lone=True)
        self._releasing = Coalescer[Grant, Any](batches.release, abandons=abandons, lone=True)

    # -- acquire --------------------------------------------------------------------------------

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port."""
        if request.limit == 1 and not request.resume:
            outcome = await self._acquire_one(request)
            if outcome is not None:
                return outcome
        granted = await self._patiently(lambda: self._slots.acquire(request))
        return granted if granted is not None else await self._held_by_lock(request)

    async def _acquire_one(self, request: AcquireRequest) -> Grant | Held | None:
        """An attempt on a key with one slot; ``None`` when the key turns out to have several."""
        row = await self._acquiring.submit(request.key, request)
        if row is None:
            row = await self._patiently(
                lambda: self._acquiring.submit(request.key, request), tried=True
            )
        if row is None:
            return await self._held_by_lock(request)
        outcome = row["outcome"]
        if outcome == "granted":
            return Grant(
                request.key,
                0,
                request.owner,
                Token(row["token"]),
                row["version"],
                request.ttl_us,
                row["state"],
                row["previous_owner"],
            )
        if outcome == "slots":
            return None
        if request.queue_us > 0:
            return await self._enqueue(request, force=False)
        return Held(
            request.key, row["holder"], max(0.0, row["wait_s"]), None, row["ahead"], row["limit_"]
        )

    async def _enqueue(self, request: AcquireRequest, *, force: bool) -> Grant | Held | None:
        """A place in the queue, or the key itself if it has become free meanwhile."""
        rows = await self._connections.fetch(
            self._enqueue_sql,
            self._namespace,
            request.key,
            request.owner,
            request.host,
            request.queue_us,
            force,
            write=True,
        )
        row = rows[0]
        if row["again"]:
            again = await self._acquiring.submit(request.key, request)
            if again is None or again["outcome"] != "granted":
                return await self._enqueue(request, force=True)
            return Grant(
                request.key,
                0,
                request.owner,
                Token(again["token"]),
                again["version"],
                request.ttl_us,
                again["state"],
                again["previous_owner"],
            )
        return Held(
            request.key,
            row["holder"],
            max(0.0, row["wait_s"]),
            WaiterId(row["waiter"]),
            row["ahead"],
            row["limit_"],
        )

    async def _held_by_lock(self, request: AcquireRequest) -> Grant | Held:
        """The refusal of a key that is free but for a lock, such as a guard of its last owner."""
        records = await self._records.get(request.key)
        waiter, ahead = None, 0
        if request.queue_us > 0 and records:
            queued = await self._enqueue(request, force=True)
            if isinstance(queued, Held):
                waiter, ahead = queued.waiter, queued.ahead
        owner = records[0].owner if records else None
        limit = records[0].limit if records else request.limit
        return Held(request.key, owner, _BUSY_RETRY_S, waiter, ahead, limit)

    # -- renew and release ----------------------------------------------------------------------

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend the grant; see the port."""
        renewal = Renewal(grant, ttl_us, state)
        row = await self._renewing.submit((grant.key, grant.slot), renewal)
        if row is None:
            row = await self._insist(
                grant,
                lambda: self._renewing.submit((grant.key, grant.slot), renewal),
                lambda: self._batches.renew([renewal], wait=True),
                live=True,
            )
        return Grant(
            grant.key,
            grant.slot,
            grant.owner,
            grant.token,
            row["version"],
            ttl_us,
            row["state"],
            grant.previous_owner,
        )

    async def release(self, grant: Grant) -> None:
        """Give the key up and wake the head of its queue; see the port."""
        row = await self._releasing.submit((grant.key, grant.slot), grant)
        if row is None:
            row = await self._insist(
                grant,
                lambda: self._releasing.submit((grant.key, grant.slot), grant),
                lambda: self._batches.release([grant], wait=True),
                live=False,
            )
        if row["ring"]:
            try:
                await self._slots.ring(grant.key)
            except StoreError:
                # The key is free already; a wake-up is only a hint.
                return

    async def _insist(
        self,
        grant: Grant,
        attempt: Callable[[], Awaitable[_Answer | None]],
        wait: Callable[[], Awaitable[Sequence[_Answer | None]]],
        *,
        live: bool,
    ) -> _Answer:
        """Repeat while the row is ours but locked; otherwise say why it is not.

        Whoever changes a semaphore locks its slot 0 for several round trips, so a busy one may be
        met locked again and again; ``wait`` then stands in line for the row.
        """
        for tries in range(_LOCKED_TRIES_MAX):
            await self._raise_refusal(grant, live=live)
            await self._pause(tries)
            row = await attempt()
            if row is not None:
                return row
        (row,) = await wait()
        if row is not None:
            return row
        await self._raise_refusal(grant, live=live)
        raise StoreUnavailable(f"the row of lease {grant.key!r} is locked by another transaction")

    async def _raise_refusal(self, grant: Grant, *, live: bool) -> None:
        """Raise unless ``grant`` is the newest (and, for a renewal, has time left)."""
        (row,) = await self._connections.fetch(
            self._refusal_sql,
            self._namespace,
            grant.key,
            grant.slot,
            grant.owner,
            grant.token,
            write=False,
        )
        if not row["ours"]:
            if row["ended"] == Ended.BROKEN:
                raise Fenced.broken(grant.key, row["detail"])
            raise Fenced(grant.key)
        if live and not row["live"]:
            raise LeaseExpired(grant.key)

    # -- the rest -------------------------------------------------------------------------------

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up a place in the queue; see the port."""
        await self._slots.leave(key, waiter, owner)

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of the key; see the port."""

        async def body(tx: Any) -> Sequence[LeaseRecord] | None:
            if not await tx.fetch(self._break_lock_sql, self._namespace, key):
                return None
            records = await self._records.get_in(tx, key)
            await tx.fetch(self._break_sql, self._namespace, key, reason)
            await self._slots.ring_in(tx, key)
            return records

        records = await self._connections.transact(body)
        if records is None:
            raise LeaseNotFound(key)
        return [record for record in records if record.active]

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of one key; see the port."""
        return await self._records.get(key)

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port."""
        return await self._records.page(prefix, owner, active=active, after=after, limit=limit)

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history; see the port."""
        return await self._records.history(key, limit=limit)

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The rows of one key, column by column; see the port."""
        return await self._records.raw(key)

    async def guard(self, grant: Grant, tx: object) -> None:
        """Prove the grant inside the caller's transaction; see the port."""
        await self._guard.check(grant, tx)

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._acquiring.close()
        await self._renewing.close()
        await self._releasing.close()

    async def _patiently(
        self, attempt: Callable[[], Awaitable[_Answer | None]], *, tried: bool = False
    ) -> _Answer | None:
        """Repeat ``attempt`` a few times while it finds the row locked."""
        answer = None if tried else await attempt()
        for tries in range(len(_BUSY_PAUSES_S)):
            if answer is not None:
                break
            await self._pause(tries)
            answer = await attempt()
        return answer

    async def _pause(self, tries: int) -> None:
        pause_s = _BUSY_PAUSES_S[min(tries, len(_BUSY_PAUSES_S) - 1)]
        await self._clock.sleep(pause_s * self._random.uniform(0.5, 1.5))
