"""``holdfast.current()``: what a handler may know and say of the job that it runs.

Owns the context variable. Safe from the thread of a synchronous handler as well.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol

from holdfast.errors import UsageError
from holdfast.names import JobId, Token
from holdfast.work.claim import Claim


class Reporting(Protocol):
    """What takes the progress of a running job."""

    def report(self, progress: object) -> None:
        """Keep it, soon. Safe from any thread."""
        ...


class Current:
    """The job that is being run."""

    __slots__ = ("_claim", "_log", "_reporting", "cancelled", "host")

    def __init__(self, claim: Claim, host: str, log: logging.Logger, reporting: Reporting) -> None:
        self._claim = claim
        self._log = log
        self._reporting = reporting
        self.host = host
        """The name of the host that runs it."""
        self.cancelled = False
        """Whether the handler should stop: the job was cancelled or lost, its time is up, or the
        host stops. An async handler is cancelled as well; a synchronous one looks here."""

    def __repr__(self) -> str:
        return f"<Current job {self.job} in {self.queue!r}, attempt {self.attempt}>"

    @property
    def job(self) -> JobId:
        """The id of the job."""
        return self._claim.id

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self._claim.queue

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
        """The same at every attempt of this job, and of no other."""
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
        """A logger whose records carry the job's id, queue and attempt."""
        return _JobLog(self._log, {"job": self.job, "queue": self.queue, "attempt": self.attempt})

    def check(self) -> None:
        """Raise ``ClaimLost`` unless the claim is ours."""
        self._claim.check()

    def progress(self, progress: object) -> None:
        """Keep ``progress`` for people to see; the newest counts, and is written soon.

        Raises:
            UsageError: It cannot be stored as JSON.
        """
        self._reporting.report(progress)


class _JobLog(logging.LoggerAdapter[logging.Logger]):
    """Adds to the fields that a call gives itself, instead of replacing them."""

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return msg, kwargs


Middleware = Callable[[Current, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Wraps the run of a handler: ``async def around(current, call): return await call()``."""

running: ContextVar[Current | None] = ContextVar("holdfast_current", default=None)


def current() -> Current:
    """The job that this code runs for.

    Raises:
        UsageError: Not inside a handler.
    """
    found = running.get()
    if found is None:
        raise UsageError("holdfast.current() is for code that a handler runs")
    return found
