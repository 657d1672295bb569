"""Rings that a listener had no room for: kept for a moment, and sent when it has read the others.

A bell holds about ten datagrams. Each names what it is about, so that those which are there do not
make up for one that is not: whoever waits for that would wait for his poll. Owns what is kept for
each bell, on the event loop alone. It must never block, and forgets what nobody takes.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence

from outlive.ports.wakeups import MISSED

Ring = tuple[str, int, int]
"""A topic, a waiter and a position, as they travel."""

# A listener that reads takes ten datagrams within a turn of its loop; one that is busy is not asked
# more often than this.
_FIRST_S = 0.001
_LONGEST_S = 0.05

# Whoever has not read for this long stands still, or has looked by his own poll meanwhile.
_PATIENCE_S = 5.0

# Above this it costs a listener less to look at all it waits for than to be told of each.
_KEPT_MAX = 1024


class _Kept:
    """What is kept for one bell: each ring once, in order."""

    __slots__ = ("pause_s", "rings", "until")

    def __init__(self, until: float) -> None:
        self.rings: dict[Ring, None] = {}
        self.pause_s = _FIRST_S
        self.until = until


class Backlog:
    """The rings to come, by the name of their bell."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[Sequence[Ring], str], bool],
        together: int,
    ) -> None:
        self._loop = loop
        # Whether the bell of this name took as many as ``together``, or is gone.
        self._send = send
        self._together = together
        self._kept: dict[str, _Kept] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, rings: Sequence[Ring], name: str) -> None:
        """Send these when the bell has room."""
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = _Kept(self._loop.time() + _PATIENCE_S)
            self._wait(name, kept)
        # What comes now has as much time as what came before.
        kept.until = self._loop.time() + _PATIENCE_S
        kept.rings.update(dict.fromkeys(rings))
        if len(kept.rings) > _KEPT_MAX:
            kept.rings = {(MISSED.topic, MISSED.waiter, MISSED.position): None}

    def close(self) -> None:
        """Send what there is room for now, and forget the rest. Repeatable."""
        for timer in self._timers.values():
            timer.cancel()
        for name, kept in self._kept.items():
            self._send_some(name, kept)
        self._timers.clear()
        self._kept.clear()

    def _wait(self, name: str, kept: _Kept) -> None:
        self._timers[name] = self._loop.call_later(kept.pause_s, self._try, name, kept)

    def _try(self, name: str, kept: _Kept) -> None:
        if self._send_some(name, kept):
            # It reads: whatever is left has time again.
            kept.pause_s = _FIRST_S
            kept.until = self._loop.time() + _PATIENCE_S
        if not kept.rings or self._loop.time() >= kept.until:
            del self._kept[name], self._timers[name]
            return
        self._wait(name, kept)
        kept.pause_s = min(2 * kept.pause_s, _LONGEST_S)

    def _send_some(self, name: str, kept: _Kept) -> bool:
        """Whether the bell took any."""
        before = len(kept.rings)
        while kept.rings:
            rings = list(itertools.islice(kept.rings, self._together))
            if not self._send(rings, name):
                break
            for ring in rings:
                del kept.rings[ring]
        return len(kept.rings) < before
