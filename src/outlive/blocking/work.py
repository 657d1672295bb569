"""Work without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, Unpack, overload

from outlive.blocking.calls import awaited, run_with
from outlive.model.job import ClaimedJob, Enqueued, Entry, NewJob
from outlive.model.options import Duration
from outlive.names import JobId, Token
from outlive.runtime.portal import Portal
from outlive.work import claim as claim_module
from outlive.work import job as job_module
from outlive.work import work as work_module
from outlive.work.drafting import JobOptions
from outlive.work.handler import Handler
from outlive.work.work import Target

In = TypeVar("In")
Out = TypeVar("Out")
R_co = TypeVar("R_co", covariant=True)


class Job(Generic[R_co]):
    """A job that was enqueued; see ``outlive.Job``."""

    def __init__(self, job: job_module.Job[R_co], portal: Portal) -> None:
        self._twin = job
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def id(self) -> JobId:
        """Its id."""
        return self._twin.id

    @property
    def queue(self) -> str | None:
        """Its queue, where that is known."""
        return self._twin.queue

    @property
    def entry(self) -> Entry:
        """What enqueueing did."""
        return self._twin.entry

    @property
    def payload_differs(self) -> bool:
        """Whether the job of this id carries another payload, which stays."""
        return self._twin.payload_differs

    status = awaited(job_module.Job[Any].status)
    cancel = awaited(job_module.Job[Any].cancel)

    def result(self, *, timeout: Duration | None = None) -> R_co:
        """Wait until it has ended, and return what its handler returned."""
        return self._portal.run(self._twin.result(timeout=timeout))


class Claim:
    """A claimed job; see ``outlive.Claim``."""

    def __init__(self, claim: claim_module.Claim, portal: Portal) -> None:
        self._twin = claim
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._twin)

    @property
    def id(self) -> JobId:
        """The job."""
        return self._twin.id

    @property
    def queue(self) -> str:
        """Where it was enqueued."""
        return self._twin.queue

    @property
    def payload(self) -> Any:
        """What the job carries."""
        return self._twin.payload

    @property
    def headers(self) -> dict[str, Any]:
        """What was said beside the payload."""
        return self._twin.headers

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 is the first."""
        return self._twin.attempt

    @property
    def losses(self) -> int:
        """How often a claim of this job was lost before."""
        return self._twin.losses

    @property
    def job(self) -> ClaimedJob:
        """Everything the store said of it."""
        return self._twin.job

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants the job cancelled, as far as ``extend`` was told."""
        return self._twin.cancelled

    @property
    def is_held(self) -> bool:
        """Whether the claimant may act now, by its own clock."""
        return self._twin.is_held

    @property
    def token(self) -> Token:
        """The fencing token; raises ``ClaimLost`` once lost or settled."""
        return self._twin.token

    def check(self) -> None:
        """Raise ``ClaimLost`` unless the claim is held."""
        self._twin.check()

    complete = awaited(claim_module.Claim.complete)
    fail = awaited(claim_module.Claim.fail)
    release = awaited(claim_module.Claim.release)
    extend = awaited(claim_module.Claim.extend)


class Work:
    """The jobs of one namespace; see ``outlive.Work``. Safe to use from many threads."""

    def __init__(self, work: work_module.Work, portal: Portal) -> None:
        self._twin = work
        self._portal = portal

    @overload
    def enqueue(
        self,
        target: Handler[In, Out],
        payload: In,
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> Job[Out]: ...
    @overload
    def enqueue(
        self, target: str, payload: object, *, tx: object = None, **options: Unpack[JobOptions]
    ) -> Job[Any]: ...
    def enqueue(
        self, target: Target, payload: Any, *, tx: object = None, **options: Unpack[JobOptions]
    ) -> Job[Any]:
        """Add a job; ``tx`` is a synchronous connection and is used on the caller's thread."""
        adding = self._twin.enqueue(target, payload, tx=tx, **options)
        return Job(run_with(self._portal, adding, tx), self._portal)

    @overload
    def enqueue_many(
        self,
        target: Handler[In, Out],
        payloads: Iterable[In],
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> list[Job[Out]]: ...
    @overload
    def enqueue_many(
        self,
        target: str,
        payloads: Iterable[object],
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> list[Job[Any]]: ...
    def enqueue_many(
        self,
        target: Target,
        payloads: Iterable[Any],
        *,
        tx: object = None,
        **options: Unpack[JobOptions],
    ) -> list[Job[Any]]:
        """Add up to 10,000 jobs in one step, all of them or none."""
        adding = self._twin.enqueue_many(target, payloads, tx=tx, **options)
        return [Job(job, self._portal) for job in run_with(self._portal, adding, tx)]

    def prepare(self, target: Target, payload: object, **options: Unpack[JobOptions]) -> NewJob:
        """The job that ``enqueue`` would add. No I/O."""
        return self._twin.prepare(target, payload, **options)

    def submit(self, jobs: Sequence[NewJob], *, tx: object = None) -> Sequence[Enqueued]:
        """Add prepared jobs in one step, and say what became of each."""
        return run_with(self._portal, self._twin.submit(jobs, tx=tx), tx)

    def claim(
        self,
        queues: Target | Iterable[Target] = (),
        *,
        limit: int = 1,
        wait: Duration = 0,
        job: str | None = None,
    ) -> list[Claim]:
        """Claim up to ``limit`` jobs that are ready, or none if there are none within ``wait``."""
        claims = self._portal.run(self._twin.claim(queues, limit=limit, wait=wait, job=job))
        return [Claim(claim, self._portal) for claim in claims]

    @overload
    def job(self, id: str, handler: Handler[Any, Out]) -> Job[Out]: ...
    @overload
    def job(self, id: str, handler: None = None) -> Job[Any]: ...
    def job(self, id: str, handler: Handler[Any, Any] | None = None) -> Job[Any]:  # noqa: A002
        """The handle of a job by its id. No I/O."""
        return Job(self._twin.job(id, handler), self._portal)

    get = awaited(work_module.Work.get)
    attempts = awaited(work_module.Work.attempts)
    list = awaited(work_module.Work.list)
    count = awaited(work_module.Work.count)
    queues = awaited(work_module.Work.queues)
    cancel = awaited(work_module.Work.cancel)
    retry = awaited(work_module.Work.retry)
    purge = awaited(work_module.Work.purge)
    pause = awaited(work_module.Work.pause)
    resume = awaited(work_module.Work.resume)
    drain = awaited(work_module.Work.drain)
    limit = awaited(work_module.Work.limit)
    close = awaited(work_module.Work.close)
