"""Every error a caller can meet, named for what the caller does next.

Owns the error classes and nothing else. A driver's own exceptions never cross a port: each driver
translates them into these. An error carries fields, so that a program can act on it without
reading its prose.
"""

from __future__ import annotations

from typing import Any, cast


class HoldfastError(Exception):
    """Root of all errors raised by Holdfast. Every one can be copied and sent to a process."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with its message alone, which these do not accept.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[HoldfastError], args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *args)
    # OSError, the parent of TimeoutError, sets its arguments only in __init__.
    error.args = args
    error.__dict__.update(fields)
    return error


class UsageError(HoldfastError):
    """The program is wrong: fix the call. Nothing was sent to the store."""


class ConfigurationError(UsageError):
    """A setting, URL or installation is wrong: fix the configuration. Nothing was written."""


class InvalidName(UsageError):
    """A key, namespace or host name breaks the rules for names. Nothing was written."""


class UnsupportedByDriver(UsageError):
    """This backend cannot keep the promise asked for; its capabilities say so."""


class InvalidChart(UsageError):
    """A chart's document or implementations are wrong; ``problems`` lists everything found.

    Each problem says where (``pointer``, a JSON pointer into the document) and what.
    """

    def __init__(self, chart: str, problems: tuple[Any, ...]) -> None:
        count = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"chart {chart!r} has {count}:{lines}")
        self.chart = chart
        self.problems = problems


class NotFound(HoldfastError):
    """The thing named does not exist."""


class LeaseNotFound(NotFound):
    """No lease of this key was ever granted in this namespace."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no lease {key!r} in this namespace; see `holdfast lease ls --all`")
        self.key = key


class Conflict(HoldfastError):
    """Somebody else was first: read again, then decide."""


class LeaseHeld(Conflict):
    """The lease belongs to somebody else right now.

    ``owner`` names the owner, or is ``None`` when the key is free but reserved for those who
    queued earlier.
    """

    def __init__(self, key: str, owner: str | None, *, detail: str = "") -> None:
        by = f"owned by {owner}" if owner is not None else "reserved for earlier waiters"
        super().__init__(f"lease {key!r} is {by}{detail}")
        self.key = key
        self.owner = owner


class AlreadyOwned(UsageError, LeaseHeld):
    """The task that asks already owns the key, so waiting for it would never end.

    Leases are not reentrant: pass the handle along instead of acquiring twice.
    """

    def __init__(self, key: str, owner: str | None) -> None:
        detail = (
            ", by this very task; leases are not reentrant: pass the handle along, or release it"
        )
        LeaseHeld.__init__(self, key, owner, detail=detail)


class LeaseLost(HoldfastError):
    """The lease is no longer ours: stop side effects at once.

    ``reason`` is a short, stable code (``expired``, ``fenced``, ``broken``, ``stalled``,
    ``forked``, ``released``, ``closed``, ``abandoned``).
    """

    def __init__(self, key: str, reason: str, message: str | None = None) -> None:
        super().__init__(message or f"lease {key!r} was lost ({reason})")
        self.key = key
        self.reason = reason


class LeaseExpired(LeaseLost):
    """The time ran out before a renewal was acknowledged. Others may own the key now."""

    def __init__(self, key: str, message: str | None = None) -> None:
        super().__init__(key, "expired", message)


class Fenced(LeaseLost):
    """The store refused the token: a newer grant exists, or the grant was ended by others."""

    def __init__(self, key: str, reason: str = "fenced", message: str | None = None) -> None:
        super().__init__(key, reason, message)

    @classmethod
    def broken(cls, key: str, why: str | None) -> Fenced:
        """The error of an owner whose lease somebody broke, with the words that were given."""
        return cls(key, "broken", f"lease {key!r} was lost (broken: {why})" if why else None)


class AcquireTimeout(HoldfastError, TimeoutError):
    """The lease could not be had in the time allowed. Nothing is held, no place is queued."""

    def __init__(self, key: str, owner: str | None, timeout_s: float) -> None:
        by = f"; owned by {owner}" if owner is not None else ""
        super().__init__(f"lease {key!r} was not to be had within {timeout_s:g} s{by}")
        self.key = key
        self.owner = owner
        self.timeout_s = timeout_s


class JobNotFound(NotFound):
    """No job has this id in this namespace; its retention may have ended."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"no job {id!r} in this namespace; it may have been pruned")
        self.id = id


class TokenNotFound(NotFound):
    """No bearer token of the HTTP API has this id in this namespace."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"no token {id!r} in this namespace; see `holdfast token ls`")
        self.id = id


