"""How claims end: each function settles one job in a ``JobStep``.

A repeated call under the token of a claim that ended the same way is ``ok`` and changes nothing.
"""

from __future__ import annotations

import msgspec

from outlive.drivers.memory.job_rows import JobRow, JobTable, Outcome
from outlive.drivers.memory.job_step import JobStep
from outlive.model.job import (
    Completion,
    Extension,
    Failure,
    JobState,
    Reclaimed,
    Return,
    Settled,
)
from outlive.names import JobId


def complete(step: JobStep, completion: Completion) -> Settled:
    """The job is done."""
    row = _claimed(step.table, completion.id, completion.token, Outcome.DONE)
    if not isinstance(row, JobRow):
        return Settled.OK if row else Settled.LOST
    step.leave(row, Outcome.DONE)
    row.result = completion.result
    step.end(row, JobState.DONE)
    return Settled.OK


def fail(step: JobStep, failure: Failure) -> Settled:
    """The handler failed."""
    row = _claimed(step.table, failure.id, failure.token, Outcome.FAILED)
    if not isinstance(row, JobRow):
        return Settled.OK if row else Settled.LOST
    step.leave(row, Outcome.FAILED)
    step.trouble(row, "failed", failure.error)
    row.attempts += 1
    row.error = failure.error
    if row.cancel is not None:
        step.cancel(row, row.cancel)
    elif failure.retry_us is None:
        step.end(row, JobState.DEAD)
    else:
        step.wait(row, step.now_us + failure.retry_us, JobState.RETRYING)
    return Settled.OK


def release(step: JobStep, returned: Return) -> Settled:
    """The job was not run."""
    row = _claimed(step.table, returned.id, returned.token, Outcome.RELEASED)
    if not isinstance(row, JobRow):
        return Settled.OK if row else Settled.LOST
    claim = step.leave(row, Outcome.RELEASED)
    if returned.unbegun:
        step.uncount(row, claim)
    if row.cancel is not None:
        step.cancel(row, row.cancel)
    elif returned.delay_us > 0:
        step.wait(row, step.now_us + returned.delay_us, JobState.SCHEDULED)
    else:
        step.ready(row)
    return Settled.OK


def extend(step: JobStep, extension: Extension) -> Settled:
    """Whether the claim stands."""
    row = step.table.rows.get(extension.id)
    if row is None or row.token != extension.token or row.state is not JobState.CLAIMED:
        return Settled.LOST
    if extension.progress is not None:
        row.progress = extension.progress
    return Settled.OK if row.cancel is None else Settled.CANCEL


def lose(step: JobStep, row: JobRow) -> Reclaimed:
    """The session of the claim is gone."""
    step.leave(row, Outcome.LOST)
    step.trouble(row, "lost", None)
    row.losses += 1
    if row.cancel is not None:
        step.cancel(row, row.cancel)
    elif row.losses > (limit := row.job.max_losses):
        last = "" if row.claim is None else row.claim.worker
        why = f"lost too often: losses {row.losses}, max_losses {limit}, last host {last}"
        row.error = msgspec.json.encode(why).decode()
        step.end(row, JobState.DEAD)
    else:
        step.ready(row)
    return Reclaimed(row.job.id, row.job.queue, row.state)


def _claimed(table: JobTable, job: JobId, token: int, outcome: Outcome) -> JobRow | bool:
    """The row claimed under ``token``, or whether that claim has ended by ``outcome`` already."""
    row = table.rows.get(job)
    if row is None or row.claim is None or row.token != token:
        return False
    if row.state is JobState.CLAIMED:
        return row
    return row.claim.outcome is outcome
