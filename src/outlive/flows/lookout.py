"""The lookout: when a host asks the store for flows.

Pure: time comes in as an argument. At once while there may be some and a slot is free; else when
the next one comes due, and by the poll interval at the latest, because rings may be lost.
"""

from __future__ import annotations

import math

from outlive.model.flow_options import FlowOptions
from outlive.model.options import seconds

# The first claim after a rest takes so many at most, and each that was given all it asked for is
# followed by one of twice as many. Whoever wakes first would else take a whole crowd of flows that
# others have slots for; a crowd that is large enough for all takes a few claims more.
_BATCH_FIRST = 8


class Lookout:
    """What one host knows of flows that it could claim."""

    __slots__ = (
        "_asked_at_ring",
        "_batch",
        "_batch_max",
        "_floor_s",
        "_rings",
        "_soonest",
        "at",
        "hopeful",
        "poll_s",
    )

    def __init__(self, options: FlowOptions, claim_batch: int) -> None:
        self._batch_max = claim_batch
        self._batch = min(_BATCH_FIRST, claim_batch)
        self.poll_s = seconds(options.poll, "poll")
        self._floor_s = seconds(options.poll_floor, "poll_floor")
        self.hopeful = True
        """Whether there may be flows to claim."""
        self.at = 0.0
        """When to look though nobody rang."""
        self._rings = self._asked_at_ring = 0
        # The soonest flow of ours that came to wait since we last asked, which the answer may not
        # know of.
        self._soonest = math.inf

    def rang(self) -> None:
        """There may be flows to claim."""
        self._rings += 1
        self.hopeful = True

    def wait_s(self, now: float, *, free: int) -> float:
        """How long to wait before asking; 0 is to ask now."""
        left_s = self.at - now
        return 0.0 if left_s <= 0 or (self.hopeful and free) else left_s

    def limit(self, free: int) -> int:
        """How many to ask for with so many free slots."""
        return min(free, self._batch)

    def asks(self) -> None:
        """The store is asked now: what it does not know of comes to ``comes_due`` from here on."""
        self._asked_at_ring = self._rings
        self._soonest = math.inf

    def answered(self, now: float, *, got: int, limit: int, due_s: float) -> None:
        """The store gave ``got`` of at most ``limit`` flows; the next may be due in ``due_s``.

        A limit of 0 asked for letters only: what came due meanwhile is there for the next slot.
        """
        self.hopeful = got == limit or self._rings != self._asked_at_ring
        full = got == limit > 0
        self._batch = min(2 * self._batch if full else _BATCH_FIRST, self._batch_max)
        self.at = min(now + max(self._floor_s, due_s), self._soonest)

    def comes_due(self, now: float, in_s: float) -> bool:
        """A flow of ours comes due so soon; whether that is sooner than the next look."""
        at = now + max(self._floor_s, in_s)
        self._soonest = min(self._soonest, at)
        sooner = at < self.at
        if sooner:
            self.at = at
        return sooner
