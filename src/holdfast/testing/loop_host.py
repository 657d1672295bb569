"""What a virtual loop is made of: hosts, and callbacks, tasks and futures that know their place.

Owns nothing that moves: the loop decides when anything runs. Must never read a real clock.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from contextvars import Context, ContextVar, copy_context


class LoopHost:
    """One machine of a simulated fleet: it may crash, be paused, and has a clock of its own.

    Local time is ``offset + rate * true time``. ``loop.time()`` and timers use the local time of
    the host that asks, as they would on a real machine.
    """

    def __init__(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.name = name
        self.rate = rate
        self.offset = offset
        self.paused = False
        self.crashed = False
        self.ready: deque[Callback | Timer] = deque()

    def local_at(self, true: float) -> float:
        """This host's monotonic clock at the given true time."""
        return self.offset + self.rate * true

    def true_at(self, local: float) -> float:
        """The first true time at which this host's clock shows at least ``local``."""
        true = (local - self.offset) / self.rate
        # Rounding must not wake a sleeper a hair early: it would compute a rest too small to
        # move the time by, and spin.
        while self.local_at(true) < local:
            true = math.nextafter(true, math.inf)
        return true

    def __repr__(self) -> str:
        state = "crashed" if self.crashed else "paused" if self.paused else "up"
        return f"<{type(self).__name__} {self.name} {state}>"


current: ContextVar[LoopHost | None] = ContextVar("holdfast_simulated_host", default=None)


def current_host() -> LoopHost | None:
    """The simulated host whose code is running, or ``None`` outside of all."""
    return current.get()


def context_of(host: LoopHost | None) -> Context:
    """A copy of the current context that belongs to ``host``; ``None`` is the world outside."""
    context = copy_context()
    context.run(current.set, host)
    return context


class Callback(asyncio.Handle):
    """A callback with the host it belongs to."""

    host: LoopHost

    def run(self) -> None:
        """Call it in its context; errors go to the loop's exception handler."""
        self._run()


class Timer(asyncio.TimerHandle):
    """A callback for later; it becomes ready on its own host."""

    host: LoopHost

    def run(self) -> None:
        """Call it in its context; errors go to the loop's exception handler."""
        self._run()
