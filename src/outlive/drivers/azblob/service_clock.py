"""The time of the storage service, as its replies tell it.

Owns an estimate, used for tokens and for instants that people read. Whether a lease has run out is
never decided by it: the service says that itself.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from outlive.clock import Clock, instant, microseconds
from outlive.errors import StoreError

# A reply's date is cut to whole seconds and is as old as the way here: a reading this far behind
# what we believed is no such delay, but a clock that was set back.
_STEP_US = 3_000_000


class ServiceClock:
    """Follows the ``Date`` of every reply by the boot-time clock.

    The estimate is never ahead of the service, and behind it by at most a second and the way of
    the fastest reply. It only grows, unless the service's clock was set back.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_us: int | None = None

    def observe(self, date: str | None) -> None:
        """Take note of the ``Date`` of a reply that has just arrived."""
        if date is None:
            return
        try:
            told_us = microseconds(parsedate_to_datetime(date))
        except (TypeError, ValueError):
            # Not a date, or one without a zone: some proxy's own reply.
            return
        ahead_us = told_us - self._monotonic_us()
        known = self._ahead_us
        if known is None or ahead_us > known or ahead_us < known - _STEP_US:
            self._ahead_us = ahead_us

    def now_us(self) -> int:
        """Microseconds since the epoch.

        Raises:
            StoreError: No reply has told the time yet.
        """
        if self._ahead_us is None:
            raise StoreError(
                "no reply of Azure Blob Storage contained the time: a proxy removes the Date header"
            )
        return self._monotonic_us() + self._ahead_us

    def skew_s(self) -> float:
        """How far the service's clock is from this machine's wall clock."""
        return instant(self.now_us()).timestamp() - self._clock.now().timestamp()

    def _monotonic_us(self) -> int:
        return round(self._clock.monotonic() * 1e6)
