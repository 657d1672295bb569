"""The moves of jobs: how a row passes from state to state, and who must hear of it.

Pure apart from the rows: reads no clock and rings nobody. One ``JobStep`` is one atomic step of the
store, made and used under its lock.
"""

from __future__ import annotations

import msgspec

from outlive.clock import instant
from outlive.drivers.memory.job_rows import (
    ClaimRow,
    JobRow,
    JobTable,
    OrderRow,
    Outcome,
    QueueRow,
)
from outlive.drivers.memory.notes import take_notes
from outlive.model.instance import Message
from outlive.model.job import (
    ATTEMPTS_KEPT_MAX,
    LIVE,
    SUSPECT_LOSSES,
    Attempt,
    ClaimRequest,
    Enqueued,
    Entry,
    JobState,
    NewJob,
    OnDuplicate,
    QueueMode,
)
from outlive.names import HostId, Token
from outlive.ports.wakeups import Wakeup

# What an instance is told of a job that its queue did not take: it drains, or has one of its key.
_NOT_TAKEN = '"the queue rejected the job: draining or duplicate unique key"'


class JobStep:
    """One step on a table at one instant.

    ``now_us`` is UTC; ``clock_us`` is the process clock. ``fresh`` counts the jobs that became
    claimable in each queue during the step. ``answers`` are the letters that ended jobs leave.
    """

    __slots__ = ("answers", "calls", "clock_us", "fresh", "now_us", "table")

    def __init__(self, table: JobTable, now_us: int, clock_us: int) -> None:
        self.table = table
        self.now_us = now_us
        self.clock_us = clock_us
        self.fresh: dict[str, int] = {}
        self.calls: list[tuple[HostId, Wakeup]] = []
        self.answers: list[Message] = []

    def add(self, job: NewJob) -> Enqueued:
        """Enqueue one job, or find what stands in its way."""
        added = self._add(job)
        if not added.stands(job):
            # Its instance would wait for ever for a job that never was.
            self._answer(job, JobState.CANCELLED, _NOT_TAKEN)
        return added

    def _add(self, job: NewJob) -> Enqueued:
        table = self.table
        known = table.rows.get(job.id)
        if known is not None:
            repeats = known.job.queue == job.queue
            return Enqueued(job.id, Entry.EXISTING if repeats else Entry.CONFLICT)
        if table.queue(job.queue).mode is QueueMode.DRAINING:
            return Enqueued(job.id, Entry.CLOSED)
        entry = Entry.CREATED
        rival = None
        if job.unique_key is not None:
            rival = table.unique.get((job.queue, job.unique_key))
        if rival is not None and self._make_way(table.rows[rival]):
            rival = None
        if rival is not None:
            if job.on_duplicate is OnDuplicate.RETURN:
                return Enqueued(rival, Entry.EXISTING)
            row = table.rows[rival]
            if job.on_duplicate is OnDuplicate.REJECT or row.state is JobState.CLAIMED:
                return Enqueued(rival, Entry.REJECTED)
            self.end(row, JobState.CANCELLED)
            entry = Entry.REPLACED
        due_us = self.now_us + job.delay_us if job.due_at_us is None else job.due_at_us
        row = JobRow(job, 0, self.now_us, due_us, None)
        table.insert(row)
        counts = table.queue(job.queue).counts
        counts[row.state] = counts.get(row.state, 0) + 1
        self.enter(row, due_us)
        return Enqueued(job.id, entry)

    def _make_way(self, rival: JobRow) -> bool:
        """End the job that has a unique key if nobody claimed it in time; says whether it was."""
        expired = rival.state is not JobState.CLAIMED and self.is_expired(rival)
        if expired:
            self.expire(rival)
        return expired

    def enter(self, row: JobRow, due_us: int) -> None:
        """Let a row live: behind the others of its keys, until its time or at once."""
        table, job = self.table, row.job
        if job.expires_us is not None:
            row.expires_us = self.now_us + job.expires_us
        if job.unique_key is not None:
            table.unique[job.queue, job.unique_key] = job.id
        if job.ordering_key is not None:
            order = table.orders.get((job.queue, job.ordering_key))
            if order is None:
                table.orders[job.queue, job.ordering_key] = OrderRow(job.id)
            else:
                row.blocked = True
                order.behind.add(job.id, row.number)
        self.wait(row, due_us, JobState.SCHEDULED)

    def wait(self, row: JobRow, due_us: int, state: JobState) -> None:
        """Let a row wait in ``state`` until ``due_us``; ready at once if that has passed."""
        row.due_us = due_us
        if due_us <= self.now_us:
            self._renumber(row)
            self.ready(row)
            return
        self._set(row, state)
        self._watch_expiry(row)
        queue = self.table.queue(row.job.queue)
        queue.leave(row.job.id)
        if not row.blocked:
            queue.due.add(row.job.id, due_us, row.number)

    def ready(self, row: JobRow) -> None:
        """Let a row be claimed, at the place its number gives it."""
        self._set(row, JobState.READY)
        self._watch_expiry(row)
        queue = self.table.queue(row.job.queue)
        queue.leave(row.job.id)
        if not row.blocked:
            if row.losses >= SUSPECT_LOSSES:
                queue.suspects.add(row.job.id, row.losses, row.seq)
            else:
                queue.ready.add(row.job.id, -row.job.priority, row.seq)
            self.freshen(queue)

    def freshen(self, queue: QueueRow, count: int = 1) -> None:
        """Note that jobs of a queue became claimable."""
        self.fresh[queue.name] = self.fresh.get(queue.name, 0) + count

    def promote(self, queue: QueueRow, limit: int) -> None:
        """Make ready what is due, at most ``limit`` jobs, in the order of their times."""
        for _ in range(limit):
            first = queue.due.first()
            if first is None or first[0][0] > self.now_us:
                return
            row = self.table.rows[first[1]]
            self._renumber(row)
            self.ready(row)

    def take(
        self, row: JobRow, request: ClaimRequest, host: HostId, max_losses: int | None = None
    ) -> None:
        """Claim a row for the session of a request."""
        table = self.table
        queue = table.queue(row.job.queue)
        if row.state is not JobState.READY:
            # Claimed by its id before anybody came by to promote it.
            self._renumber(row)
        queue.leave(row.job.id)
        table.expiring.remove(row.job.id)
        if max_losses is not None:
            row.job = msgspec.structs.replace(row.job, max_losses=max_losses)
        table.tokens += 1
        row.token = table.tokens
        row.claim = ClaimRow(request.session, host, request.worker, request.request, self.now_us)
        self._set(row, JobState.CLAIMED)
        table.claims.setdefault(request.session, {})[row.job.id] = None
        if queue.settings is not None and queue.settings.rate is not None:
            queue.claimed_us.append(self.clock_us)
            row.claim.paced_us = self.clock_us

    def leave(self, row: JobRow, outcome: Outcome) -> ClaimRow:
        """End the claim of a row, which its caller then lets wait, be ready or end."""
        claim = row.claim
        assert claim is not None
        claim.outcome = outcome
        mine = self.table.claims[claim.session]
        del mine[row.job.id]
        if not mine:
            del self.table.claims[claim.session]
        queue = self.table.queue(row.job.queue)
        if (
            queue.claimable
            and queue.settings is not None
            and queue.settings.concurrency is not None
        ):
            # A job that the limit of the queue held back has room now.
            self.freshen(queue)
        return claim

    def uncount(self, row: JobRow, claim: ClaimRow) -> None:
        """Give the rate of a queue back what a claim took of it, of which nothing was begun."""
        queue = self.table.queue(row.job.queue)
        if claim.paced_us is not None and claim.paced_us in queue.claimed_us:
            queue.claimed_us.remove(claim.paced_us)
            if queue.claimable:
                self.freshen(queue)

    def end(self, row: JobRow, state: JobState) -> None:
        """End a live row: its keys pass on, and it is kept for its retention."""
        table, job = self.table, row.job
        queue = table.queue(job.queue)
        queue.leave(job.id)
        table.expiring.remove(job.id)
        self._set(row, state)
        row.ended_us = self.now_us
        self._answer(job, state, row.result if state is JobState.DONE else row.error)
        if job.unique_key is not None:
            del table.unique[job.queue, job.unique_key]
        if job.ordering_key is not None:
            self._pass_on(row, job.queue, job.ordering_key)
        if job.retention_us > 0:
            table.kept.add(job.id, self.now_us + job.retention_us)
        else:
            table.remove(row)

    def _answer(self, job: NewJob, state: JobState, outcome: str | None) -> None:
        """Leave a letter for the instance that waits for a job, if one does."""
        if job.instance is not None:
            payload = f'{{"state":"{state}","outcome":{outcome or "null"}}}'
            letter = Message(job.instance, f"job/{job.id}", "step", job.step, payload)
            self.answers.append(letter)

    def cancel(self, row: JobRow, reason: str) -> None:
        """End a live row that somebody does not want any more."""
        row.error = msgspec.json.encode(reason).decode()
        self.end(row, JobState.CANCELLED)

    def trouble(self, row: JobRow, outcome: str, error: str | None) -> None:
        """Keep that something went wrong with a row."""
        claim = row.claim if outcome != "expired" else None
        attempt = Attempt(
            token=Token(row.token),
            outcome=outcome,
            worker=claim.worker if claim is not None else None,
            claimed_at=instant(claim.at_us) if claim is not None else None,
            ended_at=instant(self.now_us),
            error=error,
        )
        row.troubles = (attempt, *row.troubles)[:ATTEMPTS_KEPT_MAX]

    def expire(self, row: JobRow) -> None:
        """End a row that nobody claimed in time."""
        self.trouble(row, "expired", None)
        within_s = (row.job.expires_us or 0) / 1e6
        row.error = row.error or f'"expired: not claimed within {within_s:g} s"'
        self.end(row, JobState.DEAD)

    def expire_past(self, limit: int) -> int:
        """End up to ``limit`` rows that nobody claimed in time; says how many those were."""
        table, ended = self.table, 0
        while ended < limit and (first := table.expiring.first()) is not None:
            if first[0][0] > self.now_us:
                break
            self.expire(table.rows[first[1]])
            ended += 1
        return ended

    def is_expired(self, row: JobRow) -> bool:
        """Whether the time to claim a row has passed."""
        return row.expires_us is not None and row.expires_us <= self.now_us

    def call_waiting(self) -> None:
        """Choose who hears of what became claimable."""
        for name, count in self.fresh.items():
            queue = self.table.queues.get(name)
            if queue is not None:
                self.call(queue, min(count, queue.claimable))
        self.fresh.clear()

    def call(self, queue: QueueRow, jobs: int) -> None:
        """Choose who hears of so many jobs."""
        if jobs == 0 or queue.mode is QueueMode.PAUSED:
            return
        for host in take_notes(queue.notes, jobs, self.clock_us):
            self.calls.append((host, Wakeup(f"work/{queue.name}")))

    def _pass_on(self, row: JobRow, queue: str, key: str) -> None:
        order = self.table.orders[queue, key]
        if order.head != row.job.id:
            order.behind.remove(row.job.id)
            row.blocked = False
            return
        following = order.behind.first()
        if following is None:
            del self.table.orders[queue, key]
            return
        order.head = following[1]
        order.behind.remove(order.head)
        self._unblock(self.table.rows[order.head])

    def _unblock(self, row: JobRow) -> None:
        row.blocked = False
        if row.state is JobState.READY:
            self.ready(row)
        else:
            self.wait(row, row.due_us, row.state)

    def _watch_expiry(self, row: JobRow) -> None:
        if row.expires_us is not None:
            self.table.expiring.add(row.job.id, row.expires_us)

    def _renumber(self, row: JobRow) -> None:
        self.table.seqs += 1
        row.seq = self.table.seqs

    def _set(self, row: JobRow, state: JobState) -> None:
        counts = self.table.queue(row.job.queue).counts
        counts[row.state] -= 1
        counts[state] = counts.get(state, 0) + 1
        row.state = state


def is_live(row: JobRow) -> bool:
    """Whether a row has not ended."""
    return row.state in LIVE


def is_due(row: JobRow, now_us: int) -> bool:
    """Whether the time of a row that waits for it has come."""
    return row.state in (JobState.SCHEDULED, JobState.RETRYING) and row.due_us <= now_us
