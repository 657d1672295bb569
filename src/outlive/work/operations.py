"""Operations: what people do to jobs and queues, singly and by filter, in bounded pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.job import (
    FINAL,
    LIVE,
    Changed,
    JobFilter,
    JobRecord,
    JobState,
    LimitsBy,
    QueueMode,
    QueuePart,
    QueueRecord,
    QueueSettings,
    put_parts,
)
from outlive.model.options import TTL_MAX_S, Duration, seconds
from outlive.names import JobId, check_key, check_queue
from outlive.ports.capabilities import Capabilities
from outlive.ports.job_store import JobStore
from outlive.work.handler import LIMIT_MAX, count_of

# One page is one statement; a filter that matches more goes on with the next.
PAGE_MAX = 1000

State = JobState | str
States = State | Iterable[State] | None


def filter_of(
    queue: str | None,
    state: States,
    unique_key: str | None = None,
    ordering_key: str | None = None,
    session: Any = None,
) -> JobFilter:
    """Which jobs are meant.

    Raises:
        UsageError, InvalidName: A state is unknown, or a name is wrong.
    """
    return JobFilter(
        queue=None if queue is None else check_queue(queue),
        states=states_of(state),
        unique_key=None if unique_key is None else check_key(unique_key, "unique_key"),
        ordering_key=None if ordering_key is None else check_key(ordering_key, "ordering_key"),
        session=session,
    )


def states_of(state: States) -> tuple[JobState, ...]:
    """The states that were named; empty for all of them.

    Raises:
        UsageError: A state is unknown, or a collection of them is empty.
    """
    if state is None:
        return ()
    named = [state] if isinstance(state, str) else list(state)
    if not named:
        # A caller who computed which states are meant, and found none, does not mean every job.
        raise UsageError("state= is empty: name at least one state, or leave state= out")
    try:
        return tuple(JobState(each) for each in named)
    except ValueError:
        known = ", ".join(each.value for each in JobState)
        raise UsageError(f"state must be one of {known}, not {state!r}") from None


def check_page(limit: object) -> int:
    """Return ``limit`` if it is the size of a page."""
    return count_of(limit, "limit", PAGE_MAX)


class Operations:
    """What people do to the jobs and queues of one namespace."""

    def __init__(self, store: JobStore, capabilities: Capabilities) -> None:
        self._store = store
        self._capabilities = capabilities

    async def each(
        self,
        wanted: JobFilter,
        change: Callable[[Sequence[JobId]], Awaitable[Sequence[Changed]]],
        states: tuple[JobState, ...],
    ) -> int:
        """Change every job that matches, a page at a time, and say how many were changed.

        Each page is one step; what comes to match while this goes on may or may not be included.
        """
        asked = wanted.states or states
        possible = tuple(state for state in asked if state in states)
        if not possible:
            return 0
        wanted = replace(wanted, states=possible)
        changed, after = 0, None
        while True:
            page = await self._store.list(wanted, after=after, limit=PAGE_MAX)
            if page:
                answers = await change([record.id for record in page])
                changed += sum(each in (Changed.CHANGED, Changed.REQUESTED) for each in answers)
                after = page[-1].cursor
            if len(page) < PAGE_MAX:
                return changed

    async def cancel(self, wanted: JobFilter, reason: str) -> int:
        """Cancel all live jobs that match."""
        return await self.each(wanted, lambda ids: self._store.cancel(ids, reason=reason), LIVE)

    async def retry(self, wanted: JobFilter) -> int:
        """Make all that match ready now: those that wait, and dead and cancelled ones."""
        states = (JobState.SCHEDULED, JobState.RETRYING, JobState.DEAD, JobState.CANCELLED)
        return await self.each(wanted, self._store.retry, states)

    async def purge(self, wanted: JobFilter) -> int:
        """Forget all ended jobs that match."""
        return await self.each(wanted, self._store.purge, FINAL)

    async def count(self, wanted: JobFilter) -> int:
        """How many jobs match."""
        if wanted.unique_key is None and wanted.ordering_key is None and wanted.session is None:
            states = wanted.states or (*LIVE, *FINAL)
            return sum(
                record.counts.get(state, 0)
                for record in await self._store.queues()
                if wanted.queue is None or record.settings.name == wanted.queue
                for state in states
            )
        counted, after = 0, None
        while True:
            page: Sequence[JobRecord] = await self._store.list(wanted, after=after, limit=PAGE_MAX)
            counted += len(page)
            if len(page) < PAGE_MAX:
                return counted
            after = page[-1].cursor

    async def settings(self, queue: str) -> QueueSettings:
        """What holds for a queue now."""
        check_queue(queue)
        records: Sequence[QueueRecord] = await self._store.queues()
        for record in records:
            if record.settings.name == queue:
                return record.settings
        return QueueSettings(name=queue)

    async def put_mode(self, queue: str, mode: QueueMode) -> None:
        """Open, pause or drain a queue; its limits stay."""
        settings = await self.settings(queue)
        if settings.mode is not mode:
            wanted = QueueSettings(name=queue, mode=mode)
            await self._store.put_queue(wanted, parts=(QueuePart.MODE,))

    async def declare_limits(
        self, queue: str, concurrency: int | None, rate: tuple[int, float] | None
    ) -> QueueSettings:
        """Let the limits that a handler declares hold, unless an operator's do; say what holds."""
        number, per_s = rate or (None, 1.0)
        wanted = self._limits(queue, concurrency, number, per_s, LimitsBy.HANDLER)
        return await self._put_limits(wanted)

    async def put_limits(
        self, queue: str, concurrency: int | None, rate: int | None, per: Duration
    ) -> None:
        """Set an operator's limits of a queue, or lift them; its mode stays."""
        await self._put_limits(self._limits(queue, concurrency, rate, per, LimitsBy.OPERATOR))

    async def _put_limits(self, wanted: QueueSettings) -> QueueSettings:
        # Workers start often, and nearly always find what they declare: whoever puts rings.
        held = await self.settings(wanted.name)
        parts = (QueuePart.LIMITS,)
        if put_parts(held, wanted, parts) == held:
            return held
        await self._store.put_queue(wanted, parts=parts)
        return await self.settings(wanted.name)

    def _limits(
        self,
        queue: str,
        concurrency: int | None,
        rate: int | None,
        per: Duration,
        limits_by: LimitsBy,
    ) -> QueueSettings:
        if concurrency is not None:
            count_of(concurrency, "concurrency", LIMIT_MAX)
        if rate is not None:
            count_of(rate, "rate", LIMIT_MAX)
        period_us = round(seconds(per, "per", most=TTL_MAX_S, zero=False) * 1e6)
        if not self._capabilities.queue_limits and (concurrency or rate):
            raise UnsupportedByDriver(
                f"{self._capabilities.backend} does not support fleet-wide limits of a queue; "
                "limit each worker, or use SQLite or Postgres"
            )
        return QueueSettings(
            name=check_queue(queue),
            concurrency=concurrency,
            rate=rate,
            rate_period_us=period_us,
            limits_by=limits_by,
        )
