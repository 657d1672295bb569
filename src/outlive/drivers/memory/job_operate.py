"""What operators do to jobs: each function changes one job in a ``JobStep``."""

from __future__ import annotations

from outlive.drivers.memory.job_rows import JobRow
from outlive.drivers.memory.job_step import JobStep, is_live
from outlive.model.job import Changed, JobState
from outlive.names import JobId
from outlive.ports.wakeups import Wakeup


def cancel(step: JobStep, job: JobId, reason: str) -> Changed:
    """Somebody does not want the job any more."""
    row = step.table.rows.get(job)
    if row is None:
        return Changed.NOT_FOUND
    if row.state is JobState.CLAIMED:
        row.cancel = row.cancel or reason
        assert row.claim is not None
        step.calls.append((row.claim.host, Wakeup(f"cancel/{job}")))
        return Changed.REQUESTED
    if is_live(row):
        step.cancel(row, reason)
    # Asked again after a lost reply, it is as was wished.
    return Changed.CHANGED if row.state is JobState.CANCELLED else Changed.REFUSED


def retry(step: JobStep, row: JobRow | None) -> Changed:
    """Somebody wants the job to be run now."""
    if row is None:
        return Changed.NOT_FOUND
    if row.state is JobState.READY:
        return Changed.CHANGED
    if row.state in (JobState.SCHEDULED, JobState.RETRYING):
        step.wait(row, step.now_us, row.state)
        return Changed.CHANGED
    key = row.job.unique_key
    taken = key is not None and (row.job.queue, key) in step.table.unique
    if taken or row.state not in (JobState.DEAD, JobState.CANCELLED):
        return Changed.REFUSED
    step.table.kept.remove(row.job.id)
    row.attempts = row.losses = 0
    row.cancel = row.error = row.result = row.progress = row.ended_us = None
    step.enter(row, step.now_us)
    return Changed.CHANGED


def purge(step: JobStep, row: JobRow | None) -> Changed:
    """Nobody wants to know of the job any more."""
    if row is None:
        return Changed.NOT_FOUND
    if is_live(row):
        return Changed.REFUSED
    step.table.kept.remove(row.job.id)
    step.table.remove(row)
    return Changed.CHANGED
