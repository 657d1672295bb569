"""One time limit for all statements under way, instead of a timer for each.

Owns which connections are waited for and since when. A timer that is made and cancelled for every
statement costs the event loop a sixth of the statement itself; here the loop looks a few times per
limit, and not at all while nothing is under way.
"""

from __future__ import annotations

import asyncio
from typing import Any

# Looks per limit: a statement is given up after at least seven eighths of its time, never later
# than the whole of it.
_LOOKS = 8


class Overdue:
    """Terminates connections whose statement takes longer than ``limit_s``."""

    def __init__(self, limit_s: float) -> None:
        self._every_s = limit_s / _LOOKS
        self._patience_s = limit_s - self._every_s
        self._begun: dict[Any, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._clock = asyncio.get_running_loop().time

    def begin(self, connection: Any) -> None:
        """A statement was handed to ``connection``."""
        self._begun[connection] = self._clock()
        if self._timer is None:
            self._arm()

    def end(self, connection: Any) -> bool:
        """The statement is over; true if it was given up here."""
        return self._begun.pop(connection, None) is None

    def close(self) -> None:
        """Watch nothing any more. Repeatable."""
        self._begun.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._begun:
            return
        late = self._clock() - self._patience_s
        for connection in [c for c, since in self._begun.items() if since <= late]:
            del self._begun[connection]
            # The caller meets a lost connection, and learns from ``end`` that time was up.
            connection.terminate()
        if self._begun:
            self._arm()
