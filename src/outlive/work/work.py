"""``host.work``: enqueue, claim, look, operate. The public face of the feature."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack, cast, overload

from outlive.errors import DuplicateJob, JobExists, JobNotFound, QueueClosed, UsageError
from outlive.model.job import (
    CLAIM_MAX,
    ENQUEUE_MAX,
    Attempt,
    Changed,
    Enqueued,
    Entry,
    JobState,
    LimitsBy,
    NewJob,
    QueueMode,
    QueueRecord,
    Want,
)
from outlive.model.options import Duration, seconds
from outlive.names import HostId, JobId, check_key, check_reason
from outlive.ports.driver import Driver
from outlive.ports.job_store import JobStore
from outlive.serialization import decode_plain
from outlive.telemetry import Telemetry, events
from outlive.work.books import Books
from outlive.work.claim import Claim
from outlive.work.claiming import POLL_S, Claimer
from outlive.work.drafting import Drafts, JobOptions
from outlive.work.handler import Handler, check_target, count_of
from outlive.work.job import Job, JobInfo, info_of
from outlive.work.operations import Operations, States, check_page, filter_of
from outlive.work.repeating import until_known

In = TypeVar("In")
Out = TypeVar("Out")

Target = Handler[Any, Any] | str
"""A handler, or the name of a queue."""

_OPTIONS = frozenset(JobOptions.__annotations__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue: what holds for it in the fleet, and how many jobs are in each state.

    At most ``concurrency`` of its jobs are claimed at a time, and ``rate`` in any ``per_s``.
    ``limits_by`` says whether a handler declares these limits or an operator has set them; it is
    ``None`` where there are none.
    """

    name: str
    mode: QueueMode
    concurrency: int | None
    rate: int | None
    per_s: float
    limits_by: LimitsBy | None
    counts: dict[JobState, int]
    oldest_ready_s: float | None


