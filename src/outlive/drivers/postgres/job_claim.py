"""How jobs are claimed: one statement as a rule, a transaction where a queue has limits.

Owns what the answer of a claim means. A host that wants to wait looks once more after its note is
committed, because a job that was on its way meanwhile could see no note, and is told to look again
soon (see ``doubts``). Where its note from before stands yet, it looks once.

A request that may be a repeat looks for its claims and makes new ones in one transaction, under the
lock of its session: repeats that come together must never claim a job each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from outlive.drivers.postgres import job_record_sql, job_sql
from outlive.drivers.postgres.doubts import Doubts
from outlive.drivers.postgres.job_exchange import JobExchange
from outlive.drivers.postgres.job_order_sql import RING_QUEUES
from outlive.drivers.postgres.job_sweep import JobSweeper
from outlive.drivers.postgres.job_tables import JobTables, judge_session
from outlive.drivers.postgres.transactions import Run
from outlive.errors import OutcomeUnknown, StoreUnavailable
from outlive.model.job import CLAIM_MAX, Claimed, ClaimedJob, ClaimRequest, Want
from outlive.names import JobId, Token

# Due jobs are promoted by claims, so many in each queue, or as many as are wanted: a backlog that
# came due together is promoted claim by claim, and no claim pays for all of it.
_PROMOTE_MIN = 100

# Expired jobs are ended by claims that found too little, so many of the whole namespace.
_EXPIRE_MAX = 100

# Queues of which something is remembered; HTTP workers name as many as they like. Forgetting costs
# a statement, or the time to the next poll.
_HINTS_MAX = 10_000


@dataclass(slots=True)
class _Answer:
    """What one attempt brought."""

    jobs: list[ClaimedJob]
    alive: bool
    limited: bool
    next_due_s: float | None
    # Whether the host's notes from before last long enough, and whether they last at all.
    standing: bool = False
    noted: bool = False
    # Whether jobs are to be ended that expired.
    overdue: bool = False
    # Whether these are the claims of an earlier call of the same request.
    before: bool = False


class JobClaimer:
    """Claims from the tables of one namespace."""

    def __init__(self, tables: JobTables, sweeper: JobSweeper, exchange: JobExchange) -> None:
        self._tables = tables
        self._exchange = exchange
        self._sweeper = sweeper
        self._claim_sql = tables.text(job_sql.CLAIM)
        self._waiting_sql = tables.text(job_sql.CLAIM_WAITING)
        self._named_sql = tables.text(job_sql.CLAIM_NAMED)
        self._note_sql = tables.text(job_sql.NOTE)
        self._flight_sql = tables.text(job_sql.IN_FLIGHT)
        self._glance_sql = tables.text(job_sql.GLANCE)
        self._promote_sql = tables.text(job_sql.PROMOTE)
        self._promote_named_sql = tables.text(job_sql.PROMOTE_NAMED)
        self._again_sql = tables.text(job_record_sql.AGAIN)
        self._session_sql = tables.text(job_record_sql.SESSION)
        self._lock_session_sql = tables.text(job_record_sql.LOCK_SESSION)
        self._target_sql = tables.text(job_record_sql.TARGET)
        self._lock_queues_sql = tables.text(job_record_sql.LOCK_QUEUES)
        self._room_sql = tables.text(job_record_sql.ROOM)
        self._pace_sql = tables.text(job_record_sql.PACE)
        self._ring_sql = tables.text(RING_QUEUES)
        # Queues that had limits when they were met last, which saves asking in vain. A hint.
        self._limited: set[str] = set()
        # Queues that gave less than was asked for the last time. A hint too.
        self._short: set[str] = set()
        self._doubts = Doubts()

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim for a living session; see the port."""
        if request.job is not None:
            return await self._claim_named(request, request.job)
        limit = min(request.limit, CLAIM_MAX)
        jobs = await self._take_lone(request, limit)
        if len(jobs) == limit > 0:
            return Claimed(tuple(jobs))
        try:
            due_s = await self._take_more(request, limit, jobs)
        except StoreUnavailable as error:
            if not jobs:
                raise
            # Not "nothing was applied": something was. Asked again, the claims come back.
            raise OutcomeUnknown(
                "the second part of a claim failed; the first part was applied: repeat the claim"
            ) from error
        queues = [want.queue for want in request.wants]
        if len(jobs) >= limit:
            self._short.difference_update(queues)
            return Claimed(tuple(jobs))
        _remember(self._short, queues)
        return Claimed(tuple(jobs), None if due_s is None else max(0.0, due_s))

    async def _take_lone(self, request: ClaimRequest, limit: int) -> list[ClaimedJob]:
        """What one queue without limits gives by the shorter statement, if that is likely."""
        if len(request.wants) != 1 or request.again:
            return []
        want = request.wants[0]
        known = want.queue in self._limited or want.queue in self._short
        if limit <= 0 or want.limit < limit or known:
            return []
        rows = await self._exchange.claim(
            limit,
            request.session,
            request.worker,
            request.request,
            want.queue,
            limit,
            self._tables.host,
            want.max_losses,
        )
        if len(rows) > 1:
            rows = sorted(rows, key=lambda row: (-row["priority"], row["seq"]))
        return [_job(row, _SEQ_OFFSET) for row in rows]

    async def _take_more(
        self, request: ClaimRequest, limit: int, jobs: list[ClaimedJob]
    ) -> float | None:
        """Add to ``jobs`` what the general statement gives; says when the next one is due.

        Who wants to wait looks twice: after its note is committed, for what came too early to see
        it. That is a glance as a rule, because a claim is a commit, even of nothing, and a job that
        was found before waits for it. Who has waited before, with the note that stands since, does
        not look again.
        """
        answer = await self._attempt(request, limit, jobs, wait_us=request.wait_us)
        if not answer.alive:
            await self._refuse(request)
        jobs += answer.jobs
        overdue = answer.overdue and not (jobs and request.again)
        if overdue and await self._sweeper.expire(_EXPIRE_MAX):
            # They may have held up others of their ordering keys, and the bell for those may have
            # taken the note away.
            again = await self._attempt(request, limit, jobs, wait_us=request.wait_us)
            jobs += again.jobs
            answer.next_due_s = again.next_due_s
            answer.standing &= again.standing
            answer.noted &= again.noted
        # What a repeat brought, of now or of before, is all that the request gets.
        if request.wait_us <= 0 or len(jobs) >= limit or (jobs and request.again):
            return answer.next_due_s
        queues = [want.queue for want in request.wants]
        doubts, clock = self._doubts, self._tables.clock
        if not answer.noted:
            doubts.noted(queues, clock.monotonic())
        due_s, busy_s = answer.next_due_s, None
        if not answer.standing or doubts.unseen(queues):
            (flight,) = await self._tables.fetch(self._flight_sql, queues, write=False)
            (glance,) = await self._tables.fetch(self._glance_sql, queues, write=False)
            due_s = glance["next_due_s"]
            if glance["found"]:
                again = await self._attempt(request, limit, jobs)
                jobs += again.jobs
                due_s = again.next_due_s
            if flight["busy"]:
                busy_s = doubts.busy(queues)
            else:
                doubts.calm(queues)
        soon_s = doubts.pause_s(queues, clock.monotonic(), wait_us=request.wait_us)
        return min((at_s for at_s in (due_s, busy_s, soon_s) if at_s is not None), default=None)

    async def _attempt(
        self,
        request: ClaimRequest,
        limit: int,
        jobs: Sequence[ClaimedJob],
        *,
        wait_us: int = 0,
    ) -> _Answer:
        """Take what is left of ``limit``, and of what each queue may give, behind ``jobs``."""
        request, limit = _rest(request, jobs), limit - len(jobs)
        queues = [want.queue for want in request.wants]
        if self._limited.isdisjoint(queues):
            most = [want.limit for want in request.wants]

            async def once(run: Run) -> _Answer:
                return await self._take(run, request, queues, most, limit, wait_us)

            tables = self._tables
            answer = await (tables.transact(once) if request.again else once(tables.fetch))
            if not answer.limited:
                return answer

        async def body(run: Run) -> _Answer:
            return await self._take_limited(run, request, limit, wait_us)

        return await self._tables.transact(body)

    async def _take(
        self,
        run: Run,
        request: ClaimRequest,
        queues: Sequence[str],
        most: Sequence[int],
        limit: int,
        wait_us: int,
        *,
        limits: bool = False,
    ) -> _Answer:
        """One attempt; due jobs are promoted first, and the others who wait hear of the rest."""
        if request.again and (before := await self._claimed_before(run, request)):
            return _Answer(before, alive=True, limited=False, next_due_s=None, before=True)
        text = self._waiting_sql if wait_us > 0 else self._claim_sql
        session = (request.session, request.worker, request.request)
        more = (wait_us,) if wait_us > 0 else ()
        losses = [want.max_losses for want in request.wants]
        more = (self._tables.host, losses, request.suspects, *more)
        rows = await run(text, *session, queues, most, limit, limits, False, *more)
        if not rows[0]["due"] or not rows[0]["alive"] or rows[0]["limited"]:
            return _answer(rows, queues)
        promoted = await run(self._promote_sql, queues, max(limit, _PROMOTE_MIN))
        rows = await run(text, *session, queues, most, limit, limits, True, *more)
        answer = _answer(rows, queues)
        left = Counter(row["queue"] for row in promoted)
        left.subtract(job.queue for job in answer.jobs)
        if fresh := +left:
            await run(self._ring_sql, list(fresh), list(fresh.values()), self._tables.channel)
        return answer

    async def _take_limited(
        self, run: Run, request: ClaimRequest, limit: int, wait_us: int
    ) -> _Answer:
        """An attempt on queues some of which have limits, under the locks of their rows."""
        queues = [want.queue for want in request.wants]
        room, wait_s = await self._room(run, queues)
        most: list[int] = []
        for want in request.wants:
            count = max(0, min(want.limit, room.get(want.queue, want.limit)))
            if want.queue in room:
                room[want.queue] -= count
            most.append(count)
        answer = await self._take(run, request, queues, most, limit, wait_us, limits=True)
        if not answer.before:
            await self._record_pace(run, answer.jobs, set(room))
        if wait_s is not None and (answer.next_due_s is None or answer.next_due_s > wait_s):
            answer.next_due_s = wait_s
        return answer

    async def _room(self, run: Run, queues: Sequence[str]) -> tuple[dict[str, int], float | None]:
        """How many each queue with limits lets through, and when its rate lets more."""
        locked = [row["name"] for row in await run(self._lock_queues_sql, list(queues))]
        self._limited.difference_update(queues)
        self._limited.update(locked)
        rows: Sequence[Any] = await run(self._room_sql, locked) if locked else ()
        waits: list[float] = [row["wait_s"] for row in rows if row["wait_s"] is not None]
        return {row["name"]: row["room"] for row in rows}, min(waits, default=None)

    async def _record_pace(self, run: Run, jobs: Sequence[ClaimedJob], limited: set[str]) -> None:
        counts = Counter(job.queue for job in jobs if job.queue in limited)
        if counts:
            await run(self._pace_sql, list(counts), list(counts.values()))

    # -- one job by its id ----------------------------------------------------------------------

    async def _claim_named(self, request: ClaimRequest, job: JobId) -> Claimed:
        # Apart from the claim: two repeats cannot both have the one job.
        if request.again:
            before = await self._tables.transact(lambda run: self._claimed_before(run, request))
            if before:
                return Claimed(tuple(before))

        async def body(run: Run) -> _Answer | None:
            rows = await run(self._target_sql, job)
            if not rows or request.limit <= 0 or not request.admits(rows[0]["queue"]):
                return None
            queue = rows[0]["queue"]
            if rows[0]["due"]:
                await run(self._promote_named_sql, job)
            room, _ = await self._room(run, [queue])
            session = (request.session, request.worker, request.request)
            most = [min(1, max(0, room.get(queue, 1)))]
            taken = await run(
                self._named_sql,
                *session,
                [queue],
                most,
                most[0],
                True,
                True,
                self._tables.host,
                [next((w.max_losses for w in request.wants if w.queue == queue), None)],
                False,
                job,
            )
            answer = _answer(taken, [queue])
            await self._record_pace(run, answer.jobs, set(room))
            return answer

        answer = await self._tables.transact(body)
        if answer is None or not answer.alive:
            await self._refuse(request)
        if answer is not None and answer.jobs:
            return Claimed(tuple(answer.jobs))
        if request.wait_us > 0 and request.wants:
            queues = [want.queue for want in request.wants]
            await self._tables.fetch(self._note_sql, queues, self._tables.host, request.wait_us)
        return Claimed(())

    # -- sessions -------------------------------------------------------------------------------

    async def _claimed_before(self, run: Run, request: ClaimRequest) -> list[ClaimedJob]:
        """What an earlier call of the same request claimed, once it cannot claim any more.

        Until the end of the transaction, no other call of the session can claim. The rows of queues
        are locked before, if at all: every claim does it in this order.
        """
        judge_session(await run(self._lock_session_sql, request.session), request.session)
        rows = await run(self._again_sql, request.session, request.request)
        rows = sorted(rows, key=lambda row: (-row["priority"], row["seq"]))
        return [_job(row, _SEQ_OFFSET) for row in rows]

    async def _refuse(self, request: ClaimRequest) -> None:
        """Raise what is wrong with the session, if anything still is."""
        rows = await self._tables.fetch(self._session_sql, request.session, write=False)
        judge_session(rows, request.session)


