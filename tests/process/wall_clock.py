"""Whether the machine's wall clock was set while a test ran.

PostgreSQL and Redis judge expiry by their server's wall clock, which here is the machine's. A
machine that is paused, copied or corrected sets it forward, and that may end a lease before its
owner's deadline: of all promises the one (L3) that such a step is allowed to break.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import pairwise

# Half of the margin that owners with the shortest ttl of these tests keep (a tenth of 0.8 s): a
# smaller step breaks nothing.
STEP_S = 0.04

# Readings further apart were interrupted, and say nothing.
_TIGHT_S = 0.001


def read_offset() -> tuple[float, float] | None:
    """Boot time, and how far the wall clock is ahead of it; nothing if that took too long."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    wall = time.time()
    after = time.clock_gettime(time.CLOCK_BOOTTIME)
    return (after, wall - after) if after - before < _TIGHT_S else None


def backward_steps(readings: Iterable[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """The same of a clock that was set back, which delays every expiry."""
    return forward_steps((at, -offset) for at, offset in readings)


def forward_steps(readings: Iterable[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """Each step of more than ``STEP_S``: the times around it, and by how much."""
    ordered = sorted(readings)
    return [
        (at, later, ahead - offset)
        for (at, offset), (later, ahead) in pairwise(ordered)
        if ahead - offset > STEP_S
    ]
