"""What happened to jobs, in true time: what the store carried out, and who worked on what.

Owns the record only; ``job_checker`` judges it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outlive.model.job import JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class JobServed:
    """One member of one request as the store carried it out, in the store's own order.

    ``op`` is the method of the port, or ``session.end``. ``outcome`` is the port's word for what
    became of it. ``delay_s`` is how long the job has to wait from then on; ``None`` means that it
    does not return by itself.
    """

    at: float
    op: str
    job: str
    outcome: str = ""
    token: int = 0
    session: str = ""
    queue: str = ""
    delay_s: float | None = 0.0
    unique_key: str | None = None
    ordering_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """An instant at which a claimant, trusting its own clock, worked on a job."""

    at: float
    proc: str
    job: str
    token: int


@dataclass(slots=True)
class JobHistory:
    """Everything one run recorded of its jobs.

    ``acknowledged`` are the jobs whose enqueueing was answered with success. ``left`` is what the
    store said at the end, when all had had time enough.
    """

    seed: int
    clock: Callable[[], float]
    served: list[JobServed] = field(default_factory=list[JobServed])
    worked: list[Worked] = field(default_factory=list[Worked])
    acknowledged: set[str] = field(default_factory=set[str])
    left: dict[str, JobState] | None = None

    def work(self, proc: str, job: str, token: int) -> None:
        """Note that ``proc`` works on a job now, under a claim it believes in."""
        self.worked.append(Worked(at=self.clock(), proc=proc, job=job, token=token))