# Where the columns of a job begin: behind what is said of the attempt, or behind seq alone.
_OFFSET = 8
_SEQ_OFFSET = 1


def _remember(hints: set[str], queues: Iterable[str]) -> None:
    if len(hints) > _HINTS_MAX:
        hints.clear()
    hints.update(queues)


def _rest(request: ClaimRequest, jobs: Sequence[ClaimedJob]) -> ClaimRequest:
    """What is wanted of each queue beyond ``jobs``, which an attempt before brought."""
    if not jobs:
        return request
    had = Counter(job.queue for job in jobs)
    wants = [Want(want.queue, max(0, want.limit - had[want.queue])) for want in request.wants]
    return replace(request, wants=tuple(wants))


def _answer(rows: Sequence[Any], queues: Sequence[str]) -> _Answer:
    first = rows[0]
    alive, limited, due_s = first["alive"], first["limited"], first["next_due_s"]
    more = (alive, limited, due_s, first["standing"], first["noted"], first["overdue"])
    if first["id"] is None:
        return _Answer([], *more)
    if len(rows) > 1:
        place = {queue: number for number, queue in enumerate(queues)}
        rows = sorted(rows, key=lambda row: (place[row["queue"]], -row["priority"], row["seq"]))
    return _Answer([_job(row, _OFFSET) for row in rows], *more)


def _job(row: Any, offset: int) -> ClaimedJob:
    # By position: a claim of a hundred looks up a thousand values.
    (
        id_,
        queue,
        token,
        payload,
        attempts,
        losses,
        most,
        retry,
        priority,
        headers,
        at,
        unique,
        key,
        *_,
    ) = row[offset:]
    return ClaimedJob(
        id=JobId(id_),
        queue=queue,
        token=Token(token),
        payload=payload,
        attempts=attempts,
        losses=losses,
        max_attempts=most,
        retry=retry,
        priority=priority,
        headers=headers,
        enqueued_at_us=at,
        unique_key=unique,
        ordering_key=key,
    )
