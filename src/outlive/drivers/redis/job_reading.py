"""What people are shown of jobs in Redis. Only reads.

A long listing is read in parts, each one atomic step, so that it holds nobody up.
"""

from __future__ import annotations

from collections.abc import Sequence

from outlive.drivers.redis.job_records import attempts_of, optional, queue_of, record_of
from outlive.drivers.redis.link import Link
from outlive.drivers.redis.scripts import load_job_scripts
from outlive.errors import UsageError
from outlive.model.job import (
    ATTEMPTS_KEPT_MAX,
    Attempt,
    JobFilter,
    JobRecord,
    JobState,
    QueueRecord,
)
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import JobId

# How many jobs, or queues, one part of a listing looks at: a script holds up everybody else, and
# this many take about a millisecond.
_LOOK_MAX = 200


class JobReader:
    """The methods of the ``JobStore`` of one namespace that change nothing."""

    def __init__(self, link: Link, keys: str) -> None:
        self._link = link
        self._keys = keys
        self._queues = f"{keys}queues"
        self._readers = load_job_scripts()

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What is known of one job; see the port."""
        found = await self._link.run(self._readers.get, 1, self._queues, self._keys, id)
        return None if found is None else record_of(found)

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs; see the port."""
        if after is not None and not (after.isascii() and after.isdigit()):
            raise UsageError(f"{after[:40]!r} is not a cursor of a listing of jobs")
        if wanted.ordering_key is not None:
            # No job has one here.
            return []
        most = min(limit, LIST_LIMIT_MAX)
        page: list[JobRecord] = []
        last: int | str | None = after or 0
        while last is not None and len(page) < most:
            last, *found = await self._link.run(
                self._readers.list,
                1,
                self._queues,
                self._keys,
                last,
                most - len(page),
                _LOOK_MAX,
                optional(wanted.queue),
                optional(wanted.unique_key),
                optional(wanted.session),
                *(wanted.states or tuple(JobState)),
            )
            page += (record_of(described) for described in found)
        return page

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job; see the port."""
        key = f"{self._keys}troubles:{id}"
        return attempts_of(
            await self._link.call("LRANGE", key, 0, ATTEMPTS_KEPT_MAX - 1, write=False)
        )

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs; see the port."""
        start = "-"
        known: list[QueueRecord] = []
        while True:
            now_us, *found = await self._link.run(
                self._readers.queues, 1, self._queues, self._keys, start, _LOOK_MAX
            )
            known += (queue_of(described, now_us) for described in found)
            if len(found) < _LOOK_MAX:
                return known
            start = f"({found[-1][0]}"
