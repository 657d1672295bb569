"""From a decision to the transaction that carries it out: conditions and operations.

Pure. Every change by an owner is conditional on its token; every change that a folder led to is
conditional on nothing having been written there since. The number of conditions never depends on
the number of slots or places.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from outlive.drivers.etcd.decide import Take
from outlive.drivers.etcd.folder import (
    EndedValue,
    Folder,
    Live,
    Place,
    PlaceValue,
    RecordValue,
    Slot,
    SlotValue,
    encoded,
)
from outlive.drivers.etcd.keys import Names
from outlive.drivers.etcd.operations import (
    Condition,
    CreatedAt,
    Delete,
    Operation,
    Put,
    Term,
    Unmodified,
)
from outlive.model.lease import HISTORY_MAX, AcquireRequest, Ended

# etcd refuses transactions of more than 128 operations (--max-txn-ops). A break writes two for
# each slot, and one more deletes their live keys and a few are shared.
SLOTS_MAX = 60

# The ended grants of a slot go around in a ring of names, so that nothing has to be pruned. A few
# more than are shown, because those of one slot are not always the newest.
_RING = HISTORY_MAX + 20

# Marks of passed places stand in the record. More would only be seen where hundreds of waiters
# died together, and a mark that is forgotten costs one PASS_AFTER.
_PASSED_MAX = 200


class Change(NamedTuple):
    """One transaction: what must hold, and what is then done."""

    conditions: tuple[Condition, ...]
    operations: tuple[Operation, ...]


def ring_of(limit: int) -> int:
    """How many ended grants a slot of a key keeps; together they are about ``_RING``."""
    return max(4, -(-_RING // max(1, limit)))


def unmodified(names: Names, folder: Folder) -> Unmodified:
    """The condition that nothing of the folder was written since it was read."""
    start, end = names.folder(folder.key)
    return Unmodified(start, end, folder.revision)


def take(
    names: Names, folder: Folder, request: AcquireRequest, decided: Take, *, term: Term, now_us: int
) -> Change:
    """Own the slot that was decided on, under a lease of etcd; record how the last grant ended."""
    key, number, former = folder.key, decided.number, decided.former
    value = SlotValue(
        owner=request.owner,
        version=1 if former is None else former.value.version + 1,
        ttl_us=term.ttl_s * 1_000_000,
        acquired_us=now_us,
        metadata=request.metadata,
        ended=0 if former is None else former.value.ended,
        turn=0 if former is None else former.value.turn,
    )
    conditions: list[Condition] = [unmodified(names, folder)]
    operations: list[Operation] = []
    live = None if former is None else former.live
    if decided.again:
        assert former is not None
        assert live is not None
        conditions.append(CreatedAt(live.name, live.token))
        acquired_us = former.value.acquired_us
        value = msgspec.structs.replace(value, token=former.token, acquired_us=acquired_us)
    elif decided.ending is not None:
        assert former is not None
        value = msgspec.structs.replace(value, ended=value.ended + 1)
        operations.append(_ended(names, folder, former, decided.ending, now_us))
        if live is not None:
            # The live key must be created anew, for its creation is the token: under its other
            # name. If it ran out meanwhile, deleting it does nothing.
            value = msgspec.structs.replace(value, turn=1 - live.turn)
            operations.append(Delete(live.name))
    operations += [
        Put(names.live(key, number, value.turn), request.owner.encode(), term.id),
        Put(names.slot(key, number), encoded(value)),
    ]
    place = folder.place_of(request.owner)
    if place is not None:
        operations.append(Delete(names.place(key, place.owner)))
    operations += _resize(names, folder, decided, now_us)
    operations += _record(names, folder, decided, place)
    return Change(tuple(conditions), tuple(operations))


def _resize(names: Names, folder: Folder, decided: Take, now_us: int) -> list[Operation]:
    """Drop the slots beyond the new limit. Decided only when nobody owns any of them."""
    beyond = folder.slots[decided.limit :]
    if not beyond:
        return []
    operations: list[Operation] = [
        _ended(names, folder, slot, Ended.EXPIRED, now_us)
        for slot in beyond
        if slot.value.owner is not None
    ]
    operations.append(Delete(*names.slots_from(folder.key, decided.limit)))
    return operations


def _record(names: Names, folder: Folder, decided: Take, own: Place | None) -> list[Operation]:
    """Write what the slots share, where it changes."""
    marked = folder.passed | {place.id for place in decided.passed}
    # The one who takes has no place any more, and marks of places that ran out are forgotten.
    living = {place.id for place in folder.places if place is not own}
    passed = tuple(sorted(marked & living)[-_PASSED_MAX:])
    if decided.limit == folder.limit and frozenset(passed) == folder.passed:
        return []
    return [Put(names.record(folder.key), encoded(RecordValue(decided.limit, passed)))]


def _ended(
    names: Names, folder: Folder, slot: Slot, why: Ended, now_us: int, detail: str | None = None
) -> Put:
    value = slot.value
    assert value.owner is not None
    # Clocks of two hosts differ: an end before the beginning would only confuse.
    ended_us = max(now_us, value.acquired_us)
    entry = EndedValue(slot.token, value.owner, value.acquired_us, ended_us, why, detail)
    number = value.ended % ring_of(folder.limit)
    return Put(names.ended(folder.key, slot.number, number), encoded(entry))


def _freed(slot: Slot, token: int) -> SlotValue:
    """The slot without an owner. The token stays: the next grant must be told from this one."""
    value = slot.value
    return msgspec.structs.replace(
        value, owner=None, token=token, version=value.version + 1, ended=value.ended + 1
    )


def release(names: Names, folder: Folder, slot: Slot, now_us: int) -> Change:
    """End the grant of ``slot``, by its owner. If it lasts, only its own token is asked for."""
    freed = Put(names.slot(folder.key, slot.number), encoded(_freed(slot, slot.token)))
    if slot.live is None:
        ended = _ended(names, folder, slot, Ended.EXPIRED, now_us)
        return Change((unmodified(names, folder),), (ended, freed))
    ended = _ended(names, folder, slot, Ended.RELEASED, now_us)
    condition = CreatedAt(slot.live.name, slot.token)
    return Change((condition,), (Delete(slot.live.name), freed, ended))


def break_all(names: Names, folder: Folder, *, now_us: int, reason: str) -> Change:
    """End every grant that lasts and leave a greater token behind.

    One more than the greatest is smaller than the revision of any later grant: this transaction
    itself has a revision in between.
    """
    token = folder.token + 1
    operations: list[Operation] = []
    for slot in folder.slots:
        if slot.live is not None:
            operations += [
                Put(names.slot(folder.key, slot.number), encoded(_freed(slot, token))),
                _ended(names, folder, slot, Ended.BROKEN, now_us, reason),
            ]
    start = names.live(folder.key, 0, 0)
    operations.append(Delete(start, names.live(folder.key, len(folder.slots), 0)))
    return Change((unmodified(names, folder),), tuple(operations))


def extend(
    names: Names, folder: Folder, slot: Slot, live: Live, *, term: Term, state: str | None
) -> Change:
    """Hang the grant on another lease of etcd, because the ttl of one never changes."""
    value = msgspec.structs.replace(
        slot.value,
        token=slot.token,
        version=slot.value.version + 1,
        ttl_us=term.ttl_s * 1_000_000,
    )
    operations: list[Operation] = [
        Put(live.name, live.owner.encode(), term.id),
        Put(names.slot(folder.key, slot.number), encoded(value)),
    ]
    if state is not None:
        operations.append(Put(names.state(folder.key), state.encode()))
    return Change((CreatedAt(live.name, live.token),), tuple(operations))


def queue(names: Names, key: str, owner: str, *, host: str, term: Term) -> Change:
    """Have a place, unless there is one. Unconditional: what is shown afterwards decides."""
    name = names.place(key, owner)
    return Change(
        (CreatedAt(name, 0),), (Put(name, encoded(PlaceValue(host, term.ttl_s)), term.id),)
    )


def requeue(names: Names, key: str, place: Place, *, term: Term) -> Change:
    """Keep a place for another time; its order is that of its creation and does not change."""
    name = names.place(key, place.owner)
    value = encoded(PlaceValue(place.host, term.ttl_s))
    return Change((CreatedAt(name, place.id),), (Put(name, value, term.id),))


def count_again(names: Names, folder: Folder, place: Place) -> Change:
    """Let a passed place count again, because its owner attempts."""
    living = {other.id for other in folder.places}
    passed = tuple(sorted((folder.passed - {place.id}) & living))
    value = encoded(RecordValue(folder.limit, passed))
    record = names.record(folder.key)
    # Exactly this record: a range of one key.
    condition = Unmodified(record, record + b"\0", folder.revision)
    return Change((condition,), (Put(record, value),))
