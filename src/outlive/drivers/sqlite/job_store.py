"""Jobs on SQLite: each operation is one step of the file's one writer.

Owns the job port. The steps are in ``job_enqueueing``, ``job_claiming``, ``job_settling`` and
``job_upkeep``; reading is done by ``job_reader``. Settling by many callers joins in one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import islice

from outlive.clock import microseconds
from outlive.drivers.sqlite import statements
from outlive.drivers.sqlite.bells import FOR_JOBS, Bells
from outlive.drivers.sqlite.job_claiming import JobClaiming
from outlive.drivers.sqlite.job_enqueueing import Enqueueing, check_batch
from outlive.drivers.sqlite.job_moves import JobMoves, RingMail
from outlive.drivers.sqlite.job_reader import JobReader
from outlive.drivers.sqlite.job_settling import JobSettling
from outlive.drivers.sqlite.job_upkeep import JobUpkeep
from outlive.drivers.sqlite.joint import joined
from outlive.drivers.sqlite.sessions import Sessions
from outlive.drivers.sqlite.statements import Operation
from outlive.drivers.sqlite.transaction import Turn
from outlive.drivers.sqlite.user_transactions import UserTransactions
from outlive.drivers.sqlite.writer import Writer
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
)
from outlive.names import JobId
from outlive.ports.driver import DriverContext

# A batch of this size keeps the event loop for longer than a commit may.
_LARGE = 200

# Told that this host waits for jobs, and for how many seconds.
Watch = Callable[[float], None]


class SqliteJobStore:
    """The job port of one namespace in one file, for one host."""

    def __init__(
        self,
        writer: Writer,
        reader: JobReader,
        users: UserTransactions,
        sessions: Sessions,
        *,
        context: DriverContext,
        watch: Watch,
        ring_mail: RingMail,
    ) -> None:
        self._submit = partial(users.write, writer)
        self._reader = reader
        self._users = users
        self._clock = context.clock
        namespace = self._namespace = context.namespace
        self._watch = watch
        self._ring_mail = ring_mail
        moves = JobMoves(namespace, ring_mail)
        bells = self._bells = Bells(FOR_JOBS, namespace, context.host)
        self._upkeep = JobUpkeep(moves, bells, sessions, namespace=namespace)
        claiming = JobClaiming(moves, bells, sessions, namespace=namespace, host=context.host)
        settling = JobSettling(moves, bells, namespace=namespace)
        # What a batch settles and adds can be had by those who claim in the same batch.
        self._completing = joined(settling.complete, rank=0)
        self._failing = joined(settling.fail, rank=1)
        self._releasing = joined(settling.release, rank=2)
        self._extending = joined(settling.extend, rank=3)
        self._enqueueing = joined(self._enqueue, rank=4)
        self._claim = claiming.claim

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs, all of them or none, in their order."""
        check_batch(jobs)
        if not jobs:
            return []
        return await self._submit(self._enqueueing, jobs, large=len(jobs) > _LARGE)

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """Add jobs inside the caller's open transaction.

        Nobody can be rung when that commits; hosts that wait look whether the file changed.
        """
        check_batch(jobs)
        operation = statements.atomically(self._enqueue_and_call(jobs))
        return await self._users.run("enqueue", operation, tx)

    def _enqueue_and_call(self, jobs: Sequence[NewJob]) -> Operation[list[Enqueued]]:
        now_us = microseconds(self._clock.now())
        adding = Enqueueing(self._namespace, jobs, now_us)
        answers = yield from adding.run()
        yield from self._bells.call(adding.fresh, adding.last, now_us)
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim up to ``request.limit`` jobs that are ready or due, for a living session."""
        large = request.limit > _LARGE
        claimed: Claimed = await self._submit(self._claim, request, large=large)
        if request.wait_us > 0 and len(claimed.jobs) < request.limit:
            self._watch(request.wait_us / 1e6)
        return claimed

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """End claimed jobs as done."""
        return await self._submit(self._completing, completions, large=len(completions) > _LARGE)

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """End claims whose handler failed."""
        return await self._submit(self._failing, failures, large=len(failures) > _LARGE)

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """Give claims back unrun."""
        return await self._submit(self._releasing, returns, large=len(returns) > _LARGE)

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """Learn which claims still stand, and keep the progress of those that do."""
        return await self._submit(self._extending, extensions, large=len(extensions) > _LARGE)

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """Take up to ``limit`` claims from sessions that have ended, or are unknown."""
        return await self._submit(self._upkeep.reclaim, limit, large=True)

    async def cancel(self, ids: Sequence[JobId], *, reason: str) -> Sequence[Changed]:
        """End live jobs as cancelled, at once or by way of their claimants."""
        return await self._submit(self._upkeep.cancel, (ids, reason), large=len(ids) > _LARGE)

    async def retry(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Make jobs ready now."""
        return await self._submit(self._upkeep.retry, ids, large=len(ids) > _LARGE)

    async def purge(self, ids: Sequence[JobId]) -> Sequence[Changed]:
        """Forget jobs that have ended."""
        return await self._submit(self._upkeep.purge, ids, large=len(ids) > _LARGE)

    async def tend(self, *, limit: int) -> Tended:
        """End what has expired, and remove what was kept long enough."""
        return await self._submit(self._upkeep.tend, limit, large=True)

    async def get(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What is known of one job."""
        return await self._reader.get(id)

    async def list(
        self, wanted: JobFilter, *, after: str | None, limit: int
    ) -> Sequence[JobRecord]:
        """A page of jobs in order of enqueueing."""
        return await self._reader.list(wanted, after=after, limit=limit)

    async def attempts(self, id: JobId) -> Sequence[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job, newest first."""
        return await self._reader.attempts(id)

    async def put_queue(
        self, settings: QueueSettings, *, parts: Collection[QueuePart] = ALL_PARTS
    ) -> None:
        """Let these settings hold for a queue from now on."""
        await self._submit(self._upkeep.put_queue, (settings, parts))

    async def queues(self) -> Sequence[QueueRecord]:
        """Every queue that has settings or jobs, by name."""
        return await self._reader.queues()

    def enqueue_in_turn(self, turn: Turn, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs inside a transaction of ours, for who writes something else with them."""
        (answers,) = self._enqueue(turn, [jobs])
        return answers

    def _enqueue(self, turn: Turn, batches: Sequence[Sequence[NewJob]]) -> list[list[Enqueued]]:
        turn.savepoint()
        jobs = [job for batch in batches for job in batch]
        adding = Enqueueing(self._namespace, jobs, turn.wall_us)
        answers = iter(statements.run(adding.run(), turn.cursor))
        self._bells.ring(turn, adding.fresh)
        if adding.answered:
            self._ring_mail(turn, adding.answered)
        return [list(islice(answers, len(batch))) for batch in batches]
