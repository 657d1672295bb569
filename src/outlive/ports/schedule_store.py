"""The port of schedules: ticks that one host of the fleet turns into jobs, with no leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.schedule import Due, Fired, Firing, NewSchedule, ScheduleRecord


class ScheduleStore(Protocol):
    """Schedules of one namespace in one store, which keeps its jobs as well.

    Each method is one atomic step, judged by the store's own wall clock, because ticks are instants
    that people name. Any method may raise ``StoreUnavailable`` (nothing was applied) or
    ``OutcomeUnknown`` (all of it or nothing was applied). All of them may be repeated after that.
    """

    async def put(self, schedule: NewSchedule) -> ScheduleRecord:
        """Keep a schedule under its name, new or changed, and return what is kept now.

        The same definition again changes nothing: ticks that were missed meanwhile stay missed and
        are caught up with. Another definition takes over with ``next_at_us`` as its next tick. One
        that is paused stays paused.
        """
        ...

    async def get(self, name: str) -> ScheduleRecord | None:
        """What is known of one schedule."""
        ...

    async def list(self, *, after: str | None, limit: int) -> Sequence[ScheduleRecord]:
        """A page of schedules by name (in order of their bytes); ``after`` is the last one's."""
        ...

    async def delete(self, name: str) -> bool:
        """Remove a schedule; false if there was none. Jobs it has made stay."""
        ...

    async def pause(self, name: str) -> ScheduleRecord | None:
        """Let it not fire until it is resumed; ``None`` if there is none. Paused stays paused."""
        ...

    async def resume(self, name: str, *, next_at_us: int) -> ScheduleRecord | None:
        """Let a paused one fire again, from that tick on; one that is not paused is unchanged."""
        ...

    async def due(self, *, limit: int) -> Due:
        """Schedules whose next tick has come, the most overdue first, and what time it is.

        With them, those that were fired more than ``CLOCK_TOLERANCE_US`` ahead of now: the clock
        was set back. Paused ones never. ``next_due_s`` counts to the soonest next tick of the
        others; with a ``limit`` of 0 all are among them.
        """
        ...

    async def fire(self, firing: Firing) -> Fired:
        """Move a schedule on to its next tick and enqueue the job of this one, both or neither.

        Nothing happens if the schedule has another version by now, or is paused or gone; that is
        also the answer to a firing that is repeated. The job is enqueued as ``JobStore.enqueue``
        does it, hosts that wait for it included: one whose id is there already adds nothing. A
        queue that drains takes no job, and the schedule moves on. Without a tick, a last one that
        lies beyond the next is forgotten: the clock was wrong when it was fired.
        """
        ...
