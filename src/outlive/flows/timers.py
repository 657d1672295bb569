"""What a run waits for by the clock: its timers, and the next attempts of steps that failed.

Owns the numbers under which histories know timers: which of the timers that were recorded it is,
so that no other release of Python, with other futures inside, counts them differently.
"""

from __future__ import annotations

import heapq

from outlive.flows.decision import RetryDue
from outlive.flows.events import TimerFired

# Timers that were cancelled are left in the heap until they come up, or until they outnumber the
# others by this much: a flow of ten thousand steps, each with a timeout of a day, keeps few.
_STALE_MAX = 64


_Entry = tuple[int, int, int | str]


class Timers:
    """The timers and retries of one run."""

    __slots__ = ("_by_loop", "_due", "_entries", "_heap", "_loop_numbers", "_numbers")

    def __init__(self) -> None:
        self._numbers = 0
        # The number in the history to the number in the loop, and back.
        self._loop_numbers: dict[int, int] = {}
        self._by_loop: dict[int, int] = {}
        # What still counts: a timer's number or a step's identity, and its entry in the heap, which
        # orders by due time, then by the order in which they were set.
        self._due: dict[int | str, _Entry] = {}
        self._heap: list[_Entry] = []
        self._entries = 0

    def set(self, loop_number: int, due_us: int) -> int:
        """A timer was set; the number it gets."""
        self._numbers += 1
        number = self._numbers
        self._loop_numbers[number] = loop_number
        self._by_loop[loop_number] = number
        self._push(number, due_us)
        return number

    def keep(self, number: int, due_us: int) -> None:
        """The history says when the timer is due, whatever the code says now."""
        if number in self._due and self._due[number][0] != due_us:
            self._push(number, due_us)

    def cancel(self, loop_number: int) -> None:
        """The code cancelled a timer."""
        number = self._by_loop.pop(loop_number, None)
        if number is not None:
            del self._loop_numbers[number]
            self._drop(number)

    def fired(self, number: int) -> int | None:
        """A timer came due: its number in the loop, or ``None`` if it does not count any more."""
        loop_number = self._loop_numbers.pop(number, None)
        if loop_number is not None:
            del self._by_loop[loop_number]
            self._drop(number)
        return loop_number

    def retry(self, step: str, due_us: int) -> None:
        """A step is to be tried again."""
        self._push(step, due_us)

    def retried(self, step: str) -> bool:
        """The step is tried again now, or never; whether it waited."""
        waited = step in self._due
        if waited:
            self._drop(step)
        return waited

    def __len__(self) -> int:
        return len(self._due)

    @property
    def next_us(self) -> int | None:
        """When the first of them is due."""
        heap = self._heap
        while heap:
            if self._counts(heap[0]):
                return heap[0][0]
            heapq.heappop(heap)
        return None

    def due(self, now_us: int, *, by_us: int | None = None) -> list[TimerFired | RetryDue]:
        """What is due now, or was ``by_us``, the earliest first. It stays due until it is fed."""
        until_us = now_us if by_us is None else by_us
        found: list[_Entry] = []
        while self._heap and self._heap[0][0] <= until_us:
            entry = heapq.heappop(self._heap)
            if self._counts(entry):
                found.append(entry)
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [
            TimerFired(at=now_us, timer=key) if isinstance(key, int) else RetryDue(now_us, key)
            for _, _, key in found
        ]

    def _counts(self, entry: _Entry) -> bool:
        return self._due.get(entry[2]) is entry

    def _push(self, key: int | str, due_us: int) -> None:
        self._entries += 1
        entry = (due_us, self._entries, key)
        self._due[key] = entry
        heapq.heappush(self._heap, entry)

    def _drop(self, key: int | str) -> None:
        del self._due[key]
        if len(self._heap) > 2 * len(self._due) + _STALE_MAX:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)
