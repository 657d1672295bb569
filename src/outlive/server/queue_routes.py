"""Routes of those who fill queues and look at them.

Owns what is shown of an item. What users wrote stays hidden from who lacks ``payload:read``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from outlive.clock import microseconds
from outlive.errors import UnsupportedByDriver, UsageError
from outlive.model.bearer import Scope
from outlive.model.job import (
    MAX_ATTEMPTS,
    Attempt,
    Enqueued,
    Entry,
    JobFilter,
    JobRecord,
    JobState,
    NewJob,
    OnDuplicate,
    QueueRecord,
)
from outlive.model.retry import Retry
from outlive.names import JobId, check_key, check_queue
from outlive.ports.job_desk import JobDesk
from outlive.serialization import METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX, encode_json
from outlive.server import limits, schemas
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.problems import Problem
from outlive.server.spaces import Space, Spaces
from outlive.work.drafting import DUE_AT_US_MAX
from outlive.work.work import compared


class QueueRoutes:
    """Queues and items."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    def endpoints(self) -> list[Endpoint]:
        """The routes."""
        return [
            Endpoint(
                method="POST",
                path="/queues/{queue:path}/items",
                name="enqueue",
                summary="Add one item, or a list of them: all or none.",
                run=self.enqueue,
                scope=Scope.ENQUEUE,
                body=schemas.NewItem | schemas.NewItems,
                answers={
                    201: ("The item was added.", schemas.Queued),
                    200: (
                        "The outcome for each item of the list; of one item that exists, as 201.",
                        schemas.QueuedMany,
                    ),
                },
                problems=("duplicate", "queue-draining", "conflict", "unsupported"),
            ),
            Endpoint(
                method="GET",
                path="/queues",
                name="queues",
                summary="A page of queues, and how many items each has in each state.",
                run=self.queues,
                scope=Scope.READ,
                query=schemas.QueuesQuery,
                answers={200: ("The queues.", schemas.Queues)},
            ),
            Endpoint(
                method="GET",
                path="/queues/{queue:path}/items",
                name="items",
                summary="A page of the items of a queue, in order of enqueueing.",
                run=self.items,
                scope=Scope.READ,
                query=schemas.ItemsQuery,
                answers={200: ("A page.", schemas.Items)},
                problems=("not-found",),
            ),
            Endpoint(
                method="GET",
                path="/items/{item:path}",
                name="item",
                summary="One item, with its failed attempts.",
                run=self.item,
                scope=Scope.READ,
                answers={200: ("The item.", schemas.Item)},
                problems=("not-found",),
            ),
        ]

    async def enqueue(self, call: Call) -> Reply:
        """Add one item or many."""
        space = self._spaces.of(call.principal)
        queue = check_queue(call.path["queue"])
        body: schemas.NewItem | list[schemas.NewItem] = call.body
        items = body if isinstance(body, list) else [body]
        measuring = self._spaces.measuring
        with measuring.span("enqueue", call.request, queue=queue, count=len(items)):
            carried = measuring.carried(call.request)
            jobs = [self._job(space, queue, new, carried) for new in items]
            entries = await compared(space.jobs, jobs, await space.jobs.enqueue(jobs))
        measuring.enqueued(queue, entries)
        if isinstance(body, list):
            return Reply(200, schemas.QueuedMany(items=[_queued(entry) for entry in entries]))
        (entry,) = entries
        if entry.entry is Entry.REJECTED:
            raise Problem(
                "duplicate",
                f"The live item {entry.id!r} already has this unique key. Nothing was added.",
            )
        if entry.entry is Entry.CLOSED:
            raise Problem("queue-draining", f"Queue {queue!r} is draining. Nothing was added.")
        if entry.entry is Entry.CONFLICT:
            raise Problem(
                "conflict", f"An item of another queue has the id {entry.id!r}. Nothing was added."
            )
        return Reply(200 if entry.entry is Entry.EXISTING else 201, _queued(entry))

    def _job(
        self, space: Space, queue: str, new: schemas.NewItem, carried: dict[str, str]
    ) -> NewJob:
        capabilities = space.driver.capabilities
        if new.ordering_key is not None and not capabilities.ordering:
            raise UnsupportedByDriver(f"{capabilities.backend} does not support ordering keys")
        return job_of(queue, self._spaces.runtime.ordered_id(), new, carried)

    async def queues(self, call: Call) -> Reply:
        """One page of queues."""
        wanted: schemas.QueuesQuery = call.body
        records = await self._spaces.of(call.principal).jobs.queues()
        after = wanted.after
        # Each store has its own idea of the order of names, and a page needs one for all.
        rest = sorted(
            (record for record in records if after is None or record.settings.name > after),
            key=lambda record: record.settings.name,
        )
        page = rest[: wanted.limit]
        more = page[-1].settings.name if len(page) < len(rest) else None
        return Reply(
            200, schemas.Queues(queues=[_queue(record) for record in page], next_after=more)
        )

    async def items(self, call: Call) -> Reply:
        """One page of a queue."""
        wanted: schemas.ItemsQuery = call.body
        jobs = self._spaces.of(call.principal).jobs
        queue = check_queue(call.path["queue"])
        states = () if wanted.state is None else (JobState(wanted.state),)
        shown = call.principal.may(Scope.PAYLOAD)
        which = JobFilter(queue=queue, states=states)
        page, next_after = await _page(jobs, which, wanted, shown=shown)
        if not page and not any(record.settings.name == queue for record in await jobs.queues()):
            raise Problem("not-found", f"No queue {queue!r} in this namespace.")
        return Reply(200, schemas.Items(items=page, next_after=next_after))

    async def item(self, call: Call) -> Reply:
        """One item and what went wrong with it."""
        jobs = self._spaces.of(call.principal).jobs
        record = await jobs.get(JobId(call.path["item"]))
        if record is None:
            raise Problem("not-found", f"No item {call.path['item']!r} in this namespace.")
        shown = call.principal.may(Scope.PAYLOAD)
        item = _item(record, shown=shown)
        item.tries = [_try(attempt, shown=shown) for attempt in await jobs.attempts(record.id)]
        return Reply(200, item)


