"""Who gets a slot of a key, where one statement is not enough: semaphores, new limits, resuming.

``decide`` is pure: rows in, decision out. ``SlotStore`` acts on it inside one transaction under
the lock of the key's slot 0, which also keeps the batches of ``lease_store`` out of the key: they
touch only rows whose limit is one, and skip rows that are locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outlive.drivers.postgres import queue_sql, slot_sql
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.model.lease import AcquireRequest, Ended, Grant, Held
from outlive.model.turns import RING_DEPTH, may_take, turn_in_us
from outlive.names import Token, WaiterId, host_of

# A place that stands behind everybody: the attempt of somebody without a place.
_LAST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Slot:
    """One row of a key as it was read under the lock."""

    number: int
    token: int
    version: int
    owner: str | None
    free_since_us: int
    active: bool


@dataclass(frozen=True, slots=True)
class Take:
    """Grant ``slot``; ``None`` is a slot that nobody had before, numbered ``number``.

    ``passed`` is how many of those ahead were overtaken.
    """

    slot: Slot | None
    number: int
    token: int
    ending: Ended = Ended.EXPIRED
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Refuse."""

    owner: str | None
    retry_us: int


def decide(
    request: AcquireRequest, slots: Sequence[Slot], *, limit: int, ahead: int, now_us: int
) -> Take | Wait:
    """The outcome of ``request``. ``limit`` is what the key has now; ``slots`` is never empty."""
    token = max(slot.token for slot in slots) + 1
    own = _own(request, slots)
    if own is not None:
        if own.owner == request.owner:
            return Take(own, own.number, own.token)
        ending = Ended.RESUMED if own.active else Ended.EXPIRED
        return Take(own, own.number, token, ending)
    active = [slot for slot in slots if slot.active]
    if active and request.limit != limit:
        # Two programs disagree: all slots must be free before the limit may change.
        last = max(active, key=_free_since)
        return Wait(last.owner, turn_in_us(now_us, last.free_since_us, ahead=ahead, free_slots=1))
    free = request.limit - len(active)
    if free <= 0:
        first = min(active, key=_free_since)
        return Wait(first.owner, turn_in_us(now_us, first.free_since_us, ahead=ahead, free_slots=1))
    since_us = min((s.free_since_us for s in slots if not s.active), default=now_us)
    if ahead and not may_take(now_us, since_us, ahead=ahead, free_slots=free):
        return Wait(None, turn_in_us(now_us, since_us, ahead=ahead, free_slots=free))
    passed = max(0, ahead - free + 1)
    return _take_free(slots, request.limit, token, passed)


def _take_free(slots: Sequence[Slot], limit: int, token: int, passed: int) -> Take:
    """The slot to take: one given back, else one never used, else one that expired.

    In this order, because a guard of the last owner may still lock one that expired.
    """
    usable = [slot for slot in slots if slot.number < limit and not slot.active]
    for slot in usable:
        if slot.owner is None:
            return Take(slot, slot.number, token, passed=passed)
    used = {slot.number for slot in slots}
    for number in range(limit):
        if number not in used:
            return Take(None, number, token, passed=passed)
    return Take(usable[0], usable[0].number, token, passed=passed)


def _own(request: AcquireRequest, slots: Sequence[Slot]) -> Slot | None:
    for slot in slots:
        if slot.owner == request.owner:
            return slot
    if request.resume:
        name = host_of(request.owner)
        for slot in slots:
            if slot.owner is not None and host_of(slot.owner) == name:
                return slot
    return None


def _free_since(slot: Slot) -> int:
    return slot.free_since_us


