"""``Claim``: a job that this process has claimed, until it is settled or lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from outlive.errors import ClaimLost
from outlive.model.job import (
    ClaimedJob,
    Completion,
    Extension,
    Failure,
    Return,
    Settled,
)
from outlive.model.options import TTL_MAX_S, Duration, seconds
from outlive.model.retry import pause_s
from outlive.names import JobId, Token
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession
from outlive.serialization import (
    Codec,
    Failed,
    decode_metadata,
    decode_plain,
    describe,
    encode,
    kind_of,
)
from outlive.work.repeating import while_held


class Claims(Protocol):
    """What a claim needs of the host that has it."""

    runtime: Runtime
    store: JobStore

    def settled(self, claim: Claim, outcome: str) -> None:
        """The claim has ended here, and how."""
        ...

    def comes_due(self, queue: str, seconds: float, /) -> None:
        """A job that was claimed here can be claimed again so soon."""
        ...


class Claim:
    """A claimed job. Settle it: ``complete``, ``fail`` or ``release``.

    It lives as long as this host's session. Once that is lost, or the job was taken away, every
    method and ``token`` raise ``ClaimLost``: stop side effects at once. Each of the methods is
    repeated while the store does not answer, and may be repeated by the caller.
    """

    __slots__ = ("_claims", "_codec", "_ended", "_job", "_session", "cancelled")

    def __init__(
        self,
        job: ClaimedJob,
        session: LiveSession,
        claims: Claims,
        codec: Codec | None = None,
    ) -> None:
        self._job = job
        self._session = session
        self._claims = claims
        self._codec = codec
        self._ended: str | None = None
        self.cancelled = False
        """Whether somebody wants the job cancelled, as far as ``extend`` was told."""

    def __repr__(self) -> str:
        job = self._job
        return f"<Claim of job {job.id} in {job.queue!r}, token {job.token}>"

    @property
    def id(self) -> JobId:
        """The job: the same at every attempt, and so the key of an idempotent effect."""
        return self._job.id

    @property
    def queue(self) -> str:
        """Where it was enqueued."""
        return self._job.queue

    @property
    def payload(self) -> Any:
        """What the job carries: as its handler's type if one was named, else as plain JSON."""
        codec = self._codec
        return decode_plain(self._job.payload) if codec is None else codec.decode(self._job.payload)

    @property
    def headers(self) -> dict[str, Any]:
        """What was said beside the payload."""
        return decode_metadata(self._job.headers)

    @property
    def attempt(self) -> int:
        """Which attempt this is, counting handlers that failed: 1 is the first."""
        return self._job.attempts + 1

    @property
    def losses(self) -> int:
        """How often a claim of this job was lost before."""
        return self._job.losses

    @property
    def job(self) -> ClaimedJob:
        """Everything the store said of it."""
        return self._job

    @property
    def is_held(self) -> bool:
        """Whether the claimant may act now, by its own clock."""
        return self._ended is None and self._session.held

    @property
    def token(self) -> Token:
        """The fencing token of this claim.

        Raises:
            ClaimLost: The claim is not ours any more.
        """
        self.check()
        return self._job.token

    def check(self) -> None:
        """Raise ``ClaimLost`` unless the claim is held."""
        if self._ended is not None:
            raise ClaimLost(self.id, self._ended)
        if not self._session.held:
            self._end("expired")
            raise ClaimLost(
                self.id,
                "expired",
                f"the claim of job {self.id!r} was lost: this host's session was not renewed in "
                "time, and another worker may run the job now",
            )

    async def complete(self, result: object = None) -> None:
        """The job is done; ``result`` is kept until its retention ends.

        Raises:
            ClaimLost: It was not ours any more; nothing was changed.
            UsageError: The result cannot be stored; the job stays claimed.
            StoreError: No answer until the session's time ran out.
        """
        text = None if result is None else encode(result, "the result")
        done = Completion(self.id, self._job.token, text)
        await self._settle(self._claims.store.complete, done, "completed")

    async def fail(
        self, error: Failed, *, retry_in: Duration | None = None, final: bool = False
    ) -> None:
        """The job failed with ``error``: an exception, a sentence, or its type and message.

        It is tried again after ``retry_in``, or when its retry policy says, or, if its attempts are
        used up or ``final``, never again. Raises what ``complete`` raises.
        """
        delay_s = None if final else self._retry_s(error, retry_in)
        failure = Failure(
            self.id,
            self._job.token,
            describe(error),
            None if delay_s is None else round(delay_s * 1e6),
        )
        await self._settle(
            self._claims.store.fail, failure, "dead" if delay_s is None else "failed"
        )
        if delay_s is not None:
            self._claims.comes_due(self.queue, delay_s)

    async def release(self, *, delay: Duration = 0) -> None:
        """Give the job back unrun, to its old place or so much later. Nothing is counted.

        Raises what ``complete`` raises.
        """
        delay_s = seconds(delay, "delay", most=TTL_MAX_S)
        back = Return(self.id, self._job.token, round(delay_s * 1e6))
        await self._settle(self._claims.store.release, back, "released")
        self._claims.comes_due(self.queue, delay_s)

    async def extend(self, *, progress: object = None) -> None:
        """Learn whether the claim stands, and keep ``progress`` for people to see.

        The claim needs no extension to live: the host's session keeps it. Afterwards ``cancelled``
        says whether somebody wants the job cancelled. Raises what ``complete`` raises.
        """
        text = None if progress is None else encode(progress, "the progress")
        extension = Extension(self.id, self._job.token, text)
        await self._settle(self._claims.store.extend, extension, None)

    def _retry_s(self, error: Failed, retry_in: Duration | None) -> float | None:
        asked_s = None
        if retry_in is not None:
            asked_s = seconds(retry_in, "retry_in", most=TTL_MAX_S)
        chance = self._claims.runtime.random.random()
        return pause_s(self._job, kind_of(error), chance, asked_s=asked_s)

    async def _settle(
        self,
        method: Callable[[Sequence[Any]], Awaitable[Sequence[Settled]]],
        member: object,
        outcome: str | None,
    ) -> None:
        self.check()
        answers = await while_held(self._claims.runtime, self._session, lambda: method((member,)))
        if answers[0] is Settled.LOST:
            self._end("fenced", "lost")
            raise ClaimLost(self.id, "fenced")
        if answers[0] is Settled.CANCEL:
            self.cancelled = True
        if outcome is not None:
            self._end("settled", outcome)

    def _end(self, reason: str, outcome: str = "lost") -> None:
        if self._ended is None:
            self._ended = reason
            self._claims.settled(self, outcome)


def headers_of(job: ClaimedJob) -> Mapping[str, Any]:
    """The headers of a claimed job; most have none."""
    return {} if job.headers == "{}" else decode_metadata(job.headers)
