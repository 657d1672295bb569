"""``Job`` and ``JobInfo``: a job as its enqueuer and as an onlooker sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from outlive.errors import JobFailed, JobNotFound
from outlive.model.job import Changed, Enqueued, Entry, JobRecord, JobState
from outlive.model.options import Duration, seconds
from outlive.names import HostId, JobId, Token
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.serialization import Codec, decode_metadata, decode_plain
from outlive.work.bell import Alarm

R_co = TypeVar("R_co", covariant=True)

# Who waits for a result is told by nobody unless the job ends in the same process: look soon, then
# ever more rarely, so that a job of minutes costs a read per second.
_LOOK_FIRST_S, _LOOK_MOST_S = 0.02, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """What the store knows of one job, at the moment it was asked.

    ``attempts`` counts failures of its handler, ``losses`` lost claims. ``claimed_by``,
    ``session`` and ``claimed_at`` are of the newest claim, and stay after its end. ``error`` is
    that of the newest failure. ``blocked``: it waits for an earlier job of its ordering key.
    ``cursor`` is what the next page of a listing begins after.
    """

    id: JobId
    queue: str
    state: JobState
    priority: int
    payload: Any
    headers: dict[str, Any]
    token: Token
    attempts: int
    losses: int
    max_attempts: int
    max_losses: int
    retry: dict[str, Any]
    unique_key: str | None
    ordering_key: str | None
    blocked: bool
    cancel_requested: bool
    claimed_by: str | None
    session: HostId | None
    claimed_at: datetime | None
    enqueued_at: datetime
    due_at: datetime
    ended_at: datetime | None
    result: Any
    error: Any
    progress: Any
    cursor: str


def info_of(record: JobRecord) -> JobInfo:
    """What people are shown of a record."""
    return JobInfo(
        id=record.id,
        queue=record.queue,
        state=record.state,
        priority=record.priority,
        payload=decode_plain(record.payload),
        headers=decode_metadata(record.headers),
        token=record.token,
        attempts=record.attempts,
        losses=record.losses,
        max_attempts=record.max_attempts,
        max_losses=record.max_losses,
        retry=decode_metadata(record.retry),
        unique_key=record.unique_key,
        ordering_key=record.ordering_key,
        blocked=record.blocked,
        cancel_requested=record.cancel_requested,
        claimed_by=record.claimed_by,
        session=record.session,
        claimed_at=record.claimed_at,
        enqueued_at=record.enqueued_at,
        due_at=record.due_at,
        ended_at=record.ended_at,
        result=decode_plain(record.result),
        error=decode_plain(record.error),
        progress=decode_plain(record.progress),
        cursor=record.cursor,
    )


class Jobs(Protocol):
    """What a job's handle needs of the host that made it."""

    runtime: Runtime

    async def record(self, id: JobId) -> JobRecord | None:  # noqa: A002 - it is one
        """What the store knows of the job."""
        ...

    async def cancel_one(self, id: JobId, reason: str) -> Changed:  # noqa: A002 - it is one
        """Ask for its cancellation."""
        ...

    def on_ended(self, id: JobId, alarm: Alarm) -> Callable[[], None]:  # noqa: A002 - it is one
        """Ring ``alarm`` when the job ends in this process; what is returned ends it."""
        ...


class Job(Generic[R_co]):
    """A job that was enqueued. Made by ``Work.enqueue`` and ``Work.job``.

    ``entry`` says what enqueueing did: ``created``, ``existing`` where the queue had a job of this
    id, whatever became of it, or ``existing``, ``replaced`` and ``rejected`` where a live job had
    the unique key. ``payload_differs``: the job of this id carries another payload, which stays.
    """

    __slots__ = ("_codec", "_jobs", "entry", "id", "payload_differs", "queue")

    def __init__(
        self,
        id: JobId,  # noqa: A002 - it is one
        queue: str | None,
        jobs: Jobs,
        *,
        codec: Codec | None = None,
        outcome: Enqueued | None = None,
    ) -> None:
        self.id = id
        self.queue = queue
        self.entry = Entry.CREATED if outcome is None else outcome.entry
        self.payload_differs = outcome is not None and outcome.payload_differs
        self._jobs = jobs
        self._codec = codec

    def __repr__(self) -> str:
        where = "" if self.queue is None else f" in {self.queue!r}"
        return f"<Job {self.id}{where}>"

    async def status(self) -> JobInfo:
        """What the store knows of it now.

        Raises:
            JobNotFound: There is none of this id; its retention may have ended.
        """
        record = await self._jobs.record(self.id)
        if record is None:
            raise JobNotFound(self.id)
        return info_of(record)

    async def cancel(self, *, reason: str = "cancelled") -> bool:
        """End it as cancelled: at once, or by way of the one who runs it.

        False if it had ended otherwise before.

        Raises:
            JobNotFound: There is none of this id.
        """
        changed = await self._jobs.cancel_one(self.id, reason)
        if changed is Changed.NOT_FOUND:
            raise JobNotFound(self.id)
        return changed is not Changed.REFUSED

    async def result(self, *, timeout: Duration | None = None) -> R_co:
        """Wait until it has ended, and return what its handler returned.

        Raises:
            JobFailed: It is dead or was cancelled; carries the error.
            JobNotFound: There is none of this id, or it was removed at its end (``retention=0``).
            TimeoutError: It has not ended within ``timeout``; it goes on.
            StoreError: The store could not be asked.
        """
        runtime = self._jobs.runtime
        clock, backoff = runtime.clock, Backoff(_LOOK_FIRST_S, _LOOK_MOST_S, runtime.random)
        until = None if timeout is None else clock.monotonic() + seconds(timeout, "timeout")
        alarm = Alarm()
        end = self._jobs.on_ended(self.id, alarm)
        try:
            while True:
                alarm.reset()
                record = await self._jobs.record(self.id)
                if record is None:
                    raise JobNotFound(self.id)
                if record.ended_at is not None:
                    return self._result_of(record)
                left_s = None if until is None else until - clock.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError(_in_vain(record))
                pause_s = backoff.next_s()
                await alarm.sleep(pause_s if left_s is None else min(pause_s, left_s))
        finally:
            end()

    def _result_of(self, record: JobRecord) -> Any:
        if record.state is not JobState.DONE:
            raise JobFailed(self.id, record.state, decode_plain(record.error))
        if record.result is None or self._codec is None:
            return decode_plain(record.result)
        return self._codec.decode(record.result)


def _in_vain(record: JobRecord) -> str:
    """What to say to who has waited in vain."""
    said = f"job {record.id!r} has not ended: it is {record.state}"
    if record.state is not JobState.READY or record.attempts or record.losses:
        return said
    return (
        f"{said}, and no worker has claimed it; check that a host runs a handler of queue "
        f"{record.queue!r} (host.running(), host.run() or `outlive worker`)"
    )
