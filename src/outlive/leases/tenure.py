"""One grant in this process: what its owner may still believe, shared with the keeper's thread.

Owns the local truth about one grant. The deadline only ever moves forward, to a value computed
from the start of the request that was acknowledged; losing and releasing are final. Must never
talk to a store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import datetime
from enum import Enum

import msgspec

from outlive.errors import LeaseExpired, LeaseLost
from outlive.leases.events import Handlers
from outlive.model.lease import Grant
from outlive.model.options import LeasePlan
from outlive.runtime.portal import calling_thread


class Phase(Enum):
    """Where a tenure stands. Only HELD permits protected work."""

    HELD = "held"
    ENDING = "ending"
    RELEASED = "released"
    LOST = "lost"


# By names of their own where every grant passes: Python 3.11 takes as long to find a member in its
# class as for several function calls.
HELD = Phase.HELD
"""Protected work may go on."""

RELEASED = Phase.RELEASED
"""Given up by its owner."""

ALIVE = (Phase.HELD, Phase.ENDING)
"""Owned at the store, as far as known."""

# Transitions are rare and short, and come from two threads; one lock for all of them costs less
# than one lock per lease.
_transition = threading.Lock()


def caller_now(loop: asyncio.AbstractEventLoop | None = None) -> object:
    """Who asks: the thread behind the façade, or the running task (of ``loop``, if it is known)."""
    return calling_thread.get() or asyncio.current_task(loop)


# A struct, because every grant makes one, and setting so many attributes in Python takes five times
# as long as the rest of it.
class Tenure(msgspec.Struct, eq=False):
    """The local state of one grant."""

    grant: Grant
    plan: LeasePlan
    loop: asyncio.AbstractEventLoop
    pid: int
    origin: tuple[str, int]
    # Who acquired it: a task, or a thread of the blocking façade. Dropped at the end.
    caller: object
    # The start of the newest acknowledged request, by the monotonic clock.
    asked_at: float
    deadline: float
    renew_due: float
    # When the grant was asked for, by the monotonic clock; and by the wall clock, once asked.
    granted_at: float
    acquired_at: datetime | None = None
    phase: Phase = HELD
    error: LeaseLost | None = None
    renewals: int = 0
    attempt: int = 0
    at_risk_told: bool = False
    busy: bool = False
    stamp: int = -1
    handlers: Handlers | None = None
    lost_callbacks: list[Callable[[LeaseLost], None]] | None = None
    # Done when the block or function that runs under this lease has ended.
    block: asyncio.Future[None] | None = None
    # Weak, because a handle that the program drops ends the grant.
    handle: Callable[[], object] | None = None

    @classmethod
    def of(
        cls,
        grant: Grant,
        plan: LeasePlan,
        *,
        asked_at: float,
        loop: asyncio.AbstractEventLoop,
        pid: int,
        origin: tuple[str, int],
    ) -> Tenure:
        """The tenure of a fresh grant, which the running task of ``loop`` asked for."""
        return cls(
            grant,
            plan,
            loop,
            pid,
            origin,
            caller_now(loop),
            asked_at,
            asked_at + plan.safe_s,
            asked_at + plan.renew_after_s,
            asked_at,
        )

    def accept(self, grant: Grant, asked_at: float, now: float) -> bool:
        """Take in the reply to a renewal sent at ``asked_at``; false if it came too late.

        An older request's reply that arrives after a newer one's never moves the deadline back,
        and a reply that arrives after the deadline never revives the lease.
        """
        with _transition:
            if now >= self.deadline or self.phase not in ALIVE:
                return False
            if asked_at > self.asked_at:
                self.asked_at = asked_at
                self.deadline = asked_at + self.plan.safe_s
            if grant.version > self.grant.version:
                self.grant = grant
            self.renewals += 1
            self.attempt = 0
            self.at_risk_told = False
            return True

    def lose(self, error: LeaseLost) -> bool:
        """Mark the lease lost; false if it had ended before. Final."""
        with _transition:
            if self.phase not in ALIVE:
                return False
            # The reason first: readers look at the phase without the lock.
            self.error = error
            self.phase = Phase.LOST
            self.caller = None
            return True

    def end(self) -> bool:
        """Begin a release: protected work must stop, renewals go on until ``finish``."""
        with _transition:
            if self.phase is not HELD:
                return False
            self.phase = Phase.ENDING
            return True

    def finish(self) -> bool:
        """The release is under way at the store: no renewal may follow it."""
        with _transition:
            if self.phase not in ALIVE:
                return False
            self.phase = RELEASED
            self.caller = None
            return True

    def lost_at_release(self, error: LeaseLost) -> None:
        """The store refused the release: the lease had been lost before, unnoticed."""
        with _transition:
            self.error = error
            self.phase = Phase.LOST

    def expired(self) -> LeaseExpired:
        """The error of a deadline that passed."""
        return LeaseExpired(
            self.grant.key,
            f"lease {self.grant.key!r} was lost: no renewal was acknowledged within its ttl of "
            f"{self.plan.ttl_s:g} s; another host may own it now",
        )