class Work:
    """The jobs of one namespace, as one connected host sees them.

    Made by ``outlive.connect``. Safe to use from many tasks of one event loop.
    """

    def __init__(self, driver: Driver, claimer: Claimer, telemetry: Telemetry) -> None:
        self.runtime = claimer.runtime
        self.store = claimer.store
        self.claimer = claimer
        self.telemetry = telemetry
        self._drafts = Drafts(claimer.runtime, driver.capabilities, telemetry)
        self.operations = Operations(claimer.store, driver.capabilities)
        self.books = Books(claimer.runtime, claimer.store, telemetry, self._comes_due)

    @overload
    async def enqueue(
        self,
        target: Handler[In, Out],
        payload: In,
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> Job[Out]: ...
    @overload
    async def enqueue(
        self, target: str, payload: object, *, tx: object = None, **options: Unpack[JobOptions]
    ) -> Job[Any]: ...
    async def enqueue(
        self, target: Target, payload: Any, *, tx: object = None, **options: Unpack[JobOptions]
    ) -> Job[Any]:
        """Add a job to the queue of a handler, or to a queue by its name.

        Once this returns, the job is stored: it will be done, dead or cancelled, and never lost.
        A reply that is lost is asked for again, and adds nothing twice. With ``tx``, the caller's
        open transaction, the job exists if and when that commits.

        Args:
            target: A handler, whose payload's type is checked, or a queue's name.
            payload: A dataclass, Struct, attrs or pydantic object, or plain JSON.
            tx: An open transaction of the same database.
            **options: ``id`` (default: a fresh one; enqueueing an id twice into one queue adds it
                once, as it was first), ``priority`` (higher first), ``delay`` or ``at``,
                ``unique_key`` (one live job of the queue has it) with ``on_duplicate``
                (``reject``, ``replace``, ``return``), ``ordering_key`` (one at a time, in order),
                ``max_attempts``, ``retry``, ``expires`` (dead if not claimed by then),
                ``retention`` (how long it is kept after its end) and ``headers``.

        Raises:
            DuplicateJob: A live job has the unique key; carries its id.
            JobExists: The id is that of another queue's job.
            QueueClosed: The queue drains and takes no more.
            UsageError, InvalidName: The arguments are wrong; nothing was sent.
            UnsupportedByDriver: The backend has no ordering keys, or no transactions.
            StoreUnavailable: Nothing was added.
            OutcomeUnknown: No answer for a few seconds; enqueue again with the same ``id``.
        """
        job = self.prepare(target, payload, **options)
        (outcome,) = await self.submit((job,), tx=tx)
        if outcome.entry is Entry.REJECTED:
            raise DuplicateJob(job.queue, job.unique_key or "", outcome.id)
        return self._handle(outcome, job, target)

    @overload
    async def enqueue_many(
        self,
        target: Handler[In, Out],
        payloads: Iterable[In],
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> list[Job[Out]]: ...
    @overload
    async def enqueue_many(
        self,
        target: str,
        payloads: Iterable[object],
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> list[Job[Any]]: ...
    async def enqueue_many(
        self,
        target: Target,
        payloads: Iterable[Any],
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> list[Job[Any]]:
        """Add up to 10,000 jobs in one step, all of them or none, in their order.

        Takes what ``enqueue`` takes, for all of them alike. One that a live job's unique key kept
        out is not an error here: its ``entry`` is ``rejected``. Otherwise raises as ``enqueue``.
        """
        _check_options(options)
        jobs = self._drafts.drafts(target, _payloads(payloads), options)
        if not jobs:
            return []
        outcomes = await self.submit(jobs, tx=tx)
        return [
            self._handle(outcome, job, target) for outcome, job in zip(outcomes, jobs, strict=True)
        ]

    def prepare(self, target: Target, payload: object, **options: Unpack[JobOptions]) -> NewJob:
        """The job that ``enqueue`` would add; ``submit`` adds several that differ. No I/O.

        Raises:
            UsageError, InvalidName, UnsupportedByDriver: As ``enqueue``.
        """
        _check_options(options)
        return self._drafts.draft(target, payload, options)

    async def submit(self, jobs: Sequence[NewJob], *, tx: object = None) -> Sequence[Enqueued]:
        """Add prepared jobs in one step, all of them or none, and say what became of each.

        One whose id exists in its queue is ``existing``, with ``payload_differs`` where the job
        there has another payload (not compared with ``tx``); after a lost reply, which is asked for
        again, it is ``created`` unless it differs.

        Raises:
            QueueClosed: A queue drains; the jobs of other queues were added.
            JobExists: An id is that of another queue's job; the other jobs were added.
            UsageError: More than 10,000 at once.
            StoreUnavailable, OutcomeUnknown: As ``enqueue``.
        """
        if len(jobs) > ENQUEUE_MAX:
            raise UsageError(f"{len(jobs):,} jobs in one call; at most {ENQUEUE_MAX:,} are allowed")
        if tx is not None:
            outcomes = await self.store.enqueue_in(jobs, tx)
        else:
            outcomes = await self._enqueue(jobs)
        for outcome, job in zip(outcomes, jobs, strict=True):
            if outcome.entry is Entry.CLOSED:
                raise QueueClosed(job.queue)
            if outcome.entry is Entry.CONFLICT:
                raise JobExists(job.id, job.queue)
        if self.telemetry.active:
            for outcome, job in zip(outcomes, jobs, strict=True):
                if outcome.entry in (Entry.CREATED, Entry.REPLACED):
                    self.telemetry.record(events.JOBS_ENQUEUED, queue=job.queue)
        if tx is None:
            self._tell_delayed(jobs)
        return outcomes

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        repeated = False

        async def once(tries: int) -> Sequence[Enqueued]:
            nonlocal repeated
            repeated = tries > 0
            return await self.store.enqueue(jobs)

        outcomes = await compared(self.store, jobs, await until_known(self.runtime, once))
        if not repeated:
            return outcomes
        # What exists with this payload is most likely what the lost reply was about.
        return [
            Enqueued(job.id, Entry.CREATED)
            if each.stands(job) and not each.payload_differs
            else each
            for job, each in zip(jobs, outcomes, strict=True)
        ]

    async def claim(
        self,
        queues: Target | Iterable[Target] = (),
        *,
        limit: int = 1,
        wait: Duration = 0,
        job: str | None = None,
    ) -> list[Claim]:
        """Claim up to ``limit`` jobs that are ready, or none if there are none within ``wait``.

        Each is claimed by nobody else while this host's session lives: highest priority first,
        then in order, fair between several queues. ``job`` claims that one, whatever stands before
        it, if it is in one of the queues, where any are named. Of the jobs that were lost twice or
        more, which may be what killed their hosts, this host has one at a time. Settle every claim;
        what is not settled is given back when the host closes.

        Raises:
            LeaseLost: This host's session was lost and no new one could be had.
            UsageError, InvalidName: The arguments are wrong.
            StoreError: The store did not answer; nothing is claimed, or it is given back when
                this host closes.
        """
        targets = _targets(queues)
        count_of(limit, "limit", CLAIM_MAX)
        wait_s = seconds(wait, "wait")
        if not targets and job is None:
            raise UsageError("claim needs at least one queue, or job=")
        codecs = {each.queue: each.takes for each in targets if isinstance(each, Handler)}
        names = [
            each.queue if isinstance(each, Handler) else check_target(each) for each in targets
        ]
        losses = {
            each.queue: each.options.max_losses for each in targets if isinstance(each, Handler)
        }
        wants = [Want(name, limit, losses.get(name)) for name in dict.fromkeys(names)]
        wanted = None if job is None else JobId(check_key(job, "job"))
        session, claimed = await self.claimer.claim(
            wants, limit, job=wanted, wait_s=wait_s, suspects=not self.books.has_suspect()
        )
        claims = [Claim(each, session, self.books, codecs.get(each.queue)) for each in claimed.jobs]
        self.books.claimed(claims)
        if self.telemetry.active:
            for each in claimed.jobs:
                self.telemetry.record(events.JOBS_CLAIMED, queue=each.queue)
        return claims

    @overload
    def job(self, id: str, handler: Handler[Any, Out]) -> Job[Out]: ...
    @overload
    def job(self, id: str, handler: None = None) -> Job[Any]: ...
    def job(self, id: str, handler: Handler[Any, Any] | None = None) -> Job[Any]:  # noqa: A002
        """The handle of a job by its id; with its handler, its result is of that type. No I/O."""
        queue, codec = (None, None) if handler is None else (handler.queue, handler.returns)
        return Job(JobId(check_key(id, "id")), queue, self.books, codec=codec)

    async def get(self, id: str) -> JobInfo:  # noqa: A002 - it is one
        """What the store knows of one job.

        Raises:
            JobNotFound: There is none of this id; its retention may have ended.
        """
        record = await self.store.get(JobId(check_key(id, "id")))
        if record is None:
            raise JobNotFound(id)
        return info_of(record)

    async def attempts(self, id: str) -> list[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job, newest first: failures, lost claims and its expiry."""
        return [*await self.store.attempts(JobId(check_key(id, "id")))]

    async def list(
        self,
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
        session: HostId | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[JobInfo]:
        """A page of jobs in order of enqueueing; pass the last one's ``cursor`` as ``after``.

        Raises:
            UsageError: ``limit`` is not between 1 and 1,000, or a state is unknown.
        """
        wanted = filter_of(queue, state, unique_key, ordering_key, session)
        records = await self.store.list(wanted, after=after, limit=check_page(limit))
        return [info_of(record) for record in records]

    async def count(
        self,
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
        session: HostId | None = None,
    ) -> int:
        """How many jobs match. By a key or a session they are counted page by page."""
        wanted = filter_of(queue, state, unique_key, ordering_key, session)
        return await self.operations.count(wanted)

    async def queues(self) -> list[QueueInfo]:
        """Every queue that has settings or jobs, by name."""
        return [_queue_of(record) for record in await self.store.queues()]

    async def cancel(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
        reason: str = "cancelled",
    ) -> int:
        """Cancel one job, or all that match, and say how many were (or will be) cancelled.

        One that is being run hears of it, and ends as cancelled unless it completes first.

        Raises:
            JobNotFound: There is no job of this id.
            UsageError: Neither an id nor a filter was given, or both.
        """
        check_reason(reason)
        if id is not None:
            _alone(queue, state, unique_key, ordering_key)
            return _one(id, await self.books.cancel_one(JobId(check_key(id, "id")), reason))
        _some(queue, state, unique_key, ordering_key)
        wanted = filter_of(queue, state, unique_key, ordering_key)
        return await self.operations.cancel(wanted, reason)

    async def retry(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
    ) -> int:
        """Make one job ready now, or all that match, and say how many.

        Those that wait for their time, and dead and cancelled ones, which begin again with nothing
        counted against them. Raises as ``cancel``.
        """
        if id is not None:
            _alone(queue, state, unique_key, ordering_key)
            (changed,) = await self.store.retry([JobId(check_key(id, "id"))])
            return _one(id, changed)
        _some(queue, state, unique_key, ordering_key)
        return await self.operations.retry(filter_of(queue, state, unique_key, ordering_key))

    async def purge(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
    ) -> int:
        """Forget one ended job, or all that match, and say how many. Raises as ``cancel``."""
        if id is not None:
            _alone(queue, state, unique_key, ordering_key)
            (changed,) = await self.store.purge([JobId(check_key(id, "id"))])
            return _one(id, changed)
        _some(queue, state, unique_key, ordering_key)
        return await self.operations.purge(filter_of(queue, state, unique_key, ordering_key))

    async def pause(self, queue: str) -> None:
        """Give out no more jobs of a queue, in the whole fleet. What runs goes on."""
        await self.operations.put_mode(queue, QueueMode.PAUSED)
        self.claimer.log.info("queue %r is paused", queue, extra={"queue": queue})

    async def resume(self, queue: str) -> None:
        """Open a queue that was paused or drained."""
        await self.operations.put_mode(queue, QueueMode.OPEN)
        self.claimer.log.info("queue %r is open", queue, extra={"queue": queue})

    async def drain(self, queue: str) -> None:
        """Take no more jobs into a queue; those in it are run."""
        await self.operations.put_mode(queue, QueueMode.DRAINING)
        self.claimer.log.info("queue %r is draining", queue, extra={"queue": queue})

    async def limit(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Duration = 1.0,
    ) -> None:
        """Let ``concurrency`` jobs of a queue be claimed at a time, and ``rate`` in any ``per``.

        In the whole fleet, from now on, and whatever handlers declare: both limits are the
        operator's then, a ``None`` among them too. With neither, all limits are lifted, and the
        next worker that starts sets those that its handler declares.

        Raises:
            UnsupportedByDriver: The backend keeps no such limits.
        """
        await self.operations.put_limits(queue, concurrency, rate, per)

    async def close(self) -> None:
        """Give back what is claimed and not settled; claim no more. Repeatable."""
        await self.claimer.close()
        self.claimer.bell.close()
        await self.books.give_back()

    def _tell_delayed(self, jobs: Sequence[NewJob]) -> None:
        """Let those who wait learn of the soonest delayed job of each queue."""
        soonest: dict[str, float] = {}
        for job in jobs:
            delay_us = float(job.delay_us)
            if job.due_at_us is not None:
                # An instant is the store's; our clock is near enough for a hint.
                delay_us = job.due_at_us - self.runtime.clock.now().timestamp() * 1e6
            if delay_us > 0:
                soonest[job.queue] = min(delay_us / 1e6, soonest.get(job.queue, math.inf))
        for queue, delay_s in soonest.items():
            self._comes_due(queue, delay_s)

    def _comes_due(self, queue: str, seconds: float) -> None:
        """Ring for a job that comes due before those who wait would look by themselves."""
        if 0 < seconds < POLL_S:
            self.claimer.later(self.claimer.bell.ring(queue))

    def _handle(self, outcome: Enqueued, job: NewJob, target: Target) -> Job[Any]:
        codec = target.returns if isinstance(target, Handler) else None
        return Job(outcome.id, job.queue, self.books, codec=codec, outcome=outcome)


async def compared(
    store: JobStore, jobs: Sequence[NewJob], outcomes: Sequence[Enqueued]
) -> list[Enqueued]:
    """``outcomes``, with ``payload_differs`` where the job of a known id has another payload."""
    told: list[Enqueued] = []
    for job, outcome in zip(jobs, outcomes, strict=True):
        if outcome.entry is Entry.EXISTING and outcome.id == job.id:
            # Rare, and a payload never changes: no part of the one step.
            known = await store.get(job.id)
            differs = known is not None and decode_plain(known.payload) != decode_plain(job.payload)
            told.append(Enqueued(job.id, Entry.EXISTING, differs))
        else:
            told.append(outcome)
    return told


def _payloads(payloads: object) -> list[Any]:
    # A text would be a job for each of its letters.
    if isinstance(payloads, (str, bytes)) or not isinstance(payloads, Iterable):
        raise UsageError(
            f"payloads must be a list or another iterable, not {type(payloads).__name__}"
        )
    return [*cast("Iterable[Any]", payloads)]


def _targets(queues: Target | Iterable[Target]) -> list[Target]:
    if isinstance(queues, (str, Handler)):
        return [queues]
    if not isinstance(queues, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"claim takes one or several queues, by name or by handler, not {queues!r}"
        )
    return list(queues)


def _check_options(options: JobOptions) -> None:
    if not options.keys() <= _OPTIONS:
        unknown = sorted(options.keys() - _OPTIONS)
        near = difflib.get_close_matches(unknown[0], sorted(_OPTIONS), n=1)
        known = ", ".join(sorted(_OPTIONS))
        hint = (
            "a handler takes one payload, so give its arguments as one: enqueue(handler, "
            f"{{'{unknown[0]}': …}}), or a dataclass; known options: {known}"
        )
        if near:
            hint = f"did you mean {near[0]!r}?"
        raise UsageError(f"unknown job option {', '.join(unknown)}: {hint}")


def _alone(*filters: object) -> None:
    if any(each is not None for each in filters):
        raise UsageError("give either the id of one job, or a filter for many, not both")


def _some(*filters: object) -> None:
    if all(each is None for each in filters):
        raise UsageError("no jobs selected: give an id, or a filter such as queue= or state=")


def _one(id: str, changed: Changed) -> int:  # noqa: A002 - it is one
    if changed is Changed.NOT_FOUND:
        raise JobNotFound(id)
    return int(changed is not Changed.REFUSED)


def _queue_of(record: QueueRecord) -> QueueInfo:
    settings = record.settings
    return QueueInfo(
        name=settings.name,
        mode=settings.mode,
        concurrency=settings.concurrency,
        rate=settings.rate,
        per_s=settings.rate_period_us / 1e6,
        limits_by=settings.limited_by,
        counts=dict(record.counts),
        oldest_ready_s=record.oldest_ready_s,
    )
