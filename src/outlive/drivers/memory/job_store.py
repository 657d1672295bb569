"""Jobs in memory: a lock around each step, and the wake-ups that follow from it.

Owns the port; the moves are in ``job_step``, the choice of a claim in ``job_claim``. Never awaits
while it holds the lock, and never rings under it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import NoReturn

from outlive.clock import Clock, microseconds
from outlive.drivers.memory import job_operate, job_settle
from outlive.drivers.memory.host_store import check_alive
from outlive.drivers.memory.instance_step import InstanceStep
from outlive.drivers.memory.job_claim import (
    claimed_before,
    leave_notes,
    next_due_s,
    take_targeted,
    take_wanted,
)
from outlive.drivers.memory.job_records import (
    claimed_of,
    matches,
    queue_of,
    record_of,
)
from outlive.drivers.memory.job_step import JobStep
from outlive.drivers.memory.rows import Space
from outlive.errors import StoreUnavailable, UnsupportedByDriver
from outlive.model.job import (
    ALL_PARTS,
    Attempt,
    Changed,
    Claimed,
    ClaimRequest,
    Completion,
    Enqueued,
    Extension,
    Failure,
    JobFilter,
    JobRecord,
    NewJob,
    QueuePart,
    QueueRecord,
    QueueSettings,
    Reclaimed,
    Return,
    Settled,
    Tended,
    put_parts,
)
from outlive.model.lease import LIST_LIMIT_MAX
from outlive.names import HostId, JobId
from outlive.ports.wakeups import Wakeup

Ringer = Callable[[HostId, Wakeup], None]


class MemoryJobStore:
    """The ``JobStore`` of one namespace, for one host. Every method is one step under the lock."""

    def __init__(self, space: Space, clock: Clock, host: HostId, ring: Ringer) -> None:
        self._space: Space | None = space
        self._clock = clock
        self._host = host
        self._ring = ring

    def close(self) -> None:
        """Let go of the rows; every later call raises ``StoreUnavailable``."""
        self._space = None

    @contextmanager
    def _step(self) -> Generator[JobStep, None, None]:
        """One step under the lock; those who wait for what it made ready are rung after it."""
        space = self._space or _closed()
        with space.lock:
            now_us = microseconds(self._clock.now())
            step = JobStep(space.jobs, now_us, round(self._clock.monotonic() * 1e6))
            yield step
            if step.answers:
                _deliver(space, step)
            step.call_waiting()
        for host, wakeup in step.calls:
            self._ring(host, wakeup)

    def step(self) -> AbstractContextManager[JobStep]:
        """One step under the lock, for who enqueues together with a write of its own."""
        return self._step()

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs; see the port."""
        with self._step() as step:
            return [step.add(job) for job in jobs]

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """Refuse: there is no transaction in memory to join."""
        del jobs, tx
        raise UnsupportedByDriver(
            "the memory store has no transactions to enqueue in; leave tx out, or use SQLite or "
            "Postgres"
        )

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim what is ready or due; see the port."""
        with self._step() as step:
            self._check_session(step, request.session)
            taken = claimed_before(step, request) if request.again else []
            if taken:
                return Claimed(tuple(map(claimed_of, taken)))
            take = take_wanted if request.job is None else take_targeted
            taken = take(step, request, self._host)
            # Before the own note is written: the others hear of what this claim left to them.
            step.call_waiting()
            due_s = None
            if len(taken) < request.limit:
                due_s = next_due_s(step, request)
                if request.wait_us > 0:
                    leave_notes(step, request, self._host)
            return Claimed(tuple(map(claimed_of, taken)), due_s)

    def _check_session(self, step: JobStep, session: HostId) -> None:
        check_alive(self._space or _closed(), session, step.clock_us)

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """End claimed jobs as done; see the port."""
        with self._step() as step:
            return [job_settle.complete(step, completion) for completion in completions]

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """End claims whose handler failed; see the port."""
        with self._step() as step:
            return [job_settle.fail(step, failure) for failure in failures]

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """Give claims back unrun; see the port."""
        with self._step() as step:
            return [job_settle.release(step, returned) for returned in returns]

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """Learn which claims still stand; see the port."""
        with self._step() as step:
            return [job_settle.extend(step, extension) for extension in extensions]

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """Take the claims of sessions that are gone; see the port."""
        with self._step() as step:
            sessions = self._space.sessions if self._space is not None else {}
            claims = step.table.claims
            lost = (job for host, jobs in claims.items() if host not in sessions for job in jobs)
            return [
                job_settle.lose(step, step.table.rows[job]) for job in list(islice(lost, limit))
            ]

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """End live jobs as cancelled; see the port."""
        with self._step() as step:
            return [job_operate.cancel(step, job, reason) for job in ids]

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Make jobs ready now; see the port."""
        with self._step() as step:
            return [job_operate.retry(step, step.table.rows.get(job)) for job in ids]

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Forget jobs that have ended; see the port."""
        with self._step() as step:
            return [job_operate.purge(step, step.table.rows.get(job)) for job in ids]

    async def tend(self, *, limit: int) -> Tended:
        """End what expired and remove what was kept long enough; see the port."""
        with self._step() as step:
            table = step.table
            expired, pruned = step.expire_past(limit), 0
            while pruned < limit and (first := table.kept.first()) is not None:
                if first[0][0] > step.now_us:
                    break
                job_operate.purge(step, table.rows[first[1]])
                pruned += 1
            return Tended(expired, pruned)

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What is known of one job; see the port."""
        with self._step() as step:
            row = step.table.rows.get(id)
            return None if row is None else record_of(row)

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs; see the port."""
        with self._step() as step:
            rows = step.table.roll.after(int(after) if after is not None else 0)
            meant = (record_of(row) for row in rows if matches(row, wanted))
            return [*islice(meant, min(limit, LIST_LIMIT_MAX))]

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job; see the port."""
        with self._step() as step:
            row = step.table.rows.get(id)
            return () if row is None else row.troubles

    async def put_queue(
        self, settings: QueueSettings, *, parts: Collection[QueuePart] = ALL_PARTS
    ) -> None:
        """Let these settings hold for a queue; see the port."""
        with self._step() as step:
            queue = step.table.queue(settings.name)
            queue.settings = put_parts(queue.settings, settings, parts)
            # While a queue is paused nobody is told when its next job is due.
            step.call(queue, queue.claimable + len(queue.due))

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs; see the port."""
        with self._step() as step:
            known = sorted(step.table.queues.values(), key=lambda queue: queue.name)
            return [
                queue_of(step.table, queue, step.now_us)
                for queue in known
                if queue.settings is not None or any(queue.counts.values())
            ]


def _deliver(space: Space, step: JobStep) -> None:
    """Put what ended jobs answer into the mailboxes of their instances."""
    instances = InstanceStep(space.instances, step)
    for message in step.answers:
        # The instance waits for this letter: no mailbox is too full for it.
        instances.send(message, limit=None)
    instances.call_waiting()


def _closed() -> NoReturn:
    raise StoreUnavailable("the memory store is closed")
