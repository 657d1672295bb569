"""Yielding: what this release cannot read is left to hosts of the release that wrote it.

Whoever gives a flow back is the first to be offered it again. So a host gives such flows back
together, tells all others, and does not ask for flows of their names for a moment. Such moments are
short and rare: of the same names there are flows that this release can run, and where nobody is of
the other release, they must not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from outlive.flows.activation import LiveFlow
from outlive.work.claiming import POLL_DEAF_S

if TYPE_CHECKING:
    from outlive.flows.household import Household

# A host that hears no rings looks so often, and has to find them in this time.
_AWAY_S = POLL_DEAF_S + 0.25

# From one moment to the next: at most a quarter of the time goes by without asking.
_EVERY_S = 4 * _AWAY_S


class Yielding:
    """The flows that one host leaves to others. ``names`` are those it does not ask for now."""

    def __init__(self, home: Household) -> None:
        self._home = home
        self._leaving: list[LiveFlow] = []
        # Until some are given back, and until all names are asked for again.
        self._timer: asyncio.TimerHandle | None = None
        self._away: asyncio.TimerHandle | None = None
        self._next_at = 0.0
        self.names: frozenset[str] = frozenset()
        # Called when this host may ask for all names again.
        self.over: Callable[[], None] = _nobody

    def leave(self, live: LiveFlow) -> None:
        """Leave a flow that this host owns to others, with the next that are left."""
        self._leaving.append(live)
        if self._timer is None:
            pause_s = max(0.0, self._next_at - self._home.runtime.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._give)

    def leave_all_now(self) -> None:
        """The host stops, and asks for nothing any more."""
        for timer in (self._timer, self._away):
            if timer is not None:
                timer.cancel()
        self._timer = self._away = None
        leaving, self._leaving = self._leaving, []
        for live in leaving:
            self._home.give_up(live, due=True)

    def _give(self) -> None:
        leaving, self._leaving = self._leaving, []
        self._timer = None
        self._next_at = self._home.runtime.clock.monotonic() + _EVERY_S
        self.names = frozenset(live.row.name for live in leaving)
        for live in leaving:
            self._home.give_up(live, due=True, then=self._home.ring)
        self._away = asyncio.get_running_loop().call_later(_AWAY_S, self._return)

    def _return(self) -> None:
        self.names = frozenset()
        self.over()


def _nobody() -> None:
    """Nobody asks for flows."""
