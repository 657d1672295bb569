"""What a virtual loop is made of: hosts, and callbacks that know their place.

Owns nothing that moves: the loop decides when anything runs. Must never read a real clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar, copy_context
from typing import Any


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
        self.ready: deque[Callback] = deque()

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


current: ContextVar[LoopHost | None] = ContextVar("outlive_simulated_host", default=None)


def current_host() -> LoopHost | None:
    """The simulated host whose code is running, or ``None`` outside of all."""
    return current.get()


def context_of(host: LoopHost | None) -> Context:
    """A copy of the current context that belongs to ``host``; ``None`` is the world outside."""
    context = copy_context()
    context.run(current.set, host)
    return context


class Callback:
    """What a loop is asked to call, on which host and in which context, and when.

    It does what asyncio promises of its handles, and keeps nothing for a debug mode that no virtual
    loop has: tens of thousands are made in one run of one seed.
    """

    __slots__ = ("args", "callback", "context", "due", "host", "live")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        host: LoopHost,
        due: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.host = host
        # By the clock of the host that asked for it.
        self.due = due
        self.live = True

    def cancel(self) -> None:
        """Never call it. What it would have been given is let go."""
        self.live = False
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return not self.live

    def when(self) -> float:
        """When it is due, by the clock of the host that asked for it."""
        return self.due

    def get_context(self) -> Context:
        """The context that it is called in."""
        return self.context

    def _run(self) -> None:
        """Call it now, out of its turn; see ``ReadyHere``."""
        self.context.run(self.callback, *self.args)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.host.name}: {self.callback!r}>"


class ReadyHere:
    """What is ready on the host that asks, as asyncio's own loops keep it.

    For ``runtime.first_turns``, so that simulations begin tasks at once where hosts do. A host that
    has crashed or was paused in the middle of a callback always has something else to do.
    """

    __slots__ = ("_runnable", "_world")

    def __init__(self, world: LoopHost, runnable: list[LoopHost]) -> None:
        self._world = world
        self._runnable = runnable

    def __len__(self) -> int:
        host = current.get() or self._world
        return len(host.ready) + (host.paused or host.crashed)

    def popleft(self) -> Callback:
        """Take what is ready first away from the loop."""
        host = current.get() or self._world
        first = host.ready.popleft()
        if not host.ready:
            self._runnable.remove(host)
        return first


def _nothing() -> None:
    """What a cancelled callback would call."""
