"""Rows of jobs as callers see them: claims, records and queues.

Pure.
"""

from __future__ import annotations

from outlive.clock import instant
from outlive.drivers.memory.job_rows import JobRow, JobTable, QueueRow
from outlive.model.job import (
    ClaimedJob,
    JobFilter,
    JobRecord,
    JobState,
    QueueRecord,
    QueueSettings,
)
from outlive.names import Token


def claimed_of(row: JobRow) -> ClaimedJob:
    """What a claimant is given."""
    job = row.job
    return ClaimedJob(
        id=job.id,
        queue=job.queue,
        token=Token(row.token),
        payload=job.payload,
        attempts=row.attempts,
        losses=row.losses,
        max_attempts=job.max_attempts,
        retry=job.retry,
        priority=job.priority,
        headers=job.headers,
        enqueued_at_us=row.enqueued_us,
        unique_key=job.unique_key,
        ordering_key=job.ordering_key,
    )


def record_of(row: JobRow) -> JobRecord:
    """Everything that is known of a job."""
    job, claim = row.job, row.claim
    return JobRecord(
        id=job.id,
        queue=job.queue,
        state=row.state,
        priority=job.priority,
        payload=job.payload,
        headers=job.headers,
        token=Token(row.token),
        attempts=row.attempts,
        losses=row.losses,
        max_attempts=job.max_attempts,
        max_losses=job.max_losses,
        retry=job.retry,
        unique_key=job.unique_key,
        ordering_key=job.ordering_key,
        blocked=row.blocked,
        cancel_requested=row.cancel is not None and row.state is JobState.CLAIMED,
        claimed_by=claim.worker if claim is not None else None,
        session=claim.session if claim is not None else None,
        claimed_at=instant(claim.at_us) if claim is not None else None,
        enqueued_at=instant(row.enqueued_us),
        due_at=instant(row.due_us),
        ended_at=instant(row.ended_us) if row.ended_us is not None else None,
        result=row.result,
        error=row.error,
        progress=row.progress,
        cursor=str(row.number),
    )


def matches(row: JobRow, wanted: JobFilter) -> bool:
    """Whether a job is meant."""
    job = row.job
    return (
        (wanted.queue is None or job.queue == wanted.queue)
        and (not wanted.states or row.state in wanted.states)
        and (wanted.unique_key is None or job.unique_key == wanted.unique_key)
        and (wanted.ordering_key is None or job.ordering_key == wanted.ordering_key)
        and (
            wanted.session is None
            or (row.claim is not None and row.claim.session == wanted.session)
        )
    )


def queue_of(table: JobTable, queue: QueueRow, now_us: int) -> QueueRecord:
    """A queue and how many jobs it has."""
    ready = (*queue.ready, *queue.suspects)
    oldest_us = min((table.rows[job].due_us for job in ready), default=None)
    return QueueRecord(
        settings=queue.settings or QueueSettings(name=queue.name),
        counts={state: count for state, count in queue.counts.items() if count},
        oldest_ready_s=None if oldest_us is None else max(0, now_us - oldest_us) / 1e6,
    )
