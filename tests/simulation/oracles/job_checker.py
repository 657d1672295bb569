"""Pure checks of Q1 to Q7 over a recorded history of jobs.

Owns the judgement: a few lines of the specification, restated as a model that replays what the
store carried out. It asks no clock, no store and no code under test.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from outlive.model.job import FINAL, Changed, Entry, JobState, Settled
from tests.simulation.oracles.job_history import JobHistory, JobServed, Worked
from tests.simulation.oracles.lease_reference import EPSILON_S, Violation


@dataclass(slots=True)
class _Job:
    """One job in the model. ``claim`` is the token of its live claim, ``ended_by`` its end.

    ``number`` is its place among those of its ordering key; one that began again has none.
    """

    name: str
    number: int | None
    due: float
    unique: tuple[str, str] | None
    ordering: tuple[str, str] | None
    newest: int = 0
    claim: int | None = None
    session: str = ""
    cancel: bool = False
    ended_by: str | None = None
    settled: tuple[str, int] | None = None


@dataclass(slots=True)
class _Model:
    jobs: dict[str, _Job] = field(default_factory=dict[str, _Job])
    ended_sessions: set[str] = field(default_factory=set[str])

    def live(self, unique: tuple[str, str] | None) -> _Job | None:
        if unique is None:
            return None
        return next(
            (one for one in self.jobs.values() if one.unique == unique and one.ended_by is None),
            None,
        )

    def rivals(self, job: _Job) -> Iterator[_Job]:
        """Live jobs of the same ordering key."""
        if job.ordering is not None:
            for other in self.jobs.values():
                if other.ordering == job.ordering and other.ended_by is None and other is not job:
                    yield other


Finding = tuple[str, str]


def check_jobs(history: JobHistory, *, drifted: bool = False) -> list[Violation]:
    """Everything that a history breaks.

    ``drifted`` says that clocks differed by more than is promised: then claimants may believe in a
    claim for too long, and only the store's word counts.
    """
    model = _Model()
    found: list[Violation] = []
    for served in history.served:
        for rule, text in _JUDGES[served.op](model, served):
            found.append(_violation(history, rule, text, served))
    if not drifted:
        found += _check_worked(history)
    return found + _check_left(history, model)


def _violation(history: JobHistory, rule: str, text: str, *proof: object) -> Violation:
    return Violation(rule=rule, seed=history.seed, text=text, proof=tuple(map(str, proof)))


def _check_worked(history: JobHistory) -> list[Violation]:
    """Q1 as claimants see it: nobody works under a claim after a newer one was worked under."""
    newest: dict[str, Worked] = {}
    found: list[Violation] = []
    for worked in history.worked:
        other = newest.setdefault(worked.job, worked)
        if worked.token < other.token:
            text = f"{worked.job} was worked on under a claim that was not the newest"
            found.append(_violation(history, "Q1", text, other, worked))
        else:
            newest[worked.job] = worked
    return found


def _check_left(history: JobHistory, model: _Model) -> list[Violation]:
    if history.left is None:
        return []
    found: list[Violation] = []
    for name in sorted(history.acknowledged):
        state = history.left.get(name)
        if state is None:
            found.append(_violation(history, "Q3", f"{name} was acknowledged and has vanished"))
        elif state not in FINAL:
            text = f"{name} is {state} long after the last fault"
            found.append(_violation(history, "Q7", text))
    for name, job in model.jobs.items():
        state = history.left.get(name)
        if job.ended_by == "complete" and state is not JobState.DONE:
            found.append(_violation(history, "Q5", f"{name} was completed, and is {state}"))
    return found


def _enqueue(model: _Model, served: JobServed) -> Iterator[Finding]:
    unique = None if served.unique_key is None else (served.queue, served.unique_key)
    if served.outcome in (Entry.REJECTED, Entry.EXISTING):
        holder = model.jobs.get(served.job)
        if holder is None or holder.ended_by is not None or holder.unique != unique:
            yield "Q6", f"{served.job} does not have the unique key that it is said to have"
        return
    if served.outcome in (Entry.CLOSED, Entry.CONFLICT) or served.job in model.jobs:
        return
    holder = model.live(unique)
    if holder is not None:
        if served.outcome != Entry.REPLACED or holder.claim is not None:
            yield "Q6", f"{served.job} has the unique key of {holder.name}, which lives"
        holder.ended_by = "replaced"
    ordering = None if served.ordering_key is None else (served.queue, served.ordering_key)
    due = served.at + (served.delay_s or 0.0)
    model.jobs[served.job] = _Job(served.job, len(model.jobs), due, unique, ordering)


def _known(model: _Model, served: JobServed) -> Iterator[Finding]:
    if served.job not in model.jobs:
        yield "Q6", f"{served.job} is said to exist, and was never enqueued"


def _claim(model: _Model, served: JobServed) -> Iterator[Finding]:
    job = model.jobs.get(served.job)
    if job is None:
        yield "Q4", f"{served.job} was claimed and never enqueued"
        return
    if job.claim == served.token and job.session == served.session:
        return
    if served.session in model.ended_sessions:
        yield "Q1", f"{served.job} was claimed by a session that has ended"
    if job.ended_by is not None:
        yield "Q5", f"{served.job} was claimed after its end ({job.ended_by})"
    if job.claim is not None:
        yield "Q1", f"{served.job} was claimed while its claim {job.claim} lived"
    if served.token <= job.newest:
        yield "Q2", f"a token of {served.job} did not grow: {job.newest}, then {served.token}"
    if served.at < job.due - EPSILON_S:
        yield "Q4", f"{served.job} was claimed {job.due - served.at:g} s before its time"
    for other in model.rivals(job):
        if other.claim is not None or _stands_before(other, job):
            yield "Q1", f"{served.job} was claimed before {other.name} of its ordering key"
    job.newest = served.token
    job.claim, job.session = served.token, served.session


def _stands_before(one: _Job, other: _Job) -> bool:
    return one.number is not None and other.number is not None and one.number < other.number


def _settle(model: _Model, served: JobServed) -> Iterator[Finding]:
    job = model.jobs.get(served.job)
    stands = job is not None and job.claim == served.token
    repeated = (
        job is not None and job.settled == (served.op, served.token) and job.newest == served.token
    )
    if served.outcome == Settled.LOST:
        if stands or repeated:
            yield "Q5", f"the newest claim of {served.job} was refused its {served.op}"
        return
    if job is None:
        yield "Q4", f"{served.job} was settled and never enqueued"
        return
    if not stands:
        if not repeated:
            yield "Q5", f"{served.job} was settled under claim {served.token}, not its newest"
        return
    if served.op == "extend":
        return
    job.claim, job.settled = None, (served.op, served.token)
    if served.op == "complete" or served.delay_s is None or job.cancel:
        job.ended_by = served.op
    else:
        job.due = served.at + served.delay_s


def _reclaim(model: _Model, served: JobServed) -> Iterator[Finding]:
    job = model.jobs.get(served.job)
    if job is None or job.claim is None:
        yield "Q1", f"{served.job} was taken back, and nobody had claimed it"
        return
    if job.session not in model.ended_sessions:
        yield "Q1", f"{served.job} was taken from {job.session}, which had not ended"
    job.claim, job.settled = None, ("reclaim", job.newest)
    if served.outcome in FINAL:
        job.ended_by = served.outcome


def _cancel(model: _Model, served: JobServed) -> Iterator[Finding]:
    job = model.jobs.get(served.job)
    if served.outcome == Changed.REQUESTED and job is not None:
        job.cancel = True
    elif served.outcome == Changed.CHANGED and job is not None:
        if job.claim is not None:
            yield "Q1", f"{served.job} was ended while its claim {job.claim} lived"
        job.ended_by = job.ended_by or "cancel"


def _retry(model: _Model, served: JobServed) -> Iterator[Finding]:
    job = model.jobs.get(served.job)
    if served.outcome != Changed.CHANGED or job is None:
        return
    if job.ended_by == "complete":
        yield "Q5", f"{served.job} was completed, and lives again"
    if job.ended_by is not None:
        # It begins again; where it stands among those of its key is not promised.
        job.number, job.cancel = None, False
    job.ended_by, job.due = None, served.at


def _end_session(model: _Model, served: JobServed) -> Iterator[Finding]:
    model.ended_sessions.add(served.session)
    yield from ()


_JUDGES = defaultdict(
    lambda: _settle,
    {
        "enqueue": _enqueue,
        "known": _known,
        "claim": _claim,
        "reclaim": _reclaim,
        "cancel": _cancel,
        "retry": _retry,
        "session.end": _end_session,
    },
)
