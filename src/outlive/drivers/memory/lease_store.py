"""Leases in memory: a lock around each decision, and the wake-ups that follow from it.

Owns the writes to lease rows. Never awaits while it holds the lock, and never rings under it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from outlive.clock import Clock
from outlive.drivers.memory.decide import (
    Take,
    decide,
    is_free,
    live_slots,
    place_of,
    to_ring,
)
from outlive.drivers.memory.records import raw_of, record_of, tenancies_of
from outlive.drivers.memory.rows import EndedRow, KeyRow, PlaceRow, SlotRow, Space
from outlive.errors import (
    Fenced,
    LeaseExpired,
    LeaseNotFound,
    StoreUnavailable,
    UnsupportedByDriver,
)
from outlive.model.lease import (
    LIST_LIMIT_MAX,
    AcquireRequest,
    Ended,
    Grant,
    Held,
    LeaseRecord,
    Tenancy,
)
from outlive.names import Owner, Token, WaiterId, host_of
from outlive.ports.wakeups import Wakeup

Ringer = Callable[[PlaceRow, Wakeup], None]


class MemoryLeaseStore:
    """The ``LeaseStore`` of one namespace. Every method is one step under the space's lock."""

    def __init__(self, space: Space, clock: Clock, ring: Ringer) -> None:
        self._space: Space | None = space
        self._clock = clock
        self._monotonic = clock.monotonic
        self._ring = ring

    def close(self) -> None:
        """Let go of the rows; every later call raises ``StoreUnavailable``."""
        self._space = None

    async def acquire(self, request: AcquireRequest) -> Grant | Held:
        """Own the key, or learn why not; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            row = space.keys.get(request.key)
            if row is None:
                row = space.keys[request.key] = KeyRow(request.key, request.limit)
            place = None
            if row.places:
                _drop_expired(row, now_us)
                place = place_of(row, request, now_us)
                if place is not None:
                    place.passed = False
            outcome = decide(row, request, now_us, place)
            if isinstance(outcome, Take):
                if place is not None:
                    del row.places[place.id]
                return self._take(row, request, outcome, now_us)
            if request.queue_us > 0:
                place = _queue(space, row, request, place, now_us)
        return Held(
            request.key,
            outcome.owner,
            outcome.retry_us / 1e6,
            place.id if place is not None else None,
            outcome.ahead,
            outcome.limit,
        )

    def _take(self, row: KeyRow, request: AcquireRequest, take: Take, now_us: int) -> Grant:
        for place in take.passed:
            place.passed = True
        if take.limit != row.limit:
            _resize(row, take.limit, now_us)
        slot = take.slot
        if slot is None:
            slot = SlotRow(len(row.slots))
            row.slots.append(slot)
        previous = None
        if not take.again:
            if take.ending is not None:
                previous = slot.owner
                self._end(row, slot, take.ending, min(now_us, slot.expires_us))
            row.token += 1
            slot.token = row.token
            slot.owner = request.owner
            slot.acquired_us = now_us
        slot.version += 1
        slot.ttl_us = request.ttl_us
        slot.expires_us = now_us + request.ttl_us
        slot.renewed_us = now_us
        slot.metadata = request.metadata
        return Grant(
            row.key,
            slot.number,
            request.owner,
            Token(slot.token),
            slot.version,
            request.ttl_us,
            row.state,
            previous,
        )

    async def renew(self, grant: Grant, ttl_us: int, *, state: str | None = None) -> Grant:
        """Extend the grant; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            row, slot = self._owned(space, grant)
            if slot.expires_us <= now_us:
                raise LeaseExpired(grant.key)
            slot.version += 1
            slot.ttl_us = ttl_us
            slot.expires_us = now_us + ttl_us
            slot.renewed_us = now_us
            if state is not None:
                row.state = state
            return Grant(
                grant.key,
                slot.number,
                grant.owner,
                grant.token,
                slot.version,
                ttl_us,
                row.state,
                grant.previous_owner,
            )

    async def release(self, grant: Grant) -> None:
        """Give the key up and wake the head of its queue; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            row, slot = self._owned(space, grant)
            if slot.expires_us > now_us:
                self._end(row, slot, Ended.RELEASED, now_us)
            else:
                self._end(row, slot, Ended.EXPIRED, slot.expires_us)
            rung = to_ring(row, now_us)
        if rung:
            self._wake(grant.key, rung)

    async def leave(self, key: str, waiter: WaiterId, owner: Owner) -> None:
        """Give up a place in the queue; see the port."""
        space = self._space or _closed()
        rung: list[PlaceRow] = []
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            row = space.keys.get(key)
            if row is None:
                return
            # An owner has one place at most; it is named by the owner where the number is unknown.
            mine = [number for number, place in row.places.items() if place.owner == owner]
            if not mine or (waiter and waiter not in mine):
                return
            del row.places[mine[0]]
            if is_free(row, now_us):
                rung = to_ring(row, now_us)
        self._wake(key, rung)

    async def break_lease(self, key: str, *, reason: str) -> Sequence[LeaseRecord]:
        """End every grant of the key; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            row = space.keys.get(key)
            if row is None:
                raise LeaseNotFound(key)
            live = list(live_slots(row, now_us))
            if not live:
                return []
            wall = self._clock.now()
            records = [record_of(row, slot, now_us, wall) for slot in live]
            row.token += 1
            for slot in live:
                self._end(row, slot, Ended.BROKEN, now_us, reason)
                slot.token = row.token
            rung = to_ring(row, now_us)
        self._wake(key, rung)
        return records

    async def get(self, key: str) -> Sequence[LeaseRecord]:
        """The records of one key; see the port."""
        space = self._space or _closed()
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            wall = self._clock.now()
            row = space.keys.get(key)
            if row is None:
                return []
            return [record_of(row, slot, now_us, wall) for slot in row.slots]

    async def list(
        self, *, prefix: str, owner: str | None, active: bool, after: str | None, limit: int
    ) -> Sequence[LeaseRecord]:
        """A page of records; see the port."""
        space = self._space or _closed()
        page: list[LeaseRecord] = []
        with space.lock:
            now_us = round(self._monotonic() * 1e6)
            wall = self._clock.now()
            for key in sorted(_keys_after(space, prefix, after)):
                if len(page) >= min(limit, LIST_LIMIT_MAX):
                    break
                row = space.keys[key]
                page.extend(
                    record_of(row, slot, now_us, wall)
                    for slot in row.slots
                    if _matches(slot, owner) and (not active or _active(slot, now_us))
                )
        return page

    async def history(self, key: str, *, limit: int) -> Sequence[Tenancy]:
        """The newest entries of the key's history; see the port."""
        space = self._space or _closed()
        with space.lock:
            row = space.keys.get(key)
            if row is None:
                return []
            now_us = round(self._monotonic() * 1e6)
            return tenancies_of(row, now_us, self._clock.now())[:limit]

    async def raw(self, key: str) -> Sequence[Mapping[str, object]]:
        """The rows of one key as they are kept; see the port."""
        space = self._space or _closed()
        with space.lock:
            row = space.keys.get(key)
            return [] if row is None else [raw_of(row, slot) for slot in row.slots]

    async def guard(self, grant: Grant, tx: object) -> None:
        """Refuse: there is no transaction in memory to guard."""
        del tx
        raise UnsupportedByDriver(
            f"the memory store has no transactions, so lease {grant.key!r} cannot guard one; "
            "carry lease.token in the write instead"
        )

    def _owned(self, space: Space, grant: Grant) -> tuple[KeyRow, SlotRow]:
        """The rows of ``grant``, expired or not, or ``Fenced`` if it was ended."""
        row = space.keys.get(grant.key)
        if row is not None and grant.slot < len(row.slots):
            slot = row.slots[grant.slot]
            if slot.owner == grant.owner and slot.token == grant.token:
                return row, slot
        for ended in row.ended if row is not None else ():
            if ended.token == grant.token and ended.ended is Ended.BROKEN:
                raise Fenced.broken(grant.key, ended.detail)
        raise Fenced(grant.key)

    def _end(
        self, row: KeyRow, slot: SlotRow, why: Ended, at_us: int, detail: str | None = None
    ) -> None:
        # The row stays, with its token: the next grant must be told from this one.
        owner = slot.owner
        assert owner is not None
        row.ended.append(
            EndedRow(slot.number, slot.token, owner, slot.acquired_us, at_us, why, detail)
        )
        slot.owner = None
        slot.version += 1
        slot.expires_us = 0
        slot.free_since_us = at_us

    def _wake(self, key: str, places: Sequence[PlaceRow]) -> None:
        for position, place in enumerate(places):
            self._ring(place, Wakeup(f"lease/{key}", place.id, position))


