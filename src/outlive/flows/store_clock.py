"""The store's wall clock as this host may know it: never ahead of it.

Owns one estimate from below. A timer that is fired when the estimate has reached its due time is
therefore never early by the store's own clock, whatever the clock of this machine says.
"""

from __future__ import annotations

import math

from outlive.clock import Clock

# A reply that was long under way lowers nothing, because what was known before still holds. One
# that is behind by more than this tells of a store whose clock was set back.
_SET_BACK_US = 2_000_000


class StoreClock:
    """Estimates the store's clock from the instants in its replies."""

    __slots__ = ("_at_us", "_clock", "_heard_at", "_rate")

    def __init__(self, clock: Clock, drift: float) -> None:
        self._clock = clock
        # Microseconds of the store's clock that certainly pass in a second of ours.
        self._rate = 1e6 * (1 - drift)
        self._at_us: float = -math.inf
        self._heard_at = 0.0

    @property
    def known(self) -> bool:
        """Whether the store has told its time yet."""
        return self._at_us > -math.inf

    def heard(self, at_us: int) -> None:
        """The store said ``at_us`` in a reply that is here now."""
        now = self._clock.monotonic()
        ahead_us = at_us - (self._at_us + (now - self._heard_at) * self._rate)
        if ahead_us > 0 or ahead_us < -_SET_BACK_US:
            self._at_us = at_us
            self._heard_at = now

    def now_us(self) -> int:
        """What the store's clock shows at least."""
        at_us = self._at_us + (self._clock.monotonic() - self._heard_at) * self._rate
        # Before the first reply nothing is running that could ask, except a test.
        return int(at_us) if at_us > -math.inf else 0

    def wait_s(self, due_us: int) -> float:
        """How long to wait before ``due_us`` is certain to have come; 0 if it has."""
        return max(0.0, (due_us - self.now_us()) / self._rate)
