"""The port of operators: what is known of jobs and queues, and what may be done to them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from outlive.model.job import (
    ALL_PARTS,
    Attempt,
    Changed,
    JobFilter,
    JobRecord,
    QueuePart,
    QueueRecord,
    QueueSettings,
)
from outlive.names import JobId


class JobDesk(Protocol):
    """Jobs and queues of one namespace, as operators meet them.

    Each method is one atomic step, judged by the store's own clock, and may be repeated. Any of
    them may raise ``StoreUnavailable`` (nothing was applied) or ``OutcomeUnknown``.
    """

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """End live jobs as cancelled, at once or, if claimed, by way of their claimants.

        Cancelled already is ``changed``. The reason is kept as the job's error.
        """
        ...

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Make jobs ready now: those that wait for their time, and dead and cancelled ones.

        The latter begin again, with nothing counted against them. Done and claimed ones are
        refused, and one whose unique key another live job has by now.
        """
        ...

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Forget jobs that have ended; live ones are refused."""
        ...

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What is known of one job."""
        ...

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs in order of enqueueing; ``after`` is the cursor of the last one before.

        Pages skip nothing that was there before the first of them and still matches.
        """
        ...

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job, newest first, ``ATTEMPTS_KEPT_MAX`` at most."""
        ...

    async def put_queue(
        self, settings: QueueSettings, *, parts: Collection[QueuePart] = ALL_PARTS
    ) -> None:
        """Let these settings hold for a queue from now on. Repeatable.

        Of ``parts`` alone: whatever else is set stays, also what somebody sets at the same time. A
        part that is not put is as if by default where the queue had no settings.

        Limits replace those that were there, all of them, unless they are a handler's and those of
        before are an operator's: then these stay. An operator who puts none lifts them, and the
        next handler's hold.

        Raises:
            UnsupportedByDriver: The backend keeps no limits, and some are asked for.
        """
        ...

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs, by name."""
        ...
