"""The values a job store speaks in: what is enqueued, claimed, settled and shown.

Pure. A job is one piece of work in a queue. Instants of the store's clock stay inside drivers;
``*_at_us`` here is UTC in microseconds, ``*_us`` alone is a duration, and what people are shown is
an aware datetime. Payloads, results, errors and headers are JSON text that no store looks into.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from outlive.names import HostId, InstanceId, JobId, Token

# One call, one statement or a few: more than this is an import, to be sent in several calls.
ENQUEUE_MAX = 10_000

# Jobs of one claim are run at once or not much later; whoever wants more asks again.
CLAIM_MAX = 1000

# Newest first in the order of claims is a number of this size, so that it fits every backend.
PRIORITY_MAX = 32_767

# The newest failures of a job tell what is wrong with it; older ones say the same.
ATTEMPTS_KEPT_MAX = 25

# Handler failures before a job is dead, unless its retry policy says otherwise.
MAX_ATTEMPTS = 25

# Claims that may be lost under a running handler before the job is taken for poison.
MAX_LOSSES = 10

# A job that was lost so often may be what kills its hosts: each host runs one such job at a time.
SUSPECT_LOSSES = 2


class JobState(StrEnum):
    """Where a job stands. The first four are live, the others final.

    ``scheduled`` waits for its first due time, ``retrying`` for the one after a failure; ``ready``
    can be claimed (unless an earlier job of its ordering key is live).
    """

    SCHEDULED = "scheduled"
    READY = "ready"
    CLAIMED = "claimed"
    RETRYING = "retrying"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


LIVE = (JobState.SCHEDULED, JobState.READY, JobState.CLAIMED, JobState.RETRYING)
FINAL = (JobState.DONE, JobState.DEAD, JobState.CANCELLED)


class OnDuplicate(StrEnum):
    """What becomes of a job whose unique key a live job of its queue has."""

    REJECT = "reject"
    REPLACE = "replace"
    RETURN = "return"


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued.

    Attributes:
        priority: Higher is claimed first; equal ones in the order in which they became ready.
        delay_us: Counted by the store from the moment it is enqueued.
        due_at_us: Instead of a delay: not before this instant (UTC).
        unique_key: One live job of the queue has it at most.
        ordering_key: Jobs of one queue and key are run one at a time, in order of enqueueing; one
            that waits for its retry holds up those behind it.
        retry: The retry policy, which the one who runs the job applies.
        expires_us: A job not claimed this long after it was enqueued is dead, also one that waits
            for its retry.
        retention_us: How long it is kept after its end.
        instance: When the job ends, in whichever way, the same step of the store puts a letter into
            this instance's mailbox: kind ``step``, name ``step``, id ``job/<job id>``, payload
            ``{"state": "done", "outcome": <result or error>}``. Such a job is kept for some time.
            One that its queue does not take (``existing`` under another id, ``rejected``,
            ``closed``, ``conflict``) is answered at once, as ``cancelled`` with a sentence for an
            outcome.
        step: See ``instance``.
    """

    id: JobId
    queue: str
    payload: str
    priority: int = 0
    delay_us: int = 0
    due_at_us: int | None = None
    unique_key: str | None = None
    on_duplicate: OnDuplicate = OnDuplicate.REJECT
    ordering_key: str | None = None
    max_attempts: int = MAX_ATTEMPTS
    max_losses: int = MAX_LOSSES
    retry: str = "{}"
    expires_us: int | None = None
    retention_us: int = 86_400_000_000
    headers: str = "{}"
    instance: InstanceId | None = None
    step: str = ""


