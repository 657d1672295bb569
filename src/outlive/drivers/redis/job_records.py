"""Jobs as the scripts take and give them, and as the values of the port. Pure.

Owns the body: what no script looks into, as one JSON text. Instants are microseconds of the
server's clock since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from outlive.drivers.redis.records import instant_of
from outlive.drivers.redis.scripts import USUAL_LOSSES
from outlive.errors import UsageError
from outlive.model.job import (
    MAX_ATTEMPTS,
    Attempt,
    ClaimedJob,
    Failure,
    JobRecord,
    JobState,
    NewJob,
    QueueMode,
    QueueRecord,
    QueueSettings,
)
from outlive.names import HostId, JobId, Token

# Numbers of Lua are doubles, which hold whole ones up to here: an instant in the year 2255.
_WHOLE_MAX = 2**53

# What job_claim.lua gives for each job.
_CLAIM_WORDS = 7

# Why a job is dead whose body nobody can read.
_DAMAGED = (
    '"the data of this job was damaged by another program, or evicted by Redis (maxmemory-policy)"'
)

# The order in which job_queues.lua counts.
_STATES = (
    JobState.SCHEDULED,
    JobState.READY,
    JobState.CLAIMED,
    JobState.RETRYING,
    JobState.DONE,
    JobState.DEAD,
    JobState.CANCELLED,
)


class _Body(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What no script looks into. New fields come last, with a default."""

    payload: str
    headers: str
    retry: str
    max_attempts: int
    priority: int
    unique_key: str | None


class _Claim(msgspec.Struct, frozen=True, gc=False):
    """The newest claim, as job_claim.lua keeps it."""

    worker: str
    at: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Body)
_claims = msgspec.json.Decoder(_Claim)
_troubles = msgspec.json.Decoder(tuple[str, str, str | None, str | None, str, str | None])


def words_of(jobs: Sequence[NewJob]) -> list[Any]:
    """What job_enqueue.lua takes for ``jobs``.

    Raises:
        UsageError: A text is not valid Unicode.
    """
    words: list[Any] = []
    for job in jobs:
        due = "" if job.due_at_us is None else min(job.due_at_us, _WHOLE_MAX)
        words += (
            job.id,
            job.queue,
            _body_of(job),
            job.priority,
            min(job.delay_us, _WHOLE_MAX),
            due,
            optional(job.unique_key),
            job.on_duplicate,
            job.max_losses,
            "" if job.expires_us is None else min(job.expires_us, _WHOLE_MAX),
            min(job.retention_us, _WHOLE_MAX),
        )
    return words


def optional(text: str | None) -> str:
    """A text that may be missing: nothing if it is, and behind a sign if it is there."""
    return "" if text is None else f"={text}"


def text_of(value: Any) -> str:
    """``value`` as JSON.

    Raises:
        UsageError: A text in it is not valid Unicode.
    """
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        raise UsageError("a value cannot be stored: it is not valid Unicode") from None


def _body_of(job: NewJob) -> str:
    return text_of(
        _Body(job.payload, job.headers, job.retry, job.max_attempts, job.priority, job.unique_key)
    )


def _read_body(text: str | None) -> _Body | None:
    """The body, or nothing if somebody else has damaged or evicted it."""
    try:
        return _decoder.decode(text or "")
    except msgspec.DecodeError:
        return None


def claimed_of(words: Sequence[Any]) -> tuple[tuple[ClaimedJob, ...], list[Failure]]:
    """The jobs that job_claim.lua gave, and how those end whose body is damaged."""
    claimed: list[ClaimedJob] = []
    damaged: list[Failure] = []
    for first in range(0, len(words), _CLAIM_WORDS):
        id_, queue, token, text, attempts, losses, enqueued = words[first : first + _CLAIM_WORDS]
        body = _read_body(text)
        if body is None:
            damaged.append(Failure(id_, token, _DAMAGED))
            continue
        claimed.append(
            ClaimedJob(
                id=id_,
                queue=queue,
                token=token,
                payload=body.payload,
                attempts=int(attempts),
                losses=int(losses),
                max_attempts=body.max_attempts,
                retry=body.retry,
                priority=body.priority,
                headers=body.headers,
                enqueued_at_us=int(enqueued),
                unique_key=body.unique_key,
            )
        )
    return tuple(claimed), damaged


def record_of(described: Sequence[Any]) -> JobRecord:
    """The job that ``describe_job`` of job_read.lua gave."""
    id_, words, text = described
    row: dict[str, str] = dict(zip(words[::2], words[1::2], strict=True))
    # Also a damaged job must be seen, to be deleted.
    body = _read_body(text) or _Body("null", "{}", "{}", MAX_ATTEMPTS, 0, None)
    state = JobState(row["state"])
    claim = _claims.decode(row["claim"]) if "claim" in row else None
    return JobRecord(
        id=JobId(id_),
        queue=row["queue"],
        state=state,
        priority=body.priority,
        payload=body.payload,
        headers=body.headers,
        token=Token(int(row.get("token", 0))),
        attempts=int(row.get("attempts", 0)),
        losses=int(row.get("losses", 0)),
        max_attempts=body.max_attempts,
        max_losses=int(row.get("max_losses", USUAL_LOSSES)),
        retry=body.retry,
        unique_key=body.unique_key,
        ordering_key=None,
        blocked=False,
        cancel_requested="cancel" in row and state is JobState.CLAIMED,
        claimed_by=claim.worker if claim else None,
        session=HostId(row["session"]) if "session" in row else None,
        claimed_at=instant_of(claim.at) if claim else None,
        enqueued_at=instant_of(row["enqueued"]),
        due_at=instant_of(row.get("due", row["enqueued"])),
        ended_at=_instant(row.get("ended")),
        result=row.get("result"),
        error=row.get("error"),
        progress=row.get("progress"),
        cursor=row["number"],
    )


def attempts_of(entries: Iterable[str]) -> list[Attempt]:
    """What ``trouble`` of jobs.lua kept."""
    found: list[Attempt] = []
    for entry in entries:
        token, outcome, worker, claimed, ended, error = _troubles.decode(entry)
        found.append(
            Attempt(
                token=Token(int(token)),
                outcome=outcome,
                worker=worker,
                claimed_at=_instant(claimed),
                ended_at=instant_of(ended),
                error=error,
            )
        )
    return found


def queue_of(described: Sequence[Any], now_us: int) -> QueueRecord:
    """The queue that job_queues.lua gave."""
    name, mode, counts, due = described
    return QueueRecord(
        settings=QueueSettings(name=name, mode=QueueMode(mode or QueueMode.OPEN)),
        counts={state: count for state, count in zip(_STATES, counts, strict=True) if count},
        oldest_ready_s=None if due is None else max(0, now_us - int(due)) / 1e6,
    )


def _instant(us: str | None) -> datetime | None:
    return None if us is None else instant_of(us)