class SlotStore:
    """Acquires under the lock of a key."""

    def __init__(
        self, connections: Connections, settings: PostgresSettings, namespace: str, channel: str
    ) -> None:
        self._connections = connections
        self._namespace = namespace
        self._channel = channel
        sql = settings.sql
        self._lock = sql(queue_sql.LOCK)
        self._ring = sql(queue_sql.RING)
        self._forget = sql(queue_sql.FORGET)
        self._leave = sql(queue_sql.LEAVE)
        self._first = sql(slot_sql.FIRST)
        self._slots = sql(slot_sql.SLOTS)
        self._lock_all = sql(slot_sql.LOCK_ALL)
        self._ahead = sql(slot_sql.AHEAD)
        self._take = sql(slot_sql.TAKE)
        self._add = sql(slot_sql.ADD)
        self._resize = sql(slot_sql.RESIZE)
        self._place_taken = sql(slot_sql.PLACE_TAKEN)
        self._overtake = sql(slot_sql.OVERTAKE)
        self._place = sql(slot_sql.PLACE)
        self._prune = sql(slot_sql.PRUNE)

    async def acquire(self, request: AcquireRequest) -> Grant | Held | None:
        """One attempt; ``None`` when the slot to take is locked by somebody or just changed."""
        return await self._connections.transact(lambda tx: self._acquire_in(tx, request))

    async def _acquire_in(self, tx: Any, request: AcquireRequest) -> Grant | Held | None:
        args = (self._namespace, request.key)
        locked = await tx.one(self._lock, *args)
        if locked is None:
            row = await tx.one(
                self._first,
                *args,
                request.limit,
                request.owner,
                request.host,
                request.ttl_us,
                request.metadata,
            )
            return None if row is None else _grant(request, row)
        rows = await tx.fetch(self._slots, *args)
        (counted,) = await tx.fetch(self._ahead, *args, request.owner)
        ahead = counted[0]
        slots = [_slot(row) for row in rows]
        limit = locked["limit_"]
        outcome = decide(request, slots, limit=limit, ahead=ahead, now_us=rows[0]["now_us"])
        if isinstance(outcome, Take):
            # A slot that has expired may still be guarded by its last owner's transaction, and must
            # not be resized away under it: all rows, or none.
            if request.limit != limit and len(await tx.fetch(self._lock_all, *args)) < len(slots):
                return None
            return await self._granted(tx, request, outcome, limit)
        waiter = await self._queued(tx, request)
        return Held(request.key, outcome.owner, outcome.retry_us / 1e6, waiter, ahead, limit)

    async def _granted(
        self, tx: Any, request: AcquireRequest, take: Take, limit: int
    ) -> Grant | None:
        key, owner = request.key, request.owner
        whose = (owner, request.host, request.ttl_us, request.metadata)
        version = take.slot.version if take.slot is not None else 0
        if take.slot is None:
            row = await tx.one(
                self._add, self._namespace, key, take.number, request.limit, take.token, *whose
            )
        else:
            row = await tx.one(
                self._take,
                self._namespace,
                key,
                take.number,
                take.token,
                version,
                *whose,
                take.ending.value,
            )
        if row is None:
            return None
        own_or_resumed = take.slot is not None and _own(request, [take.slot]) is not None
        if request.limit != limit and not own_or_resumed:
            await tx.fetch(self._resize, self._namespace, key, request.limit, owner)
        place = await tx.one(self._place_taken, self._namespace, key, owner)
        if take.passed:
            seq = _LAST if place is None else place["seq"]
            await tx.fetch(self._overtake, self._namespace, key, owner, seq, take.passed)
        if take.token % 16 == 0:
            await tx.fetch(self._prune, self._namespace, key, take.token)
        return _grant(request, row)

    async def _queued(self, tx: Any, request: AcquireRequest) -> WaiterId | None:
        if request.queue_us <= 0:
            return None
        row = await tx.one(
            self._place,
            self._namespace,
            request.key,
            request.owner,
            request.host,
            request.queue_us,
        )
        return WaiterId(row["seq"])

    async def leave(self, key: str, waiter: int, owner: str) -> None:
        """Give up a place, and ring the new head if a slot is free."""

        async def body(tx: Any) -> None:
            await tx.fetch(self._lock, self._namespace, key)
            await tx.fetch(self._leave, self._namespace, key, waiter, owner)
            await self.ring_in(tx, key)

        await self._connections.transact(body)

    async def ring(self, key: str) -> None:
        """Tell the head of the queue, as it is once nobody else changes it."""

        async def body(tx: Any) -> None:
            await tx.fetch(self._lock, self._namespace, key)
            await self.ring_in(tx, key)

        await self._connections.transact(body)

    async def ring_in(self, tx: Any, key: str) -> None:
        """The same inside a transaction that has the lock."""
        await tx.fetch(self._ring, self._namespace, key, self._channel, RING_DEPTH)
        await tx.fetch(self._forget, self._namespace, key)


def _slot(row: Any) -> Slot:
    return Slot(
        row["slot"],
        row["token"],
        row["version"],
        row["owner"],
        row["free_since_us"],
        row["active"],
    )


def _grant(request: AcquireRequest, row: Any) -> Grant:
    return Grant(
        request.key,
        row["slot"],
        request.owner,
        Token(row["token"]),
        row["version"],
        request.ttl_us,
        row["state"],
        row["previous_owner"],
    )
