"""Who gets a key: the decision of one attempt, from its folder.

Pure: reads a folder and changes nothing. Time is the reader's own monotonic clock, because etcd
tells none: how long a key has been free is what this host has seen of it.
"""

from __future__ import annotations

from typing import NamedTuple

from outlive.drivers.etcd.folder import Folder, Live, Place, Slot
from outlive.model.lease import AcquireRequest, Ended
from outlive.model.turns import PASS_AFTER_US, may_take, turn_in_us
from outlive.names import host_of


class Take(NamedTuple):
    """The attempt may succeed, on the slot of this number.

    ``limit`` is the number of slots the key has from then on. ``former`` is what stands there, if
    the slot was ever used. ``again`` means that the owner has it now and keeps its token.
    ``ending`` is why the grant that stood there is over, if it was not ended before. ``passed``
    are the places that are overtaken.
    """

    number: int
    limit: int
    former: Slot | None
    again: bool = False
    ending: Ended | None = None
    passed: tuple[Place, ...] = ()


class Wait(NamedTuple):
    """The attempt is refused.

    ``live`` are the grants that stand in the way; without any the key is free, and ``turn_us`` is
    how long those ahead are given. With some, it comes on top of what they have left.
    """

    live: tuple[Live, ...]
    turn_us: int
    ahead: int


def decide(folder: Folder, request: AcquireRequest, now_us: int, free_since_us: int) -> Take | Wait:
    """The outcome of ``request``, if nothing has changed since the folder was read.

    The owner of a slot gets it again, even when it ran out, as long as nobody took it; a resuming
    host takes its own slot over at once. Neither waits for the queue.
    """
    own = _slot_of(folder, request)
    if own is not None:
        if own.value.owner == request.owner and own.live is not None:
            return Take(own.number, folder.limit, own, again=True)
        ending = Ended.EXPIRED if own.live is None else Ended.RESUMED
        return Take(own.number, folder.limit, own, ending=ending)
    live = tuple(folder.live)
    ahead = _ahead(folder, request)
    free = request.limit - len(live)
    if live and (request.limit != folder.limit or free <= 0):
        # Where two programs disagree, all slots must be free before the limit may change.
        return Wait(live, PASS_AFTER_US * len(ahead), len(ahead))
    if ahead and not may_take(now_us, free_since_us, ahead=len(ahead), free_slots=free):
        turn_us = turn_in_us(now_us, free_since_us, ahead=len(ahead), free_slots=free)
        return Wait((), turn_us, len(ahead))
    # Only those for whom no slot is left over have had their chance.
    passed = tuple(ahead[: max(0, len(ahead) - free + 1)])
    number = next(
        (slot.number for slot in folder.slots[: request.limit] if slot.live is None),
        len(folder.slots),
    )
    former = folder.slot(number)
    ended = former is None or former.value.owner is None
    ending = None if ended else Ended.EXPIRED
    return Take(number, request.limit, former, ending=ending, passed=passed)


def is_free(folder: Folder) -> bool:
    """Whether a slot is to be had."""
    return len(folder.live) < folder.limit


def _slot_of(folder: Folder, request: AcquireRequest) -> Slot | None:
    for slot in folder.slots:
        if slot.value.owner == request.owner:
            return slot
    if request.resume:
        name = host_of(request.owner)
        for slot in folder.slots:
            if slot.value.owner is not None and host_of(slot.value.owner) == name:
                return slot
    return None


def _ahead(folder: Folder, request: AcquireRequest) -> list[Place]:
    own = folder.place_of(request.owner)
    counted = folder.counted()
    return counted if own is None else [place for place in counted if place.id < own.id]