def _closed() -> NoReturn:
    raise StoreUnavailable("the memory store is closed")


def _drop_expired(row: KeyRow, now_us: int) -> None:
    for gone in [p.id for p in row.places.values() if p.expires_us <= now_us]:
        del row.places[gone]


def _queue(
    space: Space, row: KeyRow, request: AcquireRequest, place: PlaceRow | None, now_us: int
) -> PlaceRow:
    until_us = now_us + request.queue_us
    if place is None:
        space.places_given += 1
        waiter = WaiterId(space.places_given)
        place = PlaceRow(waiter, request.owner, request.host, until_us)
        row.places[waiter] = place
    else:
        place.expires_us = until_us
        place.host = request.host
    return place


def _resize(row: KeyRow, limit: int, now_us: int) -> None:
    """Give the key another number of slots. Called only when nobody owns any of them."""
    for slot in row.slots[limit:]:
        if slot.owner is not None:
            row.ended.append(
                EndedRow(
                    slot.number,
                    slot.token,
                    slot.owner,
                    slot.acquired_us,
                    min(now_us, slot.expires_us),
                    Ended.EXPIRED,
                    None,
                )
            )
    del row.slots[limit:]
    row.limit = limit


def _keys_after(space: Space, prefix: str, after: str | None) -> Sequence[str]:
    return [key for key in space.keys if key.startswith(prefix) and (after is None or key > after)]


def _matches(slot: SlotRow, owner: str | None) -> bool:
    if owner is None:
        return True
    return slot.owner is not None and (slot.owner == owner or host_of(slot.owner) == owner)


def _active(slot: SlotRow, now_us: int) -> bool:
    return slot.owner is not None and slot.expires_us > now_us
