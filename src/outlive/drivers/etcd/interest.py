"""Who waits here for which key, so that a host looks only where it must.

Owns a memory that is bounded by who really waits: a grant and a departure end an entry, and one
that nobody refreshed runs out like the place it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator

from outlive.clock import Clock
from outlive.model.turns import WAITER_TTL_US

# A waiter attempts several times within the life of its place; one that is silent for twice as
# long has gone without saying so.
_SILENCE_S = 2 * WAITER_TTL_US / 1e6


class Interest:
    """The waiters of one driver."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, dict[str, float]] = {}

    def begin(self, key: str, owner: str) -> None:
        """``owner`` waits for ``key``, or still does."""
        self._last.setdefault(key, {})[owner] = self._clock.monotonic()

    def end(self, key: str, owner: str) -> None:
        """It does not any more. Repeatable."""
        owners = self._last.get(key)
        if owners is not None and owners.pop(owner, None) is not None and not owners:
            del self._last[key]

    def __contains__(self, key: object) -> bool:
        return key in self._last

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._last))

    def forget_silent(self, key: str) -> None:
        """Drop those who have gone without saying so."""
        since = self._clock.monotonic() - _SILENCE_S
        for owner, last in list(self._last.get(key, {}).items()):
            if last < since:
                self.end(key, owner)
