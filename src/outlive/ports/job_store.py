"""The port of work: jobs that many workers claim, each by one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outlive.model.job import (
    Claimed,
    ClaimRequest,
    Completion,
    Enqueued,
    Extension,
    Failure,
    NewJob,
    Reclaimed,
    Return,
    Settled,
    Tended,
)
from outlive.ports.job_desk import JobDesk


class JobClaims(Protocol):
    """The life of jobs, from those who enqueue them to those who run them.

    Each method is one atomic step, judged by the store's own clock; the batch methods answer each
    member in order, and one member's outcome changes nothing for the others. Any method may raise
    ``StoreUnavailable`` (nothing was applied) or ``OutcomeUnknown`` (the reply was lost; all of it
    or nothing was applied). All of them may be repeated after that, and then give the same
    answer; ``enqueue`` says then that the jobs exist.

    A claim lives as long as the session that made it has not ended. Its token is greater than every
    token given for the job before. Hosts that wait (``ClaimRequest.wait_us``) are rung with the
    topic ``work/<queue>`` when a job becomes ready there, by whichever method made it ready. A host
    whose claimed job is to be cancelled is rung with ``cancel/<job id>``. The host is the one whose
    driver made the claim, whichever session it was for.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Enqueued]:
        """Add jobs, all of them or none, in their order; at most ``ENQUEUE_MAX``.

        A job whose id is there already in its queue (whatever became of it, whatever else it
        carries) is ``existing`` and changes nothing; so are those of a call that is repeated after
        its reply was lost. One whose id is that of another queue's job is a
        ``conflict``, and changes nothing either.
        A live job of its unique key is answered as its ``on_duplicate`` says; one that is claimed
        cannot be replaced, and rejects.
        """
        ...

    async def enqueue_in(self, jobs: Sequence[NewJob], tx: object) -> Sequence[Enqueued]:
        """The same inside the caller's open transaction: they exist if and when it commits.

        Waiting hosts hear of it at commit where the backend can tell them, and soon elsewhere.

        Raises:
            UsageError: ``tx`` is no supported transaction, is not open, or belongs to another
                database.
            UnsupportedByDriver: The backend has no transactions to join.
        """
        ...

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim up to ``request.limit`` jobs that are ready or due, for a living session.

        Highest priority first, then in the order in which they became ready. Nothing is taken from
        a paused queue, above the limits of a queue, past its expiry, or out of the order of an
        ordering key. At most one is a suspect, of its queue the one lost least often, and none
        without ``suspects``. With ``again``, jobs claimed before under the same request and still
        claimed are returned, with the same tokens, and no others are taken; if there are none it is
        a claim like any other.

        Raises:
            LeaseExpired: The session's time had run out.
            Fenced: The session has ended, or never was.
        """
        ...

    async def complete(self, completions: Sequence[Completion]) -> Sequence[Settled]:
        """End claimed jobs as done. Done already under the same token is ``ok``.

        A job that is kept for no time is forgotten with its end: then a repeat is ``lost``.
        The result is kept until the job's retention ends. The next job of its ordering key becomes
        claimable.
        """
        ...

    async def fail(self, failures: Sequence[Failure]) -> Sequence[Settled]:
        """End claims whose handler failed: the failure is kept and counted in ``attempts``.

        The job becomes ``retrying``, or ``dead`` if ``retry_us`` is ``None``; ``cancelled`` if that
        was asked for meanwhile. Failed already under the same token is ``ok``.
        """
        ...

    async def release(self, returns: Sequence[Return]) -> Sequence[Settled]:
        """Give claims back unrun: the job is ready at its old place, or ``delay_us`` later.

        Nothing is counted, and where it was ``unbegun`` the rate of its queue has its claim back.
        ``cancelled`` if that was asked for meanwhile. Released already under
        the same token is ``ok`` as long as nobody claimed it since.
        """
        ...

    async def extend(self, extensions: Sequence[Extension]) -> Sequence[Settled]:
        """Learn which claims still stand, and keep the progress of those that do."""
        ...

    async def reclaim(self, *, limit: int) -> Sequence[Reclaimed]:
        """Take up to ``limit`` claims from sessions that have ended, or of which nothing is known.

        A session whose time ran out but that nobody reaped keeps its claims. Each loss is kept and
        counted; after more than ``max_losses`` the job is dead, and its error names the losses, the
        limit and the last worker.
        """
        ...

    async def tend(self, *, limit: int) -> Tended:
        """End up to ``limit`` jobs whose expiry passed, and remove as many whose retention did."""
        ...


class JobStore(JobClaims, JobDesk, Protocol):
    """Jobs of one namespace in one store: their life, and what operators see and do."""