class Entry(StrEnum):
    """What became of a ``NewJob``."""

    CREATED = "created"
    EXISTING = "existing"
    REPLACED = "replaced"
    REJECTED = "rejected"
    CLOSED = "closed"
    CONFLICT = "conflict"


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The outcome for one ``NewJob``: what happened, and the job that stands in the queue now.

    ``existing`` names the job of the queue that has this id, or the live one that has the unique
    key, as ``rejected`` does; ``replaced`` names the new job, whose predecessor was cancelled;
    ``closed`` means that the queue drains, and ``conflict`` that a job of another queue has this
    id: nothing was added. ``payload_differs`` is said of a known id by those who compared.
    """

    id: JobId
    entry: Entry
    payload_differs: bool = False

    def stands(self, job: NewJob) -> bool:
        """Whether the queue has a job of the id of ``job``, be it of this call or an earlier."""
        existing = self.entry is Entry.EXISTING and self.id == job.id
        return existing or self.entry in (Entry.CREATED, Entry.REPLACED)


class Want(msgspec.Struct, frozen=True, gc=False):
    """How many jobs of one queue are wanted at most.

    ``max_losses`` is that of the handler that will run them, and holds for each of them from the
    claim on; ``None`` leaves what a job has.
    """

    queue: str
    limit: int
    max_losses: int | None = None


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One attempt to claim.

    Attributes:
        session: Whose claims they are; it must be alive.
        worker: Its name, for people.
        request: Unique to this call. ``again`` repeats it after a lost reply.
        wants: The queues, served in this order; the caller rotates them to be fair.
        limit: Over all queues.
        job: This job alone, if it can be claimed, whatever stands before it in its queue. Never
            past its ordering key, nor from a queue that is not among ``wants``, if those name any.
        suspects: Whether one of the jobs may be a suspect, lost ``SUSPECT_LOSSES`` times or more.
        wait_us: Above zero: if fewer than ``limit`` were had, the host is rung when something
            becomes ready in one of the queues, for so long.
    """

    session: HostId
    worker: str
    request: str
    wants: tuple[Want, ...] = ()
    limit: int = 1
    job: JobId | None = None
    again: bool = False
    wait_us: int = 0
    suspects: bool = True

    def admits(self, queue: str) -> bool:
        """Whether ``job`` may be had from this queue."""
        return not self.wants or any(want.queue == queue for want in self.wants)


class ClaimedJob(msgspec.Struct, frozen=True, gc=False):
    """A job and the token of its claim. Every later write of the claimant carries both.

    ``attempts`` is how often its handler failed before, ``losses`` how often a claim was lost. The
    order of the fields is that of drivers' columns: naming each costs four times as much, for every
    job of every claim.
    """

    id: JobId
    queue: str
    token: Token
    payload: str
    attempts: int
    losses: int
    max_attempts: int
    retry: str
    priority: int
    headers: str
    enqueued_at_us: int
    unique_key: str | None = None
    ordering_key: str | None = None


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """The answer to a claim.

    ``next_due_s`` is when the next scheduled or retrying job of the wanted queues comes due, if
    there is one and fewer than asked for were had; or sooner, where the store wants to be asked
    again.
    """

    jobs: tuple[ClaimedJob, ...]
    next_due_s: float | None = None


class Completion(msgspec.Struct, frozen=True, gc=False):
    """The job is done."""

    id: JobId
    token: Token
    result: str | None = None


class Failure(msgspec.Struct, frozen=True, gc=False):
    """The handler failed: again in ``retry_us``, or never again if that is ``None``."""

    id: JobId
    token: Token
    error: str
    retry_us: int | None = None


class Return(msgspec.Struct, frozen=True, gc=False):
    """The job was not run, and nothing counts against it: to its old place in the queue.

    With ``unbegun`` nothing of it was begun, and the claim does not count towards the rate of the
    queue either.
    """

    id: JobId
    token: Token
    delay_us: int = 0
    unbegun: bool = False


class Extension(msgspec.Struct, frozen=True, gc=False):
    """The job is still being run; ``progress`` of ``None`` leaves what was told before."""

    id: JobId
    token: Token
    progress: str | None = None


class Settled(StrEnum):
    """What became of a write under a claim.

    ``lost``: the claim was not the newest, or had ended; nothing was changed. ``cancel``, of one
    that was extended: it stands, and somebody wants the job cancelled.
    """

    OK = "ok"
    CANCEL = "cancel"
    LOST = "lost"


