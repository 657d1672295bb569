"""A folder read at one revision: what etcd knows of one key, as values.

Pure. Owns the format of the stored values. A folder is a photograph: what is written from it must
be conditional on nothing having changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec

from outlive.drivers.etcd.keys import Names
from outlive.drivers.etcd.operations import Stored
from outlive.errors import StoreError
from outlive.model.lease import Ended


class RecordValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of ``record``. ``passed`` are places that count for nothing, by their ids."""

    limit: int
    passed: tuple[int, ...] = ()


class SlotValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of ``slot``: the newest grant there, and how many ended before it.

    ``token`` of 0 means that this very write made the grant: the token is its revision, which no
    value can hold. ``owner`` is ``None`` once the grant was ended. Instants are of the wall clock
    of whoever wrote them, for people alone.
    """

    owner: str | None
    version: int
    ttl_us: int
    acquired_us: int
    metadata: str
    token: int = 0
    ended: int = 0
    turn: int = 0


class PlaceValue(msgspec.Struct, frozen=True):
    """The value of a place: the host to wake, and the ttl of the lease it hangs on."""

    host: str
    ttl_s: int


class EndedValue(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ended grant in the history."""

    token: int
    owner: str
    acquired_us: int
    ended_us: int
    ended: Ended
    detail: str | None = None


class Live(NamedTuple):
    """A grant that lasts: the key whose creation is its token, and the lease it hangs on."""

    name: bytes
    slot: int
    turn: int
    owner: str
    token: int
    lease: int


class Slot(NamedTuple):
    """The newest grant of one slot; ``live`` is ``None`` when it ended or ran out."""

    number: int
    token: int
    value: SlotValue
    live: Live | None


class Place(NamedTuple):
    """One place in the queue; ``id`` is the revision that made it, so places are in order."""

    id: int
    owner: str
    host: str
    lease: int
    ttl_s: int


class Folder(NamedTuple):
    """Everything about ``key`` at ``revision``. ``limit`` of 0 means that it was never granted.

    ``slots`` are in order and grow as slots are first used; ``places`` are in order of arrival.
    """

    key: str
    revision: int
    limit: int
    passed: frozenset[int]
    state: str | None
    slots: tuple[Slot, ...]
    places: tuple[Place, ...]

    def slot(self, number: int) -> Slot | None:
        """The slot of that number, if it was ever used."""
        return self.slots[number] if 0 <= number < len(self.slots) else None

    @property
    def live(self) -> list[Live]:
        """The grants that last."""
        return [slot.live for slot in self.slots if slot.live is not None]

    @property
    def token(self) -> int:
        """The greatest token of the key."""
        return max((slot.token for slot in self.slots), default=0)

    def place_of(self, owner: str) -> Place | None:
        """The place of ``owner``. An owner has one at most: it is part of the name."""
        return next((place for place in self.places if place.owner == owner), None)

    def counted(self) -> list[Place]:
        """The places that count, in order: those that were not passed."""
        return [place for place in self.places if place.id not in self.passed]


_encode = msgspec.json.Encoder().encode
_record_decoder = msgspec.json.Decoder(RecordValue)
_slot_decoder = msgspec.json.Decoder(SlotValue)
_place_decoder = msgspec.json.Decoder(PlaceValue)
_ended_decoder = msgspec.json.Decoder(EndedValue)


def encoded(value: RecordValue | SlotValue | PlaceValue | EndedValue) -> bytes:
    """The bytes to store."""
    return _encode(value)


def read_folder(names: Names, key: str, stored: Iterable[Stored], revision: int) -> Folder:
    """The folder of ``key`` from what its range holds at ``revision``.

    Raises:
        StoreError: Something in the range is not ours.
    """
    record = RecordValue(limit=0)
    state: str | None = None
    values: list[tuple[Stored, SlotValue]] = []
    live: dict[int, Live] = {}
    places: list[Place] = []
    begin = len(names.folder(key)[0])
    for item in stored:
        kind, _, rest = item.key[begin:].partition(b"\t")
        try:
            if kind == b"record":
                record = _record_decoder.decode(item.value)
            elif kind == b"slot":
                values.append((item, _slot_decoder.decode(item.value)))
            elif kind == b"live":
                found = _live(item, rest)
                live[found.slot] = found
            elif kind == b"state":
                state = item.value.decode()
            elif kind == b"wait":
                places.append(_place(item, rest))
        except (msgspec.MsgspecError, ValueError) as error:
            raise _strange(item, error) from error
    places.sort(key=attrgetter("id"))
    slots = tuple(
        Slot(number, value.token or item.modified, value, live.get(number))
        for number, (item, value) in enumerate(values)
    )
    return Folder(
        key, revision, record.limit, frozenset(record.passed), state, slots, tuple(places)
    )


def _live(item: Stored, rest: bytes) -> Live:
    slot, _, turn = rest.partition(b".")
    return Live(item.key, int(slot), int(turn), item.value.decode(), item.created, item.lease)


def _place(item: Stored, rest: bytes) -> Place:
    value = _place_decoder.decode(item.value)
    return Place(item.created, rest.decode(), value.host, item.lease, value.ttl_s)


def _strange(item: Stored, error: Exception) -> StoreError:
    return StoreError(
        f"the key {item.key!r} holds what no Outlive wrote ({error}); delete what was put there "
        "by hand, or use another prefix"
    )


def read_ended(stored: Sequence[Stored]) -> list[tuple[int, EndedValue]]:
    """The ended grants with their slots, newest first."""
    found: list[tuple[int, EndedValue]] = []
    for item in stored:
        try:
            found.append((int(item.key.split(b"\t")[-2]), _ended_decoder.decode(item.value)))
        except (msgspec.MsgspecError, ValueError) as error:
            raise _strange(item, error) from error
    found.sort(key=lambda entry: -entry[1].token)
    return found
