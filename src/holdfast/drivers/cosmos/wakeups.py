"""Wake-ups that never come: Cosmos DB tells nobody that an item has changed.

Its change feed is polled like everything else, and costs more than reading the one item that a
waiter waits for.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.names import HostId
from holdfast.ports.wakeups import Listener, Wakeup


class NoWakeups:
    """The ``Wakeups`` of a backend without any: always deaf."""

    @property
    def deaf(self) -> bool:
        """Always: waiters poll."""
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
