"""Which jobs a claim takes, and what it says when it took too few.

Works on one ``JobStep``; checks no session and rings nobody.
"""

from __future__ import annotations

from outlive.drivers.memory.job_rows import JobRow, QueueRow
from outlive.drivers.memory.job_step import JobStep, is_due
from outlive.model.job import CLAIM_MAX, SUSPECT_LOSSES, ClaimRequest, JobState, QueueMode
from outlive.names import HostId

# Due jobs are promoted and expired ones ended by claims. More at once than a claim can take would
# make one of them pay for all; a backlog that came due together is promoted claim by claim.
PROMOTE_MAX = CLAIM_MAX


def claimed_before(step: JobStep, request: ClaimRequest) -> list[JobRow]:
    """What is still claimed under the same request."""
    rows = step.table.rows
    mine = [rows[job] for job in step.table.claims.get(request.session, ())]
    return [row for row in mine if row.claim is not None and row.claim.request == request.request]


def take_wanted(step: JobStep, request: ClaimRequest, host: HostId) -> list[JobRow]:
    """Claim from the wanted queues, in their order."""
    taken: list[JobRow] = []
    # One that waits for its time is in no line, and may yet have the turn of its ordering key.
    step.expire_past(PROMOTE_MAX)
    limit, suspects = min(request.limit, CLAIM_MAX), request.suspects
    for want in request.wants:
        queue = step.table.queues.get(want.queue)
        if queue is None or queue.mode is QueueMode.PAUSED:
            continue
        step.promote(queue, PROMOTE_MAX)
        count = min(want.limit, limit - len(taken), _room(step, queue))
        while count > 0 and (row := _first(step, queue, suspects=suspects)) is not None:
            if step.is_expired(row):
                step.expire(row)
                continue
            step.take(row, request, host, want.max_losses)
            suspects = suspects and row.losses < SUSPECT_LOSSES
            taken.append(row)
            count -= 1
    return taken


def _first(step: JobStep, queue: QueueRow, *, suspects: bool) -> JobRow | None:
    """The next job of a queue: a suspect if one is wanted."""
    line = queue.suspects if suspects and queue.suspects else queue.ready
    first = line.first()
    return None if first is None else step.table.rows[first[1]]


def take_targeted(step: JobStep, request: ClaimRequest, host: HostId) -> list[JobRow]:
    """Claim the one job that is named, if it can be claimed now."""
    row = step.table.rows.get(request.job) if request.job is not None else None
    if row is None or row.blocked or not request.admits(row.job.queue):
        return []
    if row.state is not JobState.READY and not is_due(row, step.now_us):
        return []
    queue = step.table.queue(row.job.queue)
    if queue.mode is QueueMode.PAUSED or _room(step, queue) <= 0 or request.limit <= 0:
        return []
    if step.is_expired(row):
        step.expire(row)
        return []
    losses = (want.max_losses for want in request.wants if want.queue == queue.name)
    step.take(row, request, host, next(losses, None))
    return [row]


def next_due_s(step: JobStep, request: ClaimRequest) -> float | None:
    """How long until the next job of the wanted queues comes due."""
    instants: list[int] = []
    for want in request.wants:
        queue = step.table.queues.get(want.queue)
        if queue is None or queue.mode is QueueMode.PAUSED:
            continue
        first = queue.due.first()
        if first is not None:
            instants.append(first[0][0])
    return max(0, min(instants) - step.now_us) / 1e6 if instants else None


def leave_notes(step: JobStep, request: ClaimRequest, host: HostId) -> None:
    """Remember that a host waits for the wanted queues."""
    until_us = step.clock_us + request.wait_us
    for want in request.wants:
        notes = step.table.queue(want.queue).notes
        notes[host] = max(until_us, notes.get(host, 0))


def _room(step: JobStep, queue: QueueRow) -> int:
    """How many more jobs the limits of a queue let through now."""
    settings, room = queue.settings, CLAIM_MAX
    if settings is None:
        return room
    if settings.concurrency is not None:
        room = settings.concurrency - queue.counts.get(JobState.CLAIMED, 0)
    if settings.rate is not None:
        since_us = step.clock_us - settings.rate_period_us
        while queue.claimed_us and queue.claimed_us[0] <= since_us:
            queue.claimed_us.popleft()
        room = min(room, settings.rate - len(queue.claimed_us))
    return room
