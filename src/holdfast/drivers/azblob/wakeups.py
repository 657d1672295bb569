"""No hints: a container tells nobody that a blob has changed, so waiters poll."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.names import HostId
from holdfast.ports.wakeups import Listener, Wakeup


class NoWakeups:
    """The ``Wakeups`` of a backend that has none: always deaf."""

    @property
    def deaf(self) -> bool:
        """Always: waiters must poll."""
        return True

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Do nothing: there is nothing to hear; see the port."""
        del listener
        return _nothing

    async def ring(self, wakeup: Wakeup, *, host: HostId | None = None) -> None:
        """Do nothing: nobody could hear it; see the port."""
        del wakeup, host


def _nothing() -> None:
    return None
