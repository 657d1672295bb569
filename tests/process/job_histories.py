"""What workers and the clerk said of jobs, and the rules Q1-Q6 over it.

Pure: records in, violations out. Times are of the machine's boot-time clock, the same for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A claim that somebody was given.

    ``believed_at`` is the last instant at which its owner certainly held it for its own.
    ``outcome`` is that of its completion: ``completed``, ``lost``, ``unknown``, ``finished`` where
    a handler returned and its host saw to the rest, or ``None`` if nobody heard of one.
    ``settled_at`` is when that was asked for.
    """

    worker: str
    job: str
    token: int
    asked_at: float
    at: float
    believed_at: float
    outcome: str | None = None
    settled_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enqueue:
    """A job that was created; ``due_s`` is its delay."""

    job: str
    asked_at: float
    at: float
    due_s: float = 0.0
    unique_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the store says of a job in the end."""

    job: str
    state: str
    token: int
    losses: int


@dataclass(slots=True, kw_only=True)
class JobHistory:
    """Everything that was recorded."""

    enqueued: list[Enqueue] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def by_job(self) -> dict[str, list[Claim]]:
        """The claims of each job, in order of their tokens."""
        found: dict[str, list[Claim]] = defaultdict(list)
        for claim in sorted(self.claims, key=lambda claim: claim.token):
            found[claim.job].append(claim)
        return found


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule, and how it was broken."""

    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


def check(history: JobHistory) -> list[Violation]:
    """Everything that must not be, by rule."""
    rules = (check_q1, check_q2, check_q3, check_q4, check_q5, check_q6)
    return [violation for rule in rules for violation in rule(history)]


def check_q1(history: JobHistory) -> Iterator[Violation]:
    """Nobody believes in a claim when another one of the same job has been given."""
    for job, claims in history.by_job().items():
        for claim in claims:
            for later in claims:
                if later.token > claim.token and claim.believed_at > later.at:
                    yield Violation(
                        "Q1",
                        f"{claim.worker} believed in token {claim.token} of {job} at "
                        f"{claim.believed_at:.3f}, {later.worker} had {later.token} since "
                        f"{later.at:.3f}",
                    )


def check_q2(history: JobHistory) -> Iterator[Violation]:
    """A token is given once, and a claim that began after another has a greater one."""
    for job, claims in history.by_job().items():
        tokens = [claim.token for claim in claims]
        if len(set(tokens)) < len(tokens):
            yield Violation("Q2", f"{job} was given twice under one token: {tokens}")
        for claim in claims:
            for other in claims:
                if other.token > claim.token and other.at <= claim.asked_at:
                    yield Violation("Q2", f"{job}: {claim.token} was given after {other.token}")


def check_q3(history: JobHistory) -> Iterator[Violation]:
    """Every acknowledged job is done in the end, and no other is there."""
    rows = {row.job: row for row in history.rows}
    for entry in history.enqueued:
        row = rows.get(entry.job)
        if row is None:
            yield Violation("Q3", f"{entry.job} vanished")
        elif row.state != "done":
            yield Violation("Q3", f"{entry.job} is {row.state} in the end")
    for job in rows.keys() - {entry.job for entry in history.enqueued}:
        yield Violation("Q3", f"{job} was never enqueued")


def check_q4(history: JobHistory) -> Iterator[Violation]:
    """Nothing is claimed that was not enqueued, nor before it was due."""
    known = {entry.job: entry for entry in history.enqueued}
    for claim in history.claims:
        entry = known.get(claim.job)
        if entry is None:
            yield Violation("Q4", f"{claim.job} was claimed and never enqueued")
        elif claim.at < entry.asked_at + entry.due_s:
            yield Violation("Q4", f"{claim.job} was claimed at {claim.at:.3f}, before its time")


def check_q5(history: JobHistory) -> Iterator[Violation]:
    """A job is completed once, under its newest claim, and never comes back."""
    rows = {row.job: row for row in history.rows}
    for job, claims in history.by_job().items():
        completed = [claim.token for claim in claims if claim.outcome == "completed"]
        if len(completed) > 1:
            yield Violation("Q5", f"{job} was completed {len(completed)} times: {completed}")
        for token in completed:
            if claims[-1].token != token:
                yield Violation(
                    "Q5", f"{job} was completed under {token}, and claimed as {claims[-1].token}"
                )
            if job in rows and rows[job].token != token:
                yield Violation(
                    "Q5", f"{job} was completed under {token}; the store says {rows[job].token}"
                )


def check_q6(history: JobHistory) -> Iterator[Violation]:
    """A job with a unique key is created only when the one before it has been completed."""
    ended = {
        claim.job: claim.settled_at
        for claim in history.claims
        if claim.outcome == "completed" and claim.settled_at is not None
    }
    by_key: dict[str, list[Enqueue]] = defaultdict(list)
    for entry in sorted(history.enqueued, key=lambda entry: entry.at):
        if entry.unique_key is not None:
            by_key[entry.unique_key].append(entry)
    for key, entries in by_key.items():
        for before, after in pairwise(entries):
            # One that a dead worker completed without hearing of it has no end here.
            if ended.get(before.job, before.at) > after.at:
                yield Violation("Q6", f"{after.job} was created while {before.job} had {key!r}")
