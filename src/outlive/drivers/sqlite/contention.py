"""The slow path of acquire: decides when the one fast statement did not.

Owns refusals, semaphores, resuming, limits that differ, the observation rule, and the queue. Runs
inside the write transaction that the fast path began, behind a savepoint, so that what it reads
cannot change before it writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlive.drivers.sqlite import lease_sql as sql
from outlive.drivers.sqlite.lease_history import LeaseHistory
from outlive.drivers.sqlite.transaction import Turn
from outlive.model.lease import AcquireRequest, Ended, Grant, Held
from outlive.model.turns import may_take, turn_in_us
from outlive.names import Owner, Token, WaiterId, host_of

# Behind every place in the queue.
_LAST = 2**63 - 1

# Each refusal counts the places ahead: beyond this many the queue costs more than it orders, and
# newcomers are refused without a place.
_QUEUE_MAX = 10_000

# A place of another boot or container that nobody refreshed for so long is rubbish.
_FOREIGN_PLACE_MAX_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class _Slot:
    """One slot as read, and when it is (or was) free by this domain's clock."""

    number: int
    limit: int
    token: int
    owner: str | None
    previous_owner: str | None
    free_at_us: int
    exists: bool = True


class Contention:
    """Decides attempts of one namespace, in one clock domain."""

    def __init__(self, namespace: str, domain: str, history: LeaseHistory) -> None:
        self._namespace = namespace
        self._domain = domain
        self._history = history

    def acquire(self, turn: Turn, request: AcquireRequest) -> Grant | Held:
        """Grant ``request`` or refuse it, with a place in the queue if it asks for one."""
        held = self._still_waiting(turn, request)
        if held is not None:
            return held
        turn.savepoint()
        now = turn.now_us
        slots = self._slots(turn, request.key)
        for slot in slots:
            if slot.owner == request.owner:
                return self._grant_again(turn, request, slot)
        if request.resume:
            host = host_of(request.owner)
            mine = [s for s in slots if s.owner is not None and host_of(s.owner) == host]
            if mine:
                oldest = min(mine, key=lambda slot: slot.token)
                ended = Ended.RESUMED if oldest.free_at_us > now else Ended.EXPIRED
                return self._grant(turn, request, slots, oldest, ended, limit=oldest.limit)
        owned = [s for s in slots if s.owner is not None and s.free_at_us > now]
        limit = slots[0].limit if slots else request.limit
        place = self._place(turn, request)
        ahead = self._ahead(turn, request, place)
        if owned and limit != request.limit:
            # Two programs disagree about the key; the newcomer waits until nobody owns it.
            last = max(owned, key=lambda slot: slot.free_at_us)
            wait_us = turn_in_us(now, last.free_at_us, ahead=ahead, free_slots=1)
            return self._refuse(turn, request, place, ahead, (last.owner, wait_us, limit))
        known = {slot.number: slot for slot in slots}
        free = [
            slot
            for number in range(request.limit)
            if (slot := known.get(number) or _never_granted(number, request.limit)) not in owned
        ]
        if not free:
            first = min(owned, key=lambda slot: slot.free_at_us)
            wait_us = turn_in_us(now, first.free_at_us, ahead=ahead, free_slots=1)
            return self._refuse(turn, request, place, ahead, (first.owner, wait_us, limit))
        since_us = min(slot.free_at_us for slot in free)
        if not may_take(now, since_us, ahead=ahead, free_slots=len(free)):
            wait_us = turn_in_us(now, since_us, ahead=ahead, free_slots=len(free))
            return self._refuse(turn, request, place, ahead, (None, wait_us, request.limit))
        if request.limit > 1:
            # For a single slot the trigger on the row does this.
            self._settle_queue(turn, request, place, overtaken=ahead - len(free) + 1)
        return self._grant(turn, request, slots, free[0], Ended.EXPIRED, limit=request.limit)

    def _still_waiting(self, turn: Turn, request: AcquireRequest) -> Held | None:
        if request.waiter is None or request.limit != 1 or request.resume or request.queue_us <= 0:
            return None
        now = turn.now_us
        row = turn.cursor.execute(
            sql.STILL_WAITING,
            (
                *(now + request.queue_us, turn.wall_us, request.host, request.waiter),
                *(self._namespace, request.key, request.owner, self._domain, now, now, now),
            ),
        ).fetchone()
        if row is None:
            return None
        owner, expires_us, ahead = row
        wait_us = turn_in_us(now, expires_us, ahead=ahead, free_slots=1)
        return Held(request.key, owner, wait_us / 1e6, request.waiter, ahead, 1)

    def _slots(self, turn: Turn, key: str) -> list[_Slot]:
        rows = turn.cursor.execute(sql.SLOTS, (self._namespace, key)).fetchall()
        slots: list[_Slot] = []
        for number, limit, token, version, owner, domain, expires, free, ttl, previous in rows:
            if owner is None:
                free_at_us = free if domain == self._domain else 0
            elif domain == self._domain:
                free_at_us = expires
            else:
                free_at_us = self._observe(turn, key, number, version) + ttl
            slots.append(_Slot(number, limit, token, owner, previous, free_at_us))
        return slots

    def _observe(self, turn: Turn, key: str, number: int, version: int) -> int:
        """Since when this domain has seen the row unchanged; from now on, if it has not."""
        cursor = turn.cursor
        place = (self._namespace, key, number, self._domain)
        row = cursor.execute(sql.OBSERVED, place).fetchone()
        # A clock that reads less than the note is another clock after all: start again.
        if row is not None and row[0] == version and row[1] <= turn.now_us:
            return row[1]
        cursor.execute(sql.OBSERVE, (*place, version, turn.now_us))
        return turn.now_us

    def _place(self, turn: Turn, request: AcquireRequest) -> int | None:
        cursor = turn.cursor
        old_us = turn.wall_us - _FOREIGN_PLACE_MAX_US
        cursor.execute(
            sql.PRUNE_WAITERS, (self._namespace, request.key, self._domain, turn.now_us, old_us)
        )
        of = (self._namespace, request.key, request.owner)
        return cursor.execute(sql.PLACE_OF, of).fetchone()[0]

    def _ahead(self, turn: Turn, request: AcquireRequest, place: int | None) -> int:
        before = _LAST if place is None else place
        row = turn.cursor.execute(
            sql.COUNT_AHEAD,
            (self._namespace, request.key, before, self._domain, turn.now_us, request.owner),
        ).fetchone()
        return row[0]

    def _settle_queue(
        self, turn: Turn, request: AcquireRequest, place: int | None, *, overtaken: int
    ) -> None:
        of = (self._namespace, request.key)
        if overtaken > 0:
            before = _LAST if place is None else place
            values = (*of, before, self._domain, turn.now_us, request.owner, overtaken)
            turn.cursor.execute(sql.OVERTAKE, values)
        if place is not None:
            turn.cursor.execute(sql.LEAVE_BY_OWNER, (*of, request.owner))

    def _grant_again(self, turn: Turn, request: AcquireRequest, slot: _Slot) -> Grant:
        version, state = turn.cursor.execute(
            sql.GRANT_AGAIN,
            (
                *(request.host, self._domain, turn.now_us + request.ttl_us, request.ttl_us),
                *(turn.wall_us, request.metadata, self._namespace, request.key, slot.number),
            ),
        ).fetchone()
        return _granted(request, slot.number, (slot.token, version, state, slot.previous_owner))

    def _grant(
        self,
        turn: Turn,
        request: AcquireRequest,
        slots: list[_Slot],
        slot: _Slot,
        ended: Ended,
        *,
        limit: int,
    ) -> Grant:
        token = max((other.token for other in slots), default=0) + 1
        now, wall = turn.now_us, turn.wall_us
        statement = sql.GRANT_SLOT if slot.exists else sql.GRANT_NEW_SLOT
        version, state, endings = turn.cursor.execute(
            statement,
            (
                *(limit, token, request.owner, request.host, self._domain),
                *(now + request.ttl_us, now, request.ttl_us, wall, wall, request.metadata),
                *(slot.owner, ended.value, self._namespace, request.key, slot.number),
            ),
        ).fetchone()
        if any(other.limit != limit for other in slots):
            turn.cursor.execute(sql.SET_LIMIT, (limit, self._namespace, request.key))
        self._history.look(turn, request.key, slot.number, endings)
        return _granted(request, slot.number, (token, version, state, slot.owner))

    def _refuse(
        self,
        turn: Turn,
        request: AcquireRequest,
        place: int | None,
        ahead: int,
        because: tuple[str | None, int, int],
    ) -> Held:
        if request.queue_us > 0:
            place = self._queue(turn, request, place, ahead)
        owner, wait_us, limit = because
        return Held(
            key=request.key,
            owner=owner,
            retry_in_s=wait_us / 1e6,
            waiter=None if place is None else WaiterId(place),
            ahead=ahead,
            limit=limit,
        )

    def _queue(
        self, turn: Turn, request: AcquireRequest, place: int | None, ahead: int
    ) -> int | None:
        until_us = turn.now_us + request.queue_us
        cursor = turn.cursor
        if place is not None:
            cursor.execute(sql.REFRESH, (until_us, turn.wall_us, self._domain, request.host, place))
            return place
        if ahead >= _QUEUE_MAX:
            return None
        cursor.execute(
            sql.ENQUEUE,
            (
                *(self._namespace, request.key, request.owner, request.host, self._domain),
                *(until_us, turn.wall_us),
            ),
        )
        return cursor.lastrowid


def _never_granted(number: int, limit: int) -> _Slot:
    return _Slot(number, limit, 0, None, None, 0, exists=False)


def _granted(
    request: AcquireRequest, slot: int, row: tuple[int, int, str | None, str | None]
) -> Grant:
    token, version, state, previous_owner = row
    return Grant(
        key=request.key,
        slot=slot,
        owner=Owner(request.owner),
        token=Token(token),
        version=version,
        ttl_us=request.ttl_us,
        state=state,
        previous_owner=previous_owner,
    )
