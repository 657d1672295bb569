"""The port of wake-ups: hints that something changed. Losing one costs latency, never work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from outlive.names import HostId


@dataclass(frozen=True, slots=True)
class Wakeup:
    """Something about ``topic`` changed.

    For leases the topic is ``lease/<key>``, ``waiter`` the place in the queue that is meant, and
    ``position`` how many live places stand before it.
    """

    topic: str
    waiter: int = 0
    position: int = 0


MISSED = Wakeup("missed")
"""Look at what you wait for: the driver has become deaf, hears again, or lost count of rings."""

Listener = Callable[[Wakeup], None]


class Wakeups(Protocol):
    """Hints between the hosts of one namespace in one store."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` for each hint meant for this host or for all, and with ``MISSED``.

        It is called on the event loop that opened the driver. Returns the function that ends the
        subscription.
        """
        ...

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Send a hint to one host, or to all listening hosts of the namespace.

        Never raises for a listener that is gone. May be lost.
        """
        ...

    @property
    def deaf(self) -> bool:
        """Whether hints are known not to arrive now, so that waiters must poll."""
        ...