class Changed(StrEnum):
    """What became of an operator's wish.

    ``requested``: the job is claimed; its claimant hears of it. ``refused``: the job's state does
    not allow it.
    """

    CHANGED = "changed"
    REQUESTED = "requested"
    REFUSED = "refused"
    NOT_FOUND = "not_found"


class Reclaimed(msgspec.Struct, frozen=True, gc=False):
    """A job whose claimant is gone: ready again, or dead after too many losses, or cancelled."""

    id: JobId
    queue: str
    state: JobState


class Tended(msgspec.Struct, frozen=True, gc=False):
    """How many jobs a look after the store ended as expired, and how many it removed."""

    expired: int
    pruned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs are meant; what is ``None`` or empty does not matter."""

    queue: str | None = None
    states: tuple[JobState, ...] = ()
    unique_key: str | None = None
    ordering_key: str | None = None
    session: HostId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What the store knows of one job.

    ``claimed_by``, ``session`` and ``claimed_at`` are of the newest claim, and stay after its end.
    ``error`` is that of the newest failure. ``blocked`` says that a ready job waits for an earlier
    one of its ordering key. ``cursor`` is where a page that ends with it goes on.
    """

    id: JobId
    queue: str
    state: JobState
    priority: int
    payload: str
    headers: str
    token: Token
    attempts: int
    losses: int
    max_attempts: int
    max_losses: int
    retry: str
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
    result: str | None
    error: str | None
    progress: str | None
    cursor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One claim of a job that ended badly. ``outcome`` is ``failed``, ``lost`` or ``expired``."""

    token: Token
    outcome: str
    worker: str | None
    claimed_at: datetime | None
    ended_at: datetime
    error: str | None


class QueueMode(StrEnum):
    """``paused`` takes jobs and gives none; ``draining`` gives jobs and takes none."""

    OPEN = "open"
    PAUSED = "paused"
    DRAINING = "draining"


class LimitsBy(StrEnum):
    """Whose the limits of a queue are: a handler declares them, or an operator has set them."""

    HANDLER = "handler"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What holds for a queue in the whole fleet.

    At most ``concurrency`` of its jobs are claimed at a time, and at most ``rate`` claims are made
    in any ``rate_period_us``. ``limits_by`` is who put both of them.
    """

    name: str
    mode: QueueMode = QueueMode.OPEN
    concurrency: int | None = None
    rate: int | None = None
    rate_period_us: int = 1_000_000
    limits_by: LimitsBy = LimitsBy.HANDLER

    @property
    def limited(self) -> bool:
        """Whether it has any limit."""
        return self.concurrency is not None or self.rate is not None

    @property
    def limited_by(self) -> LimitsBy | None:
        """Whose its limits are; ``None`` where it has none."""
        return self.limits_by if self.limited else None


class QueuePart(StrEnum):
    """A part of the settings of a queue that is put by itself, whatever becomes of the other."""

    MODE = "mode"
    LIMITS = "limits"


ALL_PARTS: frozenset[QueuePart] = frozenset(QueuePart)


def put_parts(
    before: QueueSettings | None, settings: QueueSettings, parts: Collection[QueuePart]
) -> QueueSettings:
    """What holds for a queue once ``parts`` of ``settings`` were put; see ``JobDesk.put_queue``."""
    held = before or QueueSettings(name=settings.name)
    by_operator = settings.limits_by is LimitsBy.OPERATOR
    kept = held.limited_by is LimitsBy.OPERATOR and not by_operator
    limits = settings if QueuePart.LIMITS in parts and not kept else held
    return QueueSettings(
        name=settings.name,
        mode=settings.mode if QueuePart.MODE in parts else held.mode,
        concurrency=limits.concurrency,
        rate=limits.rate,
        rate_period_us=limits.rate_period_us,
        limits_by=limits.limited_by or LimitsBy.HANDLER,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRecord:
    """A queue: its settings, how many jobs are in each state, how old the oldest ready one is."""

    settings: QueueSettings
    counts: dict[JobState, int]
    oldest_ready_s: float | None
