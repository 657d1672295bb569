"""Parking: flows that only wait, in the order in which they began to, until it is time to let go.

Owns one timer for all of them. A flow that is let go costs a row in the store and nothing here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlive.flows.activation import LiveFlow
from outlive.flows.store_clock import StoreClock

# Waiting flows that are kept in memory through their grace; beyond this the longest waiting go at
# once. At some ten kilobytes each they take about twenty megabytes, and what a process once took it
# hardly gives back: with those that run, a host stays below fifty however many sleep.
_KEPT_MAX = 2_000


class Parking:
    """The flows of one host that only wait."""

    def __init__(
        self, clock: StoreClock, grace_s: float, let_go: Callable[[LiveFlow], None]
    ) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._let_go = let_go
        # A dict keeps the order; each with the time at which its grace ends.
        self._waiting: dict[str, tuple[LiveFlow, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, live: LiveFlow) -> None:
        """It only waits from now on."""
        loop = asyncio.get_running_loop()
        self._waiting[live.id] = live, loop.time() + self._grace_s
        if self._timer is None:
            self._timer = loop.call_later(self._grace_s, self._look)
        if len(self._waiting) > _KEPT_MAX:
            longest, _ = next(iter(self._waiting.values()))
            self._let_go(longest)

    def leave(self, live: LiveFlow) -> None:
        """It does something again, or is gone. Repeatable."""
        if self._waiting.get(live.id, (None,))[0] is live:
            del self._waiting[live.id]

    def close(self) -> None:
        """Look no more. Repeatable."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        over = [live for live, _ in self._past(loop.time())]
        for live in over:
            due_us = live.run.due_at_us
            if due_us is not None and self._clock.wait_s(due_us) < self._grace_s:
                # To be woken so soon, it is cheaper to keep.
                self._waiting.pop(live.id, None)
                self._waiting[live.id] = live, loop.time() + self._grace_s
            else:
                self._let_go(live)
        if self._waiting:
            _, until = next(iter(self._waiting.values()))
            # Together with those of the next moment, so that many are let go in one write.
            wait_s = max(until - loop.time(), self._grace_s / 20, 0.01)
            self._timer = loop.call_later(wait_s, self._look)

    def _past(self, now: float) -> list[tuple[LiveFlow, float]]:
        found: list[tuple[LiveFlow, float]] = []
        for entry in self._waiting.values():
            if entry[1] > now:
                break
            found.append(entry)
        return found
