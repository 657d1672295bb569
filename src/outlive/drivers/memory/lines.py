"""Orders in which rows of the memory store are kept: lines by a key, and rolls by arrival.

Owns no rows and decides nothing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

# A line is cleaned of what left it out of order when that outweighs what is in it; below this
# many entries the cleaning costs more than the memory.
_STALE_MIN = 64

Id = TypeVar("Id", bound=str)


class Line(Generic[Id]):
    """Ids in the order of their keys, the smallest first.

    Leaving out of order only forgets the key; the entry in the heap is dropped when it comes up.
    """

    __slots__ = ("_heap", "_keys")

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, ...], Id]] = []
        self._keys: dict[Id, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Id]:
        return iter(self._keys)

    def add(self, id_: Id, *key: int) -> None:
        """Put an id where its key says; one that is there already moves."""
        self._keys[id_] = key
        heapq.heappush(self._heap, (key, id_))
        if len(self._heap) > 2 * len(self._keys) + _STALE_MIN:
            self._heap = [(kept, one) for one, kept in self._keys.items()]
            heapq.heapify(self._heap)

    def remove(self, id_: Id) -> None:
        """Take an id out, wherever it stands. Repeatable."""
        self._keys.pop(id_, None)

    def first(self) -> tuple[tuple[int, ...], Id] | None:
        """The first id and its key."""
        heap, keys = self._heap, self._keys
        while heap and keys.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0] if heap else None


class Numbered(Protocol):
    """A row that has a place in a roll."""

    number: int


Row = TypeVar("Row", bound=Numbered)


class Roll(Generic[Row]):
    """Rows in order of arrival, found again by their number."""

    __slots__ = ("_last", "_rows", "_struck")

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._struck: set[int] = set()
        self._last = 0

    def append(self, row: Row) -> None:
        """Give a new row the next number."""
        self._last += 1
        row.number = self._last
        self._rows.append(row)

    def strike(self, row: Row) -> None:
        """Forget a row; nothing takes its number."""
        self._struck.add(row.number)
        if len(self._struck) * 2 > len(self._rows):
            self._rows = [kept for kept in self._rows if kept.number not in self._struck]
            self._struck.clear()

    def after(self, number: int) -> Iterator[Row]:
        """The rows behind a number."""
        start = bisect_right(self._rows, number, key=_number)
        return (row for row in self._rows[start:] if row.number not in self._struck)


def _number(row: Numbered) -> int:
    return row.number
