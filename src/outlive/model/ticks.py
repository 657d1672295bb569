"""Ticks of a fixed interval: which one is due, and which were missed. Pure.

Tick ``n`` is due at ``n * interval`` seconds after the epoch, so every host of a fleet agrees on
the numbers without talking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

# Clocks of a fleet differ by less than this unless one of them is broken. A host that is behind
# waits for the ticks its peers have run; only beyond this is the stored number taken for wrong.
_CLOCK_TOLERANCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """One run of a periodic function.

    Its number, when it was due, and how many before it were missed since the last that ran.
    """

    number: int
    due_at: datetime
    missed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Either a tick to run now, or how long to wait; ``last`` is what to remember."""

    run: Tick | None
    wait_s: float
    last: int


def decide(now_s: float, interval_s: float, last: int | None) -> Decision:
    """What to do at wall time ``now_s`` when tick ``last`` was the newest that ran.

    The very first tick of all is the next one, never a past one. When the clock has gone back
    behind ticks that already ran, they do not run again; when it went back by more than clocks of
    one fleet differ, counting starts anew from the present, because waiting for a wrong future
    would stop the function for as long as the clock was wrong.
    """
    current = math.floor(now_s / interval_s)
    until_next = (current + 1) * interval_s - now_s
    if last is None or (last - current) * interval_s > max(_CLOCK_TOLERANCE_S, interval_s):
        return Decision(run=None, wait_s=until_next, last=current)
    if current <= last:
        return Decision(run=None, wait_s=(last + 1) * interval_s - now_s, last=last)
    tick = Tick(
        number=current,
        due_at=datetime.fromtimestamp(current * interval_s, UTC),
        missed=current - last - 1,
    )
    return Decision(run=tick, wait_s=0.0, last=current)
