"""What the memory store keeps of jobs: rows, and lines that find the next one without a search.

Owns the data; decides nothing. Instants of jobs are UTC in microseconds. Notes of waiting hosts and
the windows of rate limits are measured by the process clock, which no jump of the wall clock moves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

from outlive.drivers.memory.lines import Line, Roll
from outlive.model.job import Attempt, JobState, NewJob, QueueMode, QueueSettings
from outlive.names import HostId, JobId


class Outcome(StrEnum):
    """How a claim ended. A repeated call under its token is told from a late one by it."""

    DONE = "done"
    FAILED = "failed"
    RELEASED = "released"
    LOST = "lost"


@dataclass(slots=True)
class ClaimRow:
    """One claim of a job: the newest, whether it lives or has ended.

    ``host`` is who asked for it, and hears of a cancellation; ``session`` is whose end ends it.
    ``paced_us`` is the entry in the pace of its queue, by the process clock, where that has a rate.
    """

    session: HostId
    host: HostId
    worker: str
    request: str
    at_us: int
    outcome: Outcome | None = None
    paced_us: int | None = None


@dataclass(slots=True)
class JobRow:
    """One job.

    ``number`` is its place in the order of enqueueing, ``seq`` in that of becoming ready.
    ``cancel`` is why a claimed job is to be cancelled. ``troubles`` are its attempts, newest first.
    """

    job: NewJob
    number: int
    enqueued_us: int
    due_us: int
    expires_us: int | None
    state: JobState = JobState.SCHEDULED
    seq: int = 0
    blocked: bool = False
    token: int = 0
    attempts: int = 0
    losses: int = 0
    cancel: str | None = None
    claim: ClaimRow | None = None
    ended_us: int | None = None
    result: str | None = None
    error: str | None = None
    progress: str | None = None
    troubles: tuple[Attempt, ...] = ()


@dataclass(slots=True)
class OrderRow:
    """The live jobs of one ordering key: the one whose turn it is, and those behind it."""

    head: JobId
    behind: Line[JobId] = field(default_factory=Line[JobId])


@dataclass(slots=True)
class QueueRow:
    """One queue: what can be claimed, what comes due, who waits.

    ``ready`` and ``due`` hold no blocked jobs; ready suspects stand in a line of their own.
    ``notes`` are hosts in order of their notes, with
    the instant at which each note ends; ``claimed_us`` are the claims a rate limit still counts.
    """

    name: str
    settings: QueueSettings | None = None
    ready: Line[JobId] = field(default_factory=Line[JobId])
    suspects: Line[JobId] = field(default_factory=Line[JobId])
    due: Line[JobId] = field(default_factory=Line[JobId])
    counts: dict[JobState, int] = field(default_factory=dict[JobState, int])
    notes: dict[HostId, int] = field(default_factory=dict[HostId, int])
    claimed_us: deque[int] = field(default_factory=deque[int])

    @property
    def mode(self) -> QueueMode:
        """Whether it takes and gives jobs."""
        return QueueMode.OPEN if self.settings is None else self.settings.mode

    @property
    def claimable(self) -> int:
        """How many of its jobs can be claimed."""
        return len(self.ready) + len(self.suspects)

    def leave(self, job: JobId) -> None:
        """Take a job out of every line. Repeatable."""
        for line in (self.ready, self.suspects, self.due):
            line.remove(job)

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is known of it that would have to be kept."""
        return self.settings is None and not self.notes and not any(self.counts.values())


class JobTable:
    """The jobs of one namespace. Whoever reads or writes holds the lock of its store.

    Tokens are drawn from one number for all jobs, so that they grow for a job whose id is used
    again after it was removed.
    """

    __slots__ = (
        "claims",
        "expiring",
        "kept",
        "orders",
        "queues",
        "roll",
        "rows",
        "seqs",
        "tokens",
        "unique",
    )

    def __init__(self) -> None:
        self.rows: dict[JobId, JobRow] = {}
        self.roll = Roll[JobRow]()
        self.queues: dict[str, QueueRow] = {}
        self.unique: dict[tuple[str, str], JobId] = {}
        self.orders: dict[tuple[str, str], OrderRow] = {}
        self.claims: dict[HostId, dict[JobId, None]] = {}
        # Unclaimed jobs by their expiry, and ended ones by the end of their retention.
        self.expiring = Line[JobId]()
        self.kept = Line[JobId]()
        self.seqs = 0
        self.tokens = 0

    def queue(self, name: str) -> QueueRow:
        """The queue of a name, made on first use."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueRow(name)
        return queue

    def insert(self, row: JobRow) -> None:
        """Keep a new row."""
        self.rows[row.job.id] = row
        self.roll.append(row)

    def remove(self, row: JobRow) -> None:
        """Forget a row that is in no line any more."""
        del self.rows[row.job.id]
        self.roll.strike(row)
        queue = self.queue(row.job.queue)
        queue.counts[row.state] -= 1
        if queue.is_forgotten:
            del self.queues[queue.name]
