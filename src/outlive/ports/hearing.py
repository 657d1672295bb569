"""What drivers share in keeping the port of wake-ups: the listeners of one host, or none at all.

Owns who is called for a hint, and that one listener's mistake costs the others nothing. How hints
travel is each driver's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from outlive.names import HostId
from outlive.ports.wakeups import Listener, Wakeup


class Listeners:
    """Those who want to hear of hints, on one event loop."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._listeners: list[Listener] = []

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` from now on; the function that is returned ends it. Repeatable."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def tell(self, wakeup: Wakeup) -> None:
        """Call all of them, in the order in which they came."""
        for listener in list(self._listeners):
            try:
                listener(wakeup)
            except Exception:
                # One broken listener must not cost the others their hint.
                self._logger.exception("a notification listener failed")


class NoWakeups:
    """The ``Wakeups`` of a backend that tells nobody of a change: always deaf, so waiters poll."""

    @property
    def deaf(self) -> bool:
        """Always."""
        return True

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Never call ``listener``."""
        del listener
        return _nothing

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Tell nobody."""
        del wakeup, host


def _nothing() -> None:
    """End a subscription that never began."""
