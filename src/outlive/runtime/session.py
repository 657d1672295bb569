"""What this process may believe of its own session, shared by the keeper and the application.

Owns one deadline by the process's own clock. It is computed from before the request that was
acknowledged, less the clocks' drift and a margin, so that it passes here before the store lets
anybody else take over. Must never talk to a store.
"""

from __future__ import annotations

import math

from outlive.clock import Clock
from outlive.names import HostId


class LiveSession:
    """One session of this process, until it is lost. Written by the keeper, read by anybody."""

    __slots__ = ("_clock", "_safe_s", "deadline", "id", "lost", "opened")

    def __init__(self, id: HostId, clock: Clock, safe_s: float) -> None:  # noqa: A002 - it is one
        self.id = id
        self.opened = False
        # Why it was lost; final.
        self.lost: str | None = None
        self.deadline = -math.inf
        self._clock = clock
        self._safe_s = safe_s

    @property
    def held(self) -> bool:
        """Whether what hangs on the session is ours now, by our own clock."""
        return self.lost is None and self._clock.monotonic() < self.deadline

    @property
    def left_s(self) -> float:
        """How long it may still be relied on without another renewal."""
        return self.deadline - self._clock.monotonic() if self.lost is None else -math.inf

    def accept(self, asked_at: float) -> bool:
        """Take in the reply to a request sent at ``asked_at``; false if it came too late.

        A reply that arrives after the deadline revives nothing: local work has been cancelled.
        """
        if self.lost is not None:
            return False
        if self.opened and self._clock.monotonic() >= self.deadline:
            return False
        self.opened = True
        self.deadline = max(self.deadline, asked_at + self._safe_s)
        return self._clock.monotonic() < self.deadline


def safe_s(ttl_s: float, drift: float) -> float:
    """How long after a request that was acknowledged its session may be relied on.

    The margin is that of leases: half a second, or a tenth of a short ttl, for scheduling.
    """
    return ttl_s * (1 - drift) - min(0.5, ttl_s / 10)
