"""``outlive.current()``: what a handler or a step may know and say of what it runs.

Owns the context variable. Safe from the thread of a synchronous handler as well.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol

from outlive.errors import UsageError
from outlive.names import JobId, Token


class Held(Protocol):
    """What is being run under a token: the claim of a job, or a step of a flow that we own."""

    @property
    def id(self) -> JobId:
        """The same at every attempt, and of nothing else."""
        ...

    @property
    def queue(self) -> str:
        """Where it came from; empty for a step that runs where its flow does."""
        ...

    @property
    def headers(self) -> dict[str, Any]:
        """What travels along."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 is the first."""
        ...

    @property
    def token(self) -> Token:
        """The fencing token; raises ``ClaimLost`` once it is not ours any more."""
        ...

    def check(self) -> None:
        """Raise ``ClaimLost`` unless it is ours."""
        ...


class Reporting(Protocol):
    """What takes the progress of what runs."""

    def report(self, progress: object) -> None:
        """Keep it, soon. Safe from any thread."""
        ...

    def beat(self) -> None:
        """It still moves, and has nothing new to say. Safe from any thread."""
        ...


# Headers of a job that runs a step for a flow.
FLOW_HEADER = "flow"
STEP_HEADER = "step"
STEP_NAME_HEADER = "name"


class Current:
    """The job, or the step of a flow, that is being run."""

    __slots__ = (
        "_claim",
        "_log",
        "_reporting",
        "_tx",
        "beats",
        "cancelled",
        "heartbeat_details",
        "host",
    )

    def __init__(self, claim: Held, host: str, log: logging.Logger, reporting: Reporting) -> None:
        self._claim = claim
        self._log = log
        self._reporting = reporting
        self._tx: Any = None
        # How often it told of itself: who listens looks whether there were more.
        self.beats = 0
        self.heartbeat_details: Any = None
        """What an earlier attempt of this step said last with ``heartbeat`` or ``progress``, as
        plain JSON; ``None`` if nothing is known. Begin where that one stopped."""
        self.host = host
        """The name of the host that runs it."""
        self.cancelled = False
        """Whether the handler should stop: the job was cancelled or lost, its time is up, or the
        host stops. An async handler is cancelled as well; a synchronous one looks here."""

    def __repr__(self) -> str:
        where = f" in {self.queue!r}" if self.queue else ""
        return f"<Current {self.job}{where}, attempt {self.attempt}>"

    @property
    def job(self) -> JobId:
        """The id of the job; of a step that runs where its flow does, its idempotency key."""
        return self._claim.id

    @property
    def queue(self) -> str:
        """The queue it came from; empty for a step that runs where its flow does."""
        return self._claim.queue

    @property
    def flow(self) -> str | None:
        """The id of the flow whose step runs, if one does."""
        return self._claim.headers.get(FLOW_HEADER)

    @property
    def step(self) -> str | None:
        """The identity of the step in its flow (``charge#0``), if one runs."""
        return self._claim.headers.get(STEP_HEADER)

    @property
    def headers(self) -> dict[str, Any]:
        """What was said beside the payload."""
        return self._claim.headers

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 is the first."""
        return self._claim.attempt

    @property
    def idempotency_key(self) -> str:
        """The same at every attempt of this job or step, and of no other."""
        return self._claim.id

    @property
    def token(self) -> Token:
        """The fencing token of this claim; later claims of the job have greater ones.

        Raises:
            ClaimLost: The claim is not ours any more: stop side effects at once.
        """
        return self._claim.token

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry what runs: job and queue, or flow and step; the attempt."""
        fields: dict[str, Any] = {"attempt": self.attempt}
        if self.queue:
            fields.update(job=self.job, queue=self.queue)
        if self.flow is not None:
            fields.update(flow=self.flow, step=self.step)
        return _JobLog(self._log, fields)

    @property
    def tx(self) -> Any:
        """The connection of a transactional step, inside its open transaction.

        Raises:
            UsageError: This is no transactional step.
        """
        if self._tx is None:
            raise UsageError("current().tx exists only in steps with transactional=True")
        return self._tx

    @tx.setter
    def tx(self, connection: Any) -> None:
        self._tx = connection

    def check(self) -> None:
        """Raise ``ClaimLost`` unless the claim is ours."""
        self._claim.check()

    def progress(self, progress: object) -> None:
        """Keep ``progress`` for people to see; the newest counts, and is written soon.

        Raises:
            UsageError: It cannot be stored as JSON.
        """
        self.beats += 1
        self._reporting.report(progress)

    def heartbeat(self, details: object = None) -> None:
        """Say that it still moves, with ``details`` for people to see; without, those before stay.

        A step with ``heartbeat=`` must call this, or ``progress``, at least so often. The next
        attempt of a step finds the newest details in ``heartbeat_details``.

        Raises:
            UsageError: The details cannot be stored as JSON.
        """
        if details is not None:
            self.progress(details)
            return
        self.beats += 1
        self._reporting.beat()


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Adds to the fields that a call gives itself, instead of replacing them."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


Middleware = Callable[[Current, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Wraps the run of a handler: ``async def around(current, call): return await call()``."""

running: ContextVar[Current | None] = ContextVar("outlive_current", default=None)


def current() -> Current:
    """The job or step that this code runs for.

    Raises:
        UsageError: Not inside a handler or a step.
    """
    found = running.get()
    if found is None:
        raise UsageError("outlive.current() works only inside a handler or a step")
    return found


def cancelled() -> bool:
    """Whether the handler or step that this code runs for should stop; false outside of one.

    For synchronous code, which nothing can interrupt: look here now and then, and return.
    """
    found = running.get()
    return found is not None and found.cancelled
