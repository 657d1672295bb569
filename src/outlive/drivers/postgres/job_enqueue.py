"""How jobs enter: alone, in batches, with keys, and inside the caller's own transaction.

Owns what became of each ``NewJob``. Jobs without keys are one statement, shared by those who
enqueue at the same time; keys take a transaction of a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.instance_mail_sql import DELIVER
from outlive.drivers.postgres.job_move_sql import CANCEL, EXPIRE_NAMED
from outlive.drivers.postgres.job_order_sql import KEYS_OF, LOOK_NEW
from outlive.drivers.postgres.job_sql import ENQUEUE_KEYED, ENQUEUE_PLAIN
from outlive.drivers.postgres.job_tables import JobTables
from outlive.drivers.postgres.transactions import Row, Run
from outlive.errors import StoreUnavailable, UsageError
from outlive.model.job import (
    ENQUEUE_MAX,
    Enqueued,
    Entry,
    JobState,
    NewJob,
    OnDuplicate,
)
from outlive.names import JobId

# A unique key whose job ends between our insert and our look is tried again. Each round lost means
# that somebody else made progress.
_ROUNDS_MAX = 10

# What an instance is told of a job that its queue did not take: it drains, or has one of its key.
NOT_TAKEN = (
    '{"state":"cancelled","outcome":"the queue rejected the job: draining or duplicate unique key"}'
)


class JobEnqueuer:
    """Enqueues into the tables of one namespace."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._plain_sql = tables.text(ENQUEUE_PLAIN)
        self._keyed_sql = tables.text(ENQUEUE_KEYED)
        self._look_sql = tables.text(LOOK_NEW)
        self._keys_sql = tables.text(KEYS_OF)
        self._cancel_sql = tables.text(CANCEL)
        self._expire_sql = tables.text(EXPIRE_NAMED)
        self._deliver_sql = tables.text(DELIVER)
        # One that is carried out late is a job like any other, under the id its caller chose.
        self._singles = Coalescer[NewJob, Enqueued](
            self._enqueue_singles, abandons=tables.abandons, lone=True
        )

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs in a transaction of our own; see the port."""
        check_count(jobs)
        if not jobs:
            return []
        if any(has_key(job) or job.instance is not None for job in jobs):
            return await self._tables.transact(lambda run: self.enqueue_within(run, jobs))
        if len(jobs) == 1:
            return [await self._singles.submit(jobs[0].id, jobs[0])]
        return await self._enqueue_plain(self._tables.fetch, jobs)

    async def enqueue_within(self, run: Run, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs with statements that ``run`` runs in a transaction."""
        if not jobs:
            return []
        keyed = any(map(has_key, jobs))
        outcomes = await (self._enqueue_keyed if keyed else self._enqueue_plain)(run, jobs)
        await self._answer(run, jobs, outcomes)
        return outcomes

    async def _answer(self, run: Run, jobs: Sequence[NewJob], outcomes: Sequence[Enqueued]) -> None:
        """Tell instances of jobs that were not taken: they would wait for them for ever."""
        refused = [
            job
            for job, outcome in zip(jobs, outcomes, strict=True)
            if job.instance is not None and not outcome.stands(job)
        ]
        if refused:
            await run(
                self._deliver_sql,
                [job.instance for job in refused],
                [f"job/{job.id}" for job in refused],
                ["step"] * len(refused),
                [job.step for job in refused],
                [NOT_TAKEN] * len(refused),
                self._tables.channel,
            )

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._singles.close()

    async def _enqueue_singles(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        return await self._enqueue_plain(self._tables.fetch, jobs)

    async def _enqueue_plain(self, run: Run, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        (row,) = await run(self._plain_sql, *_columns(jobs), self._tables.channel)
        if row["made"] is None:
            return [Enqueued(job.id, Entry.CREATED) for job in jobs]
        made, closed = set(row["made"]), set(row["closed"])
        looks = await self._look(run, jobs)
        return [
            Enqueued(job.id, _plain_entry(job, look["home"], made, closed))
            for job, look in zip(jobs, looks, strict=True)
        ]

    async def _look(self, run: Run, jobs: Sequence[NewJob]) -> Sequence[Row]:
        return await run(
            self._look_sql,
            [job.id for job in jobs],
            [job.queue for job in jobs],
            [job.unique_key for job in jobs],
        )

    # -- keys -----------------------------------------------------------------------------------

    async def _enqueue_keyed(self, run: Run, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        keys = {(job.queue, job.ordering_key): None for job in jobs if job.ordering_key is not None}
        await self._tables.lock_keys(run, list(keys))
        outcomes: dict[int, Enqueued] = {}
        for wave in _waves(jobs):
            await self._enqueue_wave(run, wave, outcomes, keys)
        await self._tables.pass_turn(run, list(keys))
        return [outcomes[index] for index in range(len(jobs))]

    async def _enqueue_wave(
        self,
        run: Run,
        wave: dict[int, NewJob],
        outcomes: dict[int, Enqueued],
        keys: dict[tuple[str, str], None],
    ) -> None:
        """Enqueue jobs of which no two have the same id or the same unique key."""
        pending = dict(wave)
        replaced: set[JobId] = set()
        for _ in range(_ROUNDS_MAX):
            replaced |= await self._replace(run, list(pending.values()), keys)
            (row,) = await run(
                self._keyed_sql, *_columns(list(pending.values())), self._tables.channel
            )
            made = set(row["made"])
            left = {index: job for index, job in pending.items() if job.id not in made}
            for index, job in pending.items():
                if job.id in made:
                    entry = Entry.REPLACED if job.id in replaced else Entry.CREATED
                    outcomes[index] = Enqueued(job.id, entry)
            if not left:
                return
            looks = await self._look(run, list(left.values()))
            await self._end_rivals(
                run, self._expire_sql, [look["rival"] for look in looks if _is_stale(look)], keys
            )
            pending = {}
            for (index, job), look in zip(left.items(), looks, strict=True):
                outcome = _refused(job, look)
                if outcome is None:
                    pending[index] = job
                else:
                    outcomes[index] = outcome
            if not pending:
                return
        raise StoreUnavailable(
            "other jobs with the same unique keys changed during every attempt to enqueue; try "
            "again"
        )

    async def _replace(
        self, run: Run, jobs: Sequence[NewJob], keys: dict[tuple[str, str], None]
    ) -> set[JobId]:
        """Cancel those whom new jobs replace; gives the new jobs that did."""
        replacing = [
            job
            for job in jobs
            if job.unique_key is not None and job.on_duplicate is OnDuplicate.REPLACE
        ]
        if not replacing:
            return set()
        looks = await self._look(run, replacing)
        rivals = {
            look["rival"]: job.id
            for job, look in zip(replacing, looks, strict=True)
            if _in_the_way(look) and not look["expired"]
        }
        cancelled = await self._end_rivals(run, self._cancel_sql, list(rivals), keys, None)
        return {rivals[row["id"]] for row in cancelled}

    async def _end_rivals(
        self,
        run: Run,
        how: str,
        rivals: Sequence[str],
        keys: dict[tuple[str, str], None],
        *more: Any,
    ) -> list[Any]:
        """End those who have the unique keys of new jobs; gives the rows of those that were.

        Their ordering keys are locked, and join ``keys``, whose turns are passed on in the end.
        """
        if not rivals:
            return []
        ordered = await run(self._keys_sql, list(rivals))
        theirs = [(row["queue"], row["ordering_key"]) for row in ordered]
        await self._tables.lock_keys(run, [key for key in theirs if key not in keys])
        keys.update(dict.fromkeys(theirs))
        ended: list[Any] = []
        for with_key in (False, True) if theirs else (False,):
            ended += await run(how, with_key, self._tables.channel, sorted(rivals), *more)
        return ended


def check_count(jobs: Sequence[NewJob]) -> None:
    """Refuse more jobs than one call may bring."""
    if len(jobs) > ENQUEUE_MAX:
        raise UsageError(
            f"{len(jobs)} jobs in one call; at most {ENQUEUE_MAX} are allowed: use several calls"
        )


def has_ordering(jobs: Sequence[NewJob]) -> bool:
    """Whether any of them has an ordering key."""
    return any(job.ordering_key is not None for job in jobs)


def has_key(job: NewJob) -> bool:
    """Whether it has a unique key or an ordering key."""
    return job.unique_key is not None or job.ordering_key is not None


def _plain_entry(job: NewJob, home: str | None, made: set[str], closed: set[str]) -> Entry:
    """What became of a job without keys; ``home`` is the queue of the job that has its id.

    ``made`` are the ids of those that are new, each until its first job has met it.
    """
    if job.id in made:
        made.remove(job.id)
        return Entry.CREATED
    if home is None:
        # One that had been there, and was removed since, was a repeat as far as anybody can tell.
        return Entry.CLOSED if job.queue in closed else Entry.CREATED
    return Entry.EXISTING if home == job.queue else Entry.CONFLICT


def _in_the_way(look: Row) -> bool:
    """Whether a live job has the unique key of a new one, and nothing else is in its way."""
    return look["rival"] is not None and look["home"] is None and not look["closed"]


def _is_stale(look: Row) -> bool:
    """Whether that one was claimed by nobody in time."""
    return _in_the_way(look) and look["expired"]


def _refused(job: NewJob, look: Row) -> Enqueued | None:
    """What kept a job from being made; ``None`` if that is over."""
    home = look["home"]
    if home is not None:
        return Enqueued(job.id, Entry.EXISTING if home == job.queue else Entry.CONFLICT)
    if look["closed"]:
        return Enqueued(job.id, Entry.CLOSED)
    rival = look["rival"]
    if rival is None or look["expired"]:
        return None
    if job.on_duplicate is OnDuplicate.RETURN:
        return Enqueued(JobId(rival), Entry.EXISTING)
    if job.on_duplicate is OnDuplicate.REPLACE and look["state"] != JobState.CLAIMED:
        return None
    return Enqueued(JobId(rival), Entry.REJECTED)


def _waves(jobs: Sequence[NewJob]) -> list[dict[int, NewJob]]:
    """The jobs by their places, split so that each id and each unique key is once in a part."""
    waves: list[dict[int, NewJob]] = []
    counts: dict[tuple[str, str], int] = {}
    ids: dict[JobId, int] = {}
    for index, job in enumerate(jobs):
        turn = ids.get(job.id, 0)
        if job.unique_key is not None:
            key = (job.queue, job.unique_key)
            turn = max(turn, counts.get(key, 0))
            counts[key] = turn + 1
        ids[job.id] = turn + 1
        while len(waves) <= turn:
            waves.append({})
        waves[turn][index] = job
    return waves


def _columns(jobs: Sequence[NewJob]) -> tuple[list[Any], ...]:
    return (
        [job.id for job in jobs],
        [job.queue for job in jobs],
        [job.payload for job in jobs],
        [job.priority for job in jobs],
        [job.delay_us for job in jobs],
        [job.due_at_us for job in jobs],
        [job.unique_key for job in jobs],
        [job.ordering_key for job in jobs],
        [job.max_attempts for job in jobs],
        [job.max_losses for job in jobs],
        [job.retry for job in jobs],
        [job.expires_us for job in jobs],
        [job.retention_us for job in jobs],
        [job.headers for job in jobs],
        [job.instance for job in jobs],
        [job.step for job in jobs],
    )
