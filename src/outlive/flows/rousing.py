"""Rousing: one timer of the host's loop for the next thing that a flow waits for by the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from outlive.flows.store_clock import StoreClock

# A timer of the loop may ring a moment before the store's clock is certain to be there.
_AGAIN_S = 0.001


class Rouser:
    """Rings when the store's clock has certainly reached the instant that was set."""

    __slots__ = ("_clock", "_due_us", "_timer")

    def __init__(self, clock: StoreClock) -> None:
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._due_us: int | None = None

    def set(self, due_us: int | None, roused: Callable[[int], None]) -> None:
        """Call ``roused`` at this instant, and at none that was set before."""
        if due_us == self._due_us:
            return
        self.cancel()
        if due_us is not None:
            self._due_us = due_us
            self._wait(self._clock.wait_s(due_us), roused)

    def cancel(self) -> None:
        """Do not ring. Repeatable."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_us = None

    def _wait(self, wait_s: float, roused: Callable[[int], None]) -> None:
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._ring, roused)

    def _ring(self, roused: Callable[[int], None]) -> None:
        due_us, self._timer = self._due_us, None
        assert due_us is not None
        left_s = self._clock.wait_s(due_us)
        if left_s > 0:
            self._wait(max(left_s, _AGAIN_S), roused)
            return
        self._due_us = None
        roused(due_us)
