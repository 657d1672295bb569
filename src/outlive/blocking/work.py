"""Work without ``await``; see ``outlive.blocking``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, Unpack, overload

from outlive.blocking.transactions import run_with
from outlive.model.job import Attempt, ClaimedJob, Enqueued, Entry, NewJob
from outlive.model.options import Duration
from outlive.names import HostId, JobId, Token
from outlive.runtime.portal import Portal
from outlive.serialization import Failed
from outlive.work import claim as claim_module
from outlive.work import job as job_module
from outlive.work import work as work_module
from outlive.work.drafting import JobOptions
from outlive.work.handler import Handler
from outlive.work.job import JobInfo
from outlive.work.operations import States
from outlive.work.work import QueueInfo, Target

In = TypeVar("In")
Out = TypeVar("Out")
R_co = TypeVar("R_co", covariant=True)


class Job(Generic[R_co]):
    """A job that was enqueued; see ``outlive.Job``."""

    def __init__(self, job: job_module.Job[R_co], portal: Portal) -> None:
        self._job = job
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._job)

    @property
    def id(self) -> JobId:
        """Its id."""
        return self._job.id

    @property
    def queue(self) -> str | None:
        """Its queue, where that is known."""
        return self._job.queue

    @property
    def entry(self) -> Entry:
        """What enqueueing did."""
        return self._job.entry

    def status(self) -> JobInfo:
        """What the store knows of it now."""
        return self._portal.run(self._job.status())

    def cancel(self, *, reason: str = "cancelled") -> bool:
        """End it as cancelled; false if it had ended otherwise before."""
        return self._portal.run(self._job.cancel(reason=reason))

    def result(self, *, timeout: Duration | None = None) -> R_co:
        """Wait until it has ended, and return what its handler returned."""
        return self._portal.run(self._job.result(timeout=timeout))


class Claim:
    """A claimed job; see ``outlive.Claim``."""

    def __init__(self, claim: claim_module.Claim, portal: Portal) -> None:
        self._claim = claim
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._claim)

    @property
    def id(self) -> JobId:
        """The job."""
        return self._claim.id

    @property
    def queue(self) -> str:
        """Where it was enqueued."""
        return self._claim.queue

    @property
    def payload(self) -> Any:
        """What the job carries."""
        return self._claim.payload

    @property
    def headers(self) -> dict[str, Any]:
        """What was said beside the payload."""
        return self._claim.headers

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 is the first."""
        return self._claim.attempt

    @property
    def losses(self) -> int:
        """How often a claim of this job was lost before."""
        return self._claim.losses

    @property
    def job(self) -> ClaimedJob:
        """Everything the store said of it."""
        return self._claim.job

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants the job cancelled, as far as ``extend`` was told."""
        return self._claim.cancelled

    @property
    def is_held(self) -> bool:
        """Whether the claimant may act now, by its own clock."""
        return self._claim.is_held

    @property
    def token(self) -> Token:
        """The fencing token; raises ``ClaimLost`` once lost or settled."""
        return self._claim.token

    def check(self) -> None:
        """Raise ``ClaimLost`` unless the claim is held."""
        self._claim.check()

    def complete(self, result: object = None) -> None:
        """The job is done."""
        self._portal.run(self._claim.complete(result))

    def fail(self, error: Failed, *, retry_in: Duration | None = None, final: bool = False) -> None:
        """The job failed with ``error``."""
        self._portal.run(self._claim.fail(error, retry_in=retry_in, final=final))

    def release(self, *, delay: Duration = 0) -> None:
        """Give the job back unrun."""
        self._portal.run(self._claim.release(delay=delay))

    def extend(self, *, progress: object = None) -> None:
        """Learn whether the claim stands, and keep ``progress``."""
        self._portal.run(self._claim.extend(progress=progress))


class Work:
    """The jobs of one namespace; see ``outlive.Work``. Safe to use from many threads."""

    def __init__(self, work: work_module.Work, portal: Portal) -> None:
        self._work = work
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
        adding = self._work.enqueue(target, payload, tx=tx, **options)
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
        adding = self._work.enqueue_many(target, payloads, tx=tx, **options)
        return [Job(job, self._portal) for job in run_with(self._portal, adding, tx)]

    def prepare(self, target: Target, payload: object, **options: Unpack[JobOptions]) -> NewJob:
        """The job that ``enqueue`` would add. No I/O."""
        return self._work.prepare(target, payload, **options)

    def submit(self, jobs: Sequence[NewJob], *, tx: object = None) -> Sequence[Enqueued]:
        """Add prepared jobs in one step, and say what became of each."""
        return run_with(self._portal, self._work.submit(jobs, tx=tx), tx)

    def claim(
        self,
        queues: Target | Iterable[Target] = (),
        *,
        limit: int = 1,
        wait: Duration = 0,
        job: str | None = None,
    ) -> list[Claim]:
        """Claim up to ``limit`` jobs that are ready, or none if there are none within ``wait``."""
        claims = self._portal.run(self._work.claim(queues, limit=limit, wait=wait, job=job))
        return [Claim(claim, self._portal) for claim in claims]

    @overload
    def job(self, id: str, handler: Handler[Any, Out]) -> Job[Out]: ...
    @overload
    def job(self, id: str, handler: None = None) -> Job[Any]: ...
    def job(self, id: str, handler: Handler[Any, Any] | None = None) -> Job[Any]:  # noqa: A002
        """The handle of a job by its id. No I/O."""
        return Job(self._work.job(id, handler), self._portal)

    def get(self, id: str) -> JobInfo:  # noqa: A002 - it is one
        """What the store knows of one job."""
        return self._portal.run(self._work.get(id))

    def attempts(self, id: str) -> list[Attempt]:  # noqa: A002 - it is one
        """What went wrong with a job, newest first."""
        return self._portal.run(self._work.attempts(id))

    def list(
        self,
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
        session: HostId | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> list[JobInfo]:
        """A page of jobs in order of enqueueing."""
        return self._portal.run(
            self._work.list(
                queue=queue,
                state=state,
                unique_key=unique_key,
                ordering_key=ordering_key,
                session=session,
                limit=limit,
                after=after,
            )
        )

    def count(
        self,
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
        session: HostId | None = None,
    ) -> int:
        """How many jobs match."""
        return self._portal.run(
            self._work.count(
                queue=queue,
                state=state,
                unique_key=unique_key,
                ordering_key=ordering_key,
                session=session,
            )
        )

    def queues(self) -> list[QueueInfo]:
        """Every queue that has settings or jobs, by name."""
        return self._portal.run(self._work.queues())

    def cancel(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
        reason: str = "cancelled",
    ) -> int:
        """Cancel one job, or all that match, and say how many."""
        return self._portal.run(
            self._work.cancel(
                id,
                queue=queue,
                state=state,
                unique_key=unique_key,
                ordering_key=ordering_key,
                reason=reason,
            )
        )

    def retry(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
    ) -> int:
        """Make one job ready now, or all that match, and say how many."""
        return self._portal.run(
            self._work.retry(
                id, queue=queue, state=state, unique_key=unique_key, ordering_key=ordering_key
            )
        )

    def purge(
        self,
        id: str | None = None,  # noqa: A002 - it is one
        *,
        queue: str | None = None,
        state: States = None,
        unique_key: str | None = None,
        ordering_key: str | None = None,
    ) -> int:
        """Forget one ended job, or all that match, and say how many."""
        return self._portal.run(
            self._work.purge(
                id, queue=queue, state=state, unique_key=unique_key, ordering_key=ordering_key
            )
        )

    def pause(self, queue: str) -> None:
        """Give out no more jobs of a queue, in the whole fleet."""
        self._portal.run(self._work.pause(queue))

    def resume(self, queue: str) -> None:
        """Open a queue that was paused or drained."""
        self._portal.run(self._work.resume(queue))

    def drain(self, queue: str) -> None:
        """Take no more jobs into a queue; those in it are run."""
        self._portal.run(self._work.drain(queue))

    def limit(
        self,
        queue: str,
        *,
        concurrency: int | None = None,
        rate: int | None = None,
        per: Duration = 1.0,
    ) -> None:
        """Limit a queue in the whole fleet, whatever handlers declare; with neither, lift it."""
        self._portal.run(self._work.limit(queue, concurrency=concurrency, rate=rate, per=per))

    def close(self) -> None:
        """Give back what is claimed and not settled; claim no more."""
        self._portal.run(self._work.close())
