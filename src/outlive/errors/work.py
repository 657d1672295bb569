"""What goes wrong with jobs, queues and schedules."""

from __future__ import annotations

from typing import Any, cast

from outlive.errors.families import Conflict, NotFound, OutliveError, UsageError


class JobNotFound(NotFound):
    """No job has this id in this namespace; its retention may have ended."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"no job {id!r} in this namespace; it may have been pruned")
        self.id = id


class ScheduleNotFound(NotFound):
    """No schedule has this name in this namespace."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r} in this namespace; see `outlive schedule ls`")
        self.name = name


class DuplicateJob(Conflict):
    """A live job of the queue has the unique key already; ``existing`` is its id."""

    def __init__(self, queue: str, unique_key: str, existing: str) -> None:
        super().__init__(
            f"queue {queue!r} already has a live job with the unique key {unique_key!r}: {existing}"
        )
        self.queue, self.unique_key = queue, unique_key
        self.existing = existing


class JobExists(Conflict):
    """The id belongs to a job of another queue. Nothing was added: choose another id."""

    def __init__(self, id: str, queue: str) -> None:  # noqa: A002 - it is one
        super().__init__(
            f"job {id!r} already exists in another queue than {queue!r}; use another id"
        )
        self.id = id
        self.queue = queue


class QueueClosed(Conflict):
    """The queue drains and takes no more jobs. Nothing was added."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is draining and accepts no new jobs; resume the queue to open it"
        )
        self.queue = queue


class ClaimLost(OutliveError):
    """The claim of a job is no longer ours: stop side effects at once.

    ``reason`` is a short, stable code (``fenced``, ``expired``, ``cancelled``, ``settled``).
    """

    def __init__(self, id: str, reason: str, message: str | None = None) -> None:  # noqa: A002
        how = "already settled" if reason == "settled" else f"lost ({reason})"
        super().__init__(message or f"the claim of job {id!r} was {how}")
        self.id, self.reason = id, reason


class InvalidPayload(UsageError):
    """A stored payload or result does not fit its type: what wrote it and what reads it differ.

    A job whose payload is invalid on arrival goes to the dead letters; it is not tried again.
    """


class JobFailed(OutliveError):
    """The job whose result was asked for is dead or cancelled; ``error`` says why."""

    def __init__(self, id: str, state: str, error: Any = None) -> None:  # noqa: A002 - it is one
        super().__init__(f"job {id!r} is {state}" + (f": {_short(error)}" if error else ""))
        self.id, self.state = id, state
        self.error = error


def _short(error: Any) -> str:
    """A kept failure in one line; where it happened stays in the document."""
    if not isinstance(error, dict):
        return str(error)
    document = cast("dict[str, Any]", error)
    return ": ".join(str(document[name]) for name in ("type", "message") if document.get(name))
