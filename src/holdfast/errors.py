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


class FlowNotFound(NotFound):
    """No flow has this id in this namespace; its retention may have ended."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"no flow {id!r} in this namespace; it may have been pruned")
        self.id = id


class FlowExists(Conflict):
    """The id belongs to a run of another definition. Nothing was started: choose another id."""

    def __init__(self, id: str, name: str, wanted: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"flow {id!r} is a run of {name!r}, not of {wanted!r}; use another id")
        self.id = id
        self.name = name
        self.wanted = wanted


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


class FlowError(HoldfastError):
    """A flow, or a step of it, did not do what was asked."""


class FlowFailed(FlowError):
    """A flow ended with an error, or a child did. ``id`` names it, ``type`` the error's class.

    ``message`` and ``details`` are what the error said, ``cause`` what it was raised from.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - it is one
        type: str,  # noqa: A002 - it is one
        message: str,
        *,
        details: Any = None,
        cause: Exception | None = None,
    ) -> None:
        super().__init__(f"flow {id!r} failed: {type}" + (f": {message}" if message else ""))
        self.id = id
        self.type = type
        self.message = message
        self.details = details
        self.cause = self.__cause__ = cause


class FlowCancelled(FlowError):
    """The flow, or a child, was cancelled: nobody will get its result."""

    def __init__(self, id: str, reason: str = "") -> None:  # noqa: A002 - it is one
        super().__init__(f"flow {id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.id = id
        self.reason = reason


class FlowTerminated(FlowError):
    """Somebody ended the flow, or a child, without asking its code."""

    def __init__(self, id: str, reason: str = "") -> None:  # noqa: A002 - it is one
        super().__init__(f"flow {id!r} was terminated" + (f": {reason}" if reason else ""))
        self.id = id
        self.reason = reason


class StepFailed(FlowError):
    """A step failed for good. Decide by ``type``, the name of what its code raised.

    ``step`` is its identity, ``attempt`` how often it was tried. A step that names a class in
    ``errors=`` lets that one through as it was raised, instead of this.
    """

    def __init__(
        self,
        step: str,
        type: str,  # noqa: A002 - it is one
        message: str,
        *,
        attempt: int = 1,
        details: Any = None,
        cause: Exception | None = None,
    ) -> None:
        super().__init__(f"step {step} failed: {type}" + (f": {message}" if message else ""))
        self.step = step
        self.type = type
        self.message = message
        self.details = details
        self.cause = self.__cause__ = cause
        self.attempt = attempt


class StepOutcomeUnknown(FlowError):
    """A step with ``once=True`` was begun, and its host died: it may or may not have run.

    It is not run again by itself. Find out what it did, then decide.
    """

    def __init__(self, step: str) -> None:
        super().__init__(
            f"step {step} was begun and its end was never recorded; it is not run again by itself"
        )
        self.step = step


class NonDeterminism(FlowError):
    """Replayed from its history, the flow's code does something else than it did.

    Nothing was written. Bring back the code that it began with, or branch with
    ``holdfast.patched()``, and it goes on.
    """

    def __init__(self, id: str, expected: str, found: str) -> None:  # noqa: A002 - it is one
        super().__init__(
            f"flow {id!r} does not do what its history says: expected {expected}, found {found}; "
            "branch changed code with holdfast.patched()"
        )
        self.id = id
        self.expected = expected
        self.found = found


class HistoryTooLong(FlowError):
    """One run of a flow recorded as much as is allowed. Use ``holdfast.continue_as_new()``."""

    def __init__(self, id: str, limit: int) -> None:  # noqa: A002 - it is one
        super().__init__(
            f"flow {id!r} has {limit} events in its history, which are as many as are allowed: "
            "end a long run with holdfast.continue_as_new()"
        )
        self.id = id
        self.limit = limit


class HistoryTooNew(FlowError):
    """A newer release wrote ``what``, and this one does not know its meaning. Nothing was changed.

    Hosts of that release go on with the flow. Upgrade the package to work with it here.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a newer release of Holdfast wrote {what}, which this one does not know: upgrade the "
            "package with `pip install --upgrade holdfast`"
        )
        self.what = what


class UpdateRejected(FlowError):
    """The flow did not take the update, and nothing was changed; ``reason`` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"update {name!r} was rejected: {reason}")
        self.name = name
        self.reason = reason


class Evicted(BaseException):
    """The flow's coroutine is being dropped; the flow itself goes on from its history elsewhere.

    Control flow: raised by whatever flow code asks for meanwhile, and never to be caught.
    """


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


class MailboxFull(ChartError, FlowError):
    """As much waits for the machine or the flow as is allowed: send more slowly. Not taken."""

    def __init__(self, receiver: str, limit: int, *, kind: str = "machine") -> None:
        super().__init__(f"the mailbox of {kind} {receiver!r} is full: {limit} events wait already")
        self.receiver = receiver
        self.limit = limit
        self.kind = kind


class GroupReleased(ChartError):
    """The group of machines is gone, and everything in it has ended: do not wait for it."""

    def __init__(self, group: str) -> None:
        super().__init__(f"the group {group!r} was released")
        self.group = group
