"""What a client says of an item becomes the ``NewJob`` that a store takes, or is refused. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from outlive.errors import UsageError
from outlive.model.job import MAX_ATTEMPTS, NewJob, OnDuplicate
from outlive.model.retry import Retry
from outlive.names import JobId
from outlive.serialization import METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX, encode_json
from outlive.server import schemas
from outlive.work.drafting import DUE_AT_US_MAX

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def job_of(queue: str, fresh_id: str, new: schemas.NewItem, carried: Mapping[str, str]) -> NewJob:
    """The job of one new item, under its own id or a fresh one.

    ``carried`` are headers that the request brings along; the item's own win.

    Raises:
        UsageError: What is said does not fit together.
    """
    retry, attempts = _retry(new)
    job = NewJob(
        id=JobId(new.id or fresh_id),
        queue=queue,
        payload=encode_json(new.payload, "the payload", limit=PAYLOAD_BYTES_MAX),
        priority=round(new.priority),
        delay_us=round(new.delay * 1e6),
        due_at_us=_due_at_us(new),
        unique_key=new.unique_key,
        on_duplicate=OnDuplicate(new.on_duplicate),
        ordering_key=new.ordering_key,
        max_attempts=attempts,
        retry=retry,
        expires_us=None if new.expires is None else round(new.expires * 1e6),
        headers=encode_json({**carried, **new.headers}, "headers", limit=METADATA_BYTES_MAX),
    )
    if new.retention is None:
        return job
    return msgspec.structs.replace(job, retention_us=round(new.retention * 1e6))


def _due_at_us(new: schemas.NewItem) -> int | None:
    if new.at is None:
        return None
    if new.delay:
        raise UsageError("give delay or at, not both")
    at_us = (new.at - _EPOCH) // timedelta(microseconds=1)
    if abs(at_us) > DUE_AT_US_MAX:
        raise UsageError("at must be before June 2255, and after July 1684")
    return at_us


def _retry(new: schemas.NewItem) -> tuple[str, int]:
    """The policy that travels with the job, and the attempts it allows.

    What is not said is left to whoever runs the job.
    """
    said = {} if new.retry is None else msgspec.structs.asdict(new.retry)
    changes = {name: value for name, value in said.items() if value is not None}
    most = new.max_attempts if new.max_attempts is not None else changes.get("max_attempts")
    if most is not None:
        changes["max_attempts"] = round(most)
    if not changes:
        return "{}", MAX_ATTEMPTS
    text = msgspec.json.encode(changes).decode()
    return text, Retry().overridden(text).max_attempts
