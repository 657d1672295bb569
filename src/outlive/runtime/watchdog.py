"""The watchdog: knows whether the application's event loop still turns.

It runs on the keeper. While the loop is stuck it logs the stack that blocks it; features ask
``stalled_s`` and give up what they own when it passes their limit.
"""

from __future__ import annotations

import asyncio
import logging

from outlive.ports.driver import Driver
from outlive.runtime.runtime import Runtime

_log = logging.getLogger("outlive.host")

# A loop that answers later than this is worth a line in the log: users feel a second.
WARN_AFTER_S = 1.0


class Watchdog:
    """Watches one event loop from the keeper."""

    def __init__(self, runtime: Runtime, *, log: logging.Logger = _log) -> None:
        self._runtime = runtime
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._thread_id = runtime.thread_id()
        self._answered_at = runtime.clock.monotonic()
        self._asked_at: float | None = None
        self._warned = False
        self.loop_closed = False

    def stalled_s(self, now: float) -> float:
        """For how long the loop has owed an answer; 0 while it turns."""
        asked_at = self._asked_at
        return 0.0 if asked_at is None else max(0.0, now - asked_at)

    def tick(self, now: float, driver: Driver) -> float:
        """Ask the loop for a sign of life, and tell the log when it gives none."""
        del driver
        if self._asked_at is None:
            self._asked_at = now
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                self.loop_closed = True
        elif now - self._asked_at >= WARN_AFTER_S and not self._warned:
            self._warned = True
            self._log.warning(
                "the event loop has been blocked for %.1f s, here:\n%s",
                now - self._asked_at,
                self._runtime.stack_of(self._thread_id),
            )
        return now + self._runtime.tick_s / 2

    async def stop(self) -> None:
        """Nothing to end: the watchdog starts no tasks."""

    def _answer(self) -> None:
        now = self._runtime.clock.monotonic()
        asked_at, self._asked_at = self._asked_at, None
        if self._warned and asked_at is not None:
            self._warned = False
            self._log.warning("the event loop runs again after %.1f s", now - asked_at)
        self._answered_at = now
