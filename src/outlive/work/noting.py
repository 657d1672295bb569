"""How long a host asks to be told of more: for several looks at once.

A note that stands since an earlier look has been seen by whatever came meanwhile. A store can then
answer with one look instead of two, and need not write; so the note is asked for anew only when it
would not outlive the next look.
"""

from __future__ import annotations

import math

# Few enough that the note of a host that died, which is rung in vain, is gone soon.
_LOOKS = 3

# The note outlives the look behind it, so that there is always one while we wait; and looks that
# come a little late find it long enough.
_SPARE_S = 1.0


class Noting:
    """When the notes of one host end, by its own clock."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = -math.inf

    def wait_s(self, now: float, poll_s: float) -> float:
        """How long to ask for at ``now`` if the next look comes in ``poll_s``."""
        least_s = poll_s + _SPARE_S
        if self._until - now >= least_s:
            return least_s
        wait_s = _LOOKS * poll_s + 2 * _SPARE_S
        self._until = now + wait_s
        return wait_s

    def gone(self) -> None:
        """There is no note: somebody rang, or none was left, because there was enough."""
        self._until = -math.inf