async def _page(
    jobs: JobDesk, which: JobFilter, wanted: schemas.ItemsQuery, *, shown: bool
) -> tuple[list[schemas.Item], str | None]:
    """The items of one page, and where the next one begins if there may be more.

    A store reads payloads whether they are shown or not. They are read in parts, and let go of as
    each record becomes an item; a part is as large as the records before it let expect.
    """
    found: list[schemas.Item] = []
    after, shown_bytes, most = wanted.after, 0, limits.PAGE_READ
    while len(found) < wanted.limit:
        most = min(most, wanted.limit - len(found))
        part = await jobs.list(which, after=after, limit=most)
        part_bytes = 0
        for record in part:
            size = _size(record)
            part_bytes += size
            found.append(_item(record, shown=shown))
            after = record.cursor
            if shown:
                shown_bytes += size
                if shown_bytes >= limits.PAGE_BYTES_MAX:
                    return found, after
        if len(part) < most:
            return found, None
        fits = limits.PAGE_READ_BYTES * len(part) // max(1, part_bytes)
        most = max(1, min(fits, 2 * most, limits.PAGE_READ_MAX))
    return found, after


def _size(record: JobRecord) -> int:
    texts = (record.payload, record.result, record.error, record.progress, record.headers)
    return sum(len(text) for text in texts if text is not None)


def _queued(entry: Enqueued) -> schemas.Queued:
    differs = True if entry.payload_differs else UNSET
    return schemas.Queued(id=entry.id, outcome=entry.entry.value, payload_differs=differs)


def _queue(record: QueueRecord) -> schemas.Queue:
    settings = record.settings
    return schemas.Queue(
        name=settings.name,
        mode=settings.mode.value,
        concurrency=settings.concurrency,
        rate=settings.rate,
        rate_period=settings.rate_period_us / 1e6,
        limits_by=settings.limited_by,
        counts={state.value: count for state, count in record.counts.items()},
        oldest_ready=record.oldest_ready_s,
    )


def _item(record: JobRecord, *, shown: bool) -> schemas.Item:
    item = schemas.Item(
        id=record.id,
        queue=record.queue,
        state=record.state.value,
        priority=record.priority,
        token=record.token,
        attempts=record.attempts,
        losses=record.losses,
        max_attempts=record.max_attempts,
        unique_key=record.unique_key,
        ordering_key=record.ordering_key,
        blocked=record.blocked,
        cancel_requested=record.cancel_requested,
        claimed_by=record.claimed_by,
        claimed_at=record.claimed_at,
        enqueued_at=record.enqueued_at,
        due_at=record.due_at,
        ended_at=record.ended_at,
    )
    if shown:
        item.payload = _stored(record.payload)
        item.headers = msgspec.json.decode(record.headers, type=dict[str, Any])
        item.result = _stored(record.result)
        item.error = _stored(record.error)
        item.progress = _stored(record.progress)
    return item


def _try(attempt: Attempt, *, shown: bool) -> schemas.Try:
    return schemas.Try(
        token=attempt.token,
        outcome=attempt.outcome,
        worker=attempt.worker,
        claimed_at=attempt.claimed_at,
        ended_at=attempt.ended_at,
        error=_stored(attempt.error) if shown else UNSET,
    )


def _stored(text: str | None) -> Any:
    """JSON text of a store, to be passed on as it is."""
    return None if text is None else msgspec.Raw(text.encode())


def job_of(queue: str, fresh_id: str, new: schemas.NewItem, carried: Mapping[str, str]) -> NewJob:
    """The job of one new item, under its own id or a fresh one.

    ``carried`` are headers that the request brings along; the item's own win.

    Raises:
        UsageError: What is said does not fit together.
    """
    retry, attempts = _retry(new)
    for name in (new.id, new.unique_key, new.ordering_key):
        # A type counts characters, a store bytes.
        check_key(name or fresh_id)
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
    at_us = microseconds(new.at)
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
