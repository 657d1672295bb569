"""Enqueueing: jobs become rows, in the writer's transaction or in the user's.

Owns the statements' order and the answer to each job. Jobs without a unique key go in by one call
for all of them; one with a unique key is looked at by itself, because its answer depends on who has
that key. It must never read a clock: the instant is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from outlive.drivers.sqlite import job_sql as sql
from outlive.drivers.sqlite.statements import Operation, Statement, as_json, text
from outlive.errors import UsageError
from outlive.model.job import (
    ATTEMPTS_KEPT_MAX,
    ENQUEUE_MAX,
    Enqueued,
    Entry,
    JobState,
    NewJob,
    OnDuplicate,
)
from outlive.names import JobId

# Where the id stands in the values of a row.
_ID = 2


def check_batch(jobs: Sequence[NewJob]) -> None:
    """Refuse more jobs than one call may bring.

    Raises:
        UsageError: There are more than ``ENQUEUE_MAX``.
    """
    if len(jobs) > ENQUEUE_MAX:
        raise UsageError(
            f"{len(jobs)} jobs in one call; at most {ENQUEUE_MAX} are allowed: use several calls"
        )


class Enqueueing:
    """Jobs to be added in one step, for one caller or several. Used once.

    Once ``run`` has ended, ``fresh`` counts those that can be claimed at once, by queue,
    ``last`` is the number of the newest, and ``answered`` are the instances that got a letter
    because a job of theirs was replaced or not taken.
    """

    def __init__(self, namespace: str, jobs: Sequence[NewJob], now_us: int) -> None:
        self._namespace = namespace
        self._jobs = jobs
        self._now_us = now_us
        self._closed: frozenset[str] = frozenset()
        self._has_ordered = False
        # Where ids were that are there already, of jobs without a unique key.
        self._homes: dict[str, tuple[str, int]] = {}
        self.fresh: Counter[str] = Counter()
        self.last = 0
        self.answered: list[str] = []

    def run(self) -> Operation[list[Enqueued]]:
        """The statements; the first of them takes the write lock."""
        ((last,),) = yield Statement(sql.TAKE_NUMBERS, (len(self._jobs),))
        self.last = last
        closed = yield Statement(sql.CLOSED_QUEUES, (self._namespace,))
        self._closed = frozenset(text(name) for (name,) in closed)
        first = last - len(self._jobs) + 1
        answers: list[Enqueued] = []
        plain: list[tuple[Any, ...]] = []
        for number, job in enumerate(self._jobs, first):
            if job.unique_key is None and job.queue not in self._closed:
                plain.append(self._row(number, job))
                answers.append(Enqueued(job.id, Entry.CREATED))
                continue
            # Jobs keep their order, which ordering keys and places go by.
            yield from self._insert(plain)
            plain = []
            answers.append((yield from self._one(number, job)))
        yield from self._insert(plain)
        if self._has_ordered:
            counted = yield Statement(sql.UNBLOCKED, (first, last))
            self.fresh.update({text(queue): count for queue, count in counted})
        if self._homes:
            yield from self._look_at_repeats(answers, first)
        return answers

    def _look_at_repeats(self, answers: list[Enqueued], first: int) -> Operation[None]:
        """Tell new jobs from those whose id exists, in their own queue or in another."""
        for place, job in enumerate(self._jobs):
            home = self._homes.get(job.id)
            if home is None or answers[place].entry is not Entry.CREATED:
                continue
            queue, number = home
            if queue != job.queue:
                answers[place] = Enqueued(job.id, Entry.CONFLICT)
                yield from self._answer(job)
            elif number != first + place:
                answers[place] = Enqueued(job.id, Entry.EXISTING)

    def _row(self, number: int, job: NewJob) -> tuple[Any, ...]:
        due = self._now_us + job.delay_us if job.due_at_us is None else job.due_at_us
        state = "ready" if due <= self._now_us else "scheduled"
        if job.ordering_key is not None:
            # Whether it is blocked is known when it is there.
            self._has_ordered = True
        elif state == "ready":
            self.fresh[job.queue] += 1
        key = job.ordering_key
        return (
            *(number, self._namespace, job.id, job.queue, state),
            *(key, self._namespace, job.queue, key),
            *(job.priority, number, number, due, job.expires_us, self._now_us, job.expires_us),
            *(key, job.unique_key, job.max_attempts),
            *(job.max_losses, self._now_us, job.retention_us, job.retry, job.headers),
            *(job.payload, job.instance, job.step),
        )

    def _insert(self, rows: Sequence[tuple[Any, ...]]) -> Operation[None]:
        if not rows:
            return
        ((made,),) = yield Statement(sql.INSERT, rows, many=True)
        if made < len(rows):
            ids = as_json([row[_ID] for row in rows])
            homes = yield Statement(sql.HOMES, (self._namespace, ids))
            found = ((text(id_), (text(queue), number)) for id_, queue, number in homes)
            self._homes.update(found)

    def _one(self, number: int, job: NewJob) -> Operation[Enqueued]:
        """Add a job whose unique key, or whose queue, may stand in its way."""
        added = yield from self._try(number, job)
        if not added.stands(job):
            yield from self._answer(job)
        return added

    def _answer(self, job: NewJob) -> Operation[None]:
        """Tell its instance that the job was not taken."""
        if job.instance is not None:
            values = (job.id, job.step, self._now_us, job.instance, self._namespace)
            yield Statement(sql.ANSWER_REFUSED, values)
            self.answered.append(job.instance)

    def _try(self, number: int, job: NewJob) -> Operation[Enqueued]:
        known = yield Statement(sql.FIND_ID, (self._namespace, job.id))
        if known:
            repeats = text(known[0][0]) == job.queue
            return Enqueued(job.id, Entry.EXISTING if repeats else Entry.CONFLICT)
        if job.queue in self._closed:
            return Enqueued(job.id, Entry.CLOSED)
        entry = Entry.CREATED
        rivals = yield Statement(sql.UNIQUE_OWNER, (self._namespace, job.queue, job.unique_key))
        if rivals:
            rival, id_, state, expires = rivals[0]
            owner = JobId(text(id_))
            claimed = text(state) == JobState.CLAIMED
            if not claimed and expires is not None and expires <= self._now_us:
                yield from self._expire(job.queue, rival)
            elif job.on_duplicate is OnDuplicate.RETURN:
                return Enqueued(owner, Entry.EXISTING)
            elif job.on_duplicate is OnDuplicate.REJECT or claimed:
                return Enqueued(owner, Entry.REJECTED)
            else:
                yield from self._end(sql.REPLACE, job.queue, rival)
                entry = Entry.REPLACED
        yield Statement(sql.INSERT, self._row(number, job))
        return Enqueued(job.id, entry)

    def _expire(self, queue: str, number: int) -> Operation[None]:
        """End the job that nobody claimed in time, and keep why, as long as it is kept."""
        token = yield from self._end(sql.EXPIRE_ONE, queue, number)
        if token is not None:
            values = (number, token, "expired", None, None, self._now_us, None)
            yield Statement(sql.ADD_ATTEMPT, values)
            yield Statement(sql.PRUNE_ATTEMPTS, (number, number, ATTEMPTS_KEPT_MAX))

    def _end(self, how: str, queue: str, number: int) -> Operation[int | None]:
        """End the job that has a unique key; gives the token of its last claim if it is kept."""
        ended = yield Statement(how, (self._now_us, self._now_us, number))
        key, retention_us, instance, token = ended[0]
        if instance is not None:
            self.answered.append(text(instance))
        if key is not None:
            pair = as_json([(queue, text(key))])
            freed = yield Statement(sql.UNBLOCK, (self._namespace, pair))
            self.fresh.update(text(row[0]) for row in freed)
        if retention_us <= 0:
            yield Statement(sql.REMOVE, (number,))
            return None
        return token
