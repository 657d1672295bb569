"""Who gets a key: the decision of one attempt, from the rows as they are.

Pure: reads rows and changes nothing, so that the store's code stays a lock around a decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from outlive.drivers.memory.rows import KeyRow, PlaceRow, SlotRow
from outlive.model.lease import AcquireRequest, Ended
from outlive.model.turns import RING_DEPTH, may_take, turn_in_us
from outlive.names import host_of


class Take(NamedTuple):
    """The attempt succeeds, on ``slot``, or on a slot not yet used when it is ``None``.

    ``limit`` is the number of slots the key has from now on. ``again`` means that the owner had
    it already and keeps its token. ``ending`` is why the grant that stood there is over, if one
    did. ``passed`` are the places that were overtaken.
    """

    slot: SlotRow | None
    limit: int
    again: bool = False
    ending: Ended | None = None
    passed: tuple[PlaceRow, ...] = ()


class Wait(NamedTuple):
    """The attempt is refused."""

    owner: str | None
    retry_us: int
    ahead: int
    limit: int


def place_of(row: KeyRow, request: AcquireRequest, now_us: int) -> PlaceRow | None:
    """The live place of the request's owner. A place id of somebody else is worth nothing.

    An attempt that lost the reply to its first refusal does not know its place: it is found by
    its owner, so that it does not queue twice.
    """
    if request.waiter is not None:
        place = row.places.get(request.waiter)
        if place is not None and place.owner == request.owner:
            return place if place.expires_us > now_us else None
    for place in row.places.values():
        if place.owner == request.owner and place.expires_us > now_us:
            return place
    return None


def waiting(row: KeyRow, now_us: int) -> list[PlaceRow]:
    """The places that count, in order of arrival: live, and not passed over."""
    return [p for p in row.places.values() if p.expires_us > now_us and not p.passed]


def to_ring(row: KeyRow, now_us: int) -> list[PlaceRow]:
    """Who is told that the key has become free."""
    if not row.places:
        return []
    return waiting(row, now_us)[:RING_DEPTH]


def is_free(row: KeyRow, now_us: int) -> bool:
    """Whether a slot is to be had."""
    return sum(1 for _ in live_slots(row, now_us)) < row.limit


def live_slots(row: KeyRow, now_us: int) -> Iterable[SlotRow]:
    """The slots that somebody owns now."""
    return (s for s in row.slots if s.owner is not None and s.expires_us > now_us)


def decide(
    row: KeyRow, request: AcquireRequest, now_us: int, place: PlaceRow | None
) -> Take | Wait:
    """The outcome of ``request``, whose live place in the queue is ``place``.

    The owner of a slot gets it again, even when it has expired, as long as nobody took it; a
    resuming host takes its own slot over at once. Neither waits for the queue.
    """
    if request.limit == row.limit == 1 and not row.places:
        # A lock that is free and has no queue is the everyday case, and needs no lists.
        if not row.slots:
            return Take(None, 1)
        if row.slots[0].owner is None:
            return Take(row.slots[0], 1)
    own = _slot_of(row, request)
    if own is not None:
        if own.owner == request.owner:
            return Take(own, row.limit, again=True)
        ending = Ended.RESUMED if own.expires_us > now_us else Ended.EXPIRED
        return Take(own, row.limit, ending=ending)
    live = list(live_slots(row, now_us))
    ahead = _ahead(row, place, now_us) if row.places else []
    if live and request.limit != row.limit:
        # Two programs disagree: all slots must be free before the limit may change.
        last = max(live, key=_expiry)
        retry_us = turn_in_us(now_us, last.expires_us, ahead=len(ahead), free_slots=1)
        return Wait(last.owner, retry_us, len(ahead), row.limit)
    free = request.limit - len(live)
    if free <= 0:
        first = min(live, key=_expiry)
        retry_us = turn_in_us(now_us, first.expires_us, ahead=len(ahead), free_slots=1)
        return Wait(first.owner, retry_us, len(ahead), row.limit)
    if not ahead:
        return _take_free(row, request, now_us, ())
    since_us = _free_since(row, now_us)
    if may_take(now_us, since_us, ahead=len(ahead), free_slots=free):
        # Only those for whom no slot is left over have had their chance.
        return _take_free(row, request, now_us, tuple(ahead[: max(0, len(ahead) - free + 1)]))
    retry_us = turn_in_us(now_us, since_us, ahead=len(ahead), free_slots=free)
    return Wait(None, retry_us, len(ahead), row.limit)


def _expiry(slot: SlotRow) -> int:
    return slot.expires_us


def _slot_of(row: KeyRow, request: AcquireRequest) -> SlotRow | None:
    for slot in row.slots:
        if slot.owner == request.owner:
            return slot
    if request.resume:
        name = host_of(request.owner)
        for slot in row.slots:
            if slot.owner is not None and host_of(slot.owner) == name:
                return slot
    return None


def _ahead(row: KeyRow, place: PlaceRow | None, now_us: int) -> list[PlaceRow]:
    counted = waiting(row, now_us)
    return counted if place is None else [p for p in counted if p.id < place.id]


def _free_since(row: KeyRow, now_us: int) -> int:
    """When the key became free: the earliest instant at which the head could have answered."""
    instants = [
        slot.free_since_us if slot.owner is None else slot.expires_us
        for slot in row.slots
        if slot.owner is None or slot.expires_us <= now_us
    ]
    return min(instants, default=now_us)


def _take_free(
    row: KeyRow, request: AcquireRequest, now_us: int, passed: tuple[PlaceRow, ...]
) -> Take:
    for slot in row.slots[: request.limit]:
        if slot.owner is None:
            return Take(slot, request.limit, passed=passed)
        if slot.expires_us <= now_us:
            return Take(slot, request.limit, ending=Ended.EXPIRED, passed=passed)
    return Take(None, request.limit, passed=passed)