class ScheduleNotFound(NotFound):
    """No schedule has this name in this namespace."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no schedule {name!r} in this namespace; see `holdfast schedule ls`")
        self.name = name


class DuplicateJob(Conflict):
    """A live job of the queue has the unique key already; ``existing`` is its id."""

    def __init__(self, queue: str, unique_key: str, existing: str) -> None:
        super().__init__(
            f"queue {queue!r} has a live job with the unique key {unique_key!r}: {existing}"
        )
        self.queue = queue
        self.unique_key = unique_key
        self.existing = existing


class QueueClosed(Conflict):
    """The queue drains and takes no more jobs. Nothing was added."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"queue {queue!r} drains and takes no more jobs; resume it to open it")
        self.queue = queue


class ClaimLost(HoldfastError):
    """The claim of a job is no longer ours: stop side effects at once.

    ``reason`` is a short, stable code (``fenced``, ``expired``, ``cancelled``, ``settled``).
    """

    def __init__(self, id: str, reason: str, message: str | None = None) -> None:  # noqa: A002
        how = "settled already" if reason == "settled" else f"lost ({reason})"
        super().__init__(message or f"the claim of job {id!r} was {how}")
        self.id = id
        self.reason = reason


class InvalidPayload(UsageError):
    """A stored payload or result does not fit its type: what wrote it and what reads it differ.

    A job whose payload is invalid on arrival goes to the dead letters; it is not tried again.
    """


class JobFailed(HoldfastError):
    """The job whose result was asked for is dead or cancelled; ``error`` says why."""

    def __init__(self, id: str, state: str, error: Any = None) -> None:  # noqa: A002 - it is one
        super().__init__(f"job {id!r} is {state}" + (f": {_short(error)}" if error else ""))
        self.id = id
        self.state = state
        self.error = error


def _short(error: Any) -> str:
    """A kept failure in one line; where it happened stays in the document."""
    if not isinstance(error, dict):
        return str(error)
    document = cast("dict[str, Any]", error)
    return ": ".join(str(document[name]) for name in ("type", "message") if document.get(name))


class StoreError(HoldfastError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """The store was not reached, or refused the work. Nothing was applied: retry later."""


class OutcomeUnknown(StoreError):
    """The reply was lost: the write may or may not have been applied. Read, then decide."""


class SchemaMismatch(StoreError):
    """The store was written by another release; the message names the command to run."""

    def __init__(self, message: str, *, found: int, expected: int) -> None:
        super().__init__(message)
        self.found = found
        self.expected = expected


class ChartError(HoldfastError):
    """A chart could not do what was asked; the machine stays where it was."""


class MicrostepLimit(ChartError):
    """One event led to more microsteps than ``limit``: the chart goes in a circle."""

    def __init__(self, chart: str, limit: int) -> None:
        super().__init__(
            f"chart {chart!r} did not come to rest within {limit} microsteps; look for eventless "
            "transitions or raised events that lead to each other in a circle"
        )
        self.chart = chart
        self.limit = limit


class UnknownTarget(ChartError):
    """An event was sent to somebody who does not exist; it was not delivered."""

    def __init__(self, target: str, detail: str = "") -> None:
        super().__init__(f"there is no {target!r} to send to" + (f": {detail}" if detail else ""))
        self.target = target


class EventUnhandled(ChartError):
    """No transition took the event, and the machine's policy calls that an error."""

    def __init__(self, event: str, state: object) -> None:
        super().__init__(f"nothing takes event {event!r} in state {state!r}")
        self.event = event
        self.state = state


class WaitTimeout(ChartError, TimeoutError):
    """A machine did not get to what was waited for in the time allowed. Nothing was changed."""

    def __init__(self, machine: str, timeout_s: float) -> None:
        super().__init__(f"machine {machine!r} did not get there within {timeout_s:g} s")
        self.machine = machine
        self.timeout_s = timeout_s


class RequestTimeout(ChartError, TimeoutError):
    """A machine did not answer in the time allowed.

    If ``begun`` is false the event was not handled and never will be, unless the request asked for
    that (``run_late``). If it is true the event is being handled, and goes on.
    """

    def __init__(self, machine: str, event: str, timeout_s: float, *, begun: bool) -> None:
        state = "is being handled" if begun else "was not handled"
        super().__init__(
            f"machine {machine!r} did not answer {event!r} within {timeout_s:g} s; it {state}"
        )
        self.machine = machine
        self.event = event
        self.timeout_s = timeout_s
        self.begun = begun


class MailboxFull(ChartError):
    """As many events wait for the machine as are allowed: send more slowly. It was not taken."""

    def __init__(self, machine: str, limit: int) -> None:
        super().__init__(f"the mailbox of machine {machine!r} is full: {limit} events wait already")
        self.machine = machine
        self.limit = limit


class GroupReleased(ChartError):
    """The group of machines is gone, and everything in it has ended: do not wait for it."""

    def __init__(self, group: str) -> None:
        super().__init__(f"the group {group!r} was released")
        self.group = group
