"""What goes wrong with flows and their steps."""

from __future__ import annotations

from typing import Any

from outlive.errors.families import Conflict, NotFound, OutliveError


class FlowNotFound(NotFound):
    """No flow has this id in this namespace; its retention may have ended."""

    def __init__(self, id: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"no flow {id!r} in this namespace; it may have been pruned or purged")
        self.id = id


class FlowEnded(FlowNotFound):
    """The flow has ended, so that nothing can be sent to it any more; ``status`` says how.

    ``result()`` gives what came of it. One that failed can be retried, and then be sent to.
    """

    def __init__(self, id: str, status: str) -> None:  # noqa: A002 - it is one
        OutliveError.__init__(
            self, f"flow {id!r} has ended ({status}) and accepts no more messages"
        )
        self.id, self.status = id, status


class FlowExists(Conflict):
    """The id belongs to another run. Nothing was started: choose another id."""

    def __init__(self, id: str, name: str, wanted: str) -> None:  # noqa: A002 - it is one
        whose = (
            "already exists"
            if name == wanted
            else f"already exists as a run of {name!r}, not of {wanted!r}"
        )
        super().__init__(f"flow {id!r} {whose}; use another id")
        self.id = id
        self.name = name
        self.wanted = wanted


class RetryRefused(Conflict):
    """To let the flow go on would be wrong; it stays as it is. Start it anew, or fork it.

    ``reason`` is a short, stable code: ``undone`` if steps were undone since what ended it,
    ``heard`` if it is a child whose parent has acted on its end, or may have before it went on as
    new, ``stopped`` if it is one that was stopped by its parent or with it, and that is begun again
    when the parent is retried, and ``unknown`` if nobody knows whether a step with ``once=True``
    has run. That one is run again only if the caller says ``rerun_unknown=True``.
    """

    def __init__(self, id: str, reason: str, message: str) -> None:  # noqa: A002 - it is one
        super().__init__(f"cannot retry flow {id!r}: {message}")
        self.id = id
        self.reason = reason


class FlowError(OutliveError):
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
        self.id, self.type = id, type
        self.message, self.details = message, details
        self.cause = self.__cause__ = cause


class FlowCancelled(FlowError):
    """The flow that is asked for, or the child that is awaited, was cancelled.

    Nobody will get its result. A flow that does not catch this of its child has failed.
    """

    def __init__(self, id: str, reason: str = "") -> None:  # noqa: A002 - it is one
        super().__init__(f"flow {id!r} was cancelled" + (f": {reason}" if reason else ""))
        self.id, self.reason = id, reason


class FlowTerminated(FlowError):
    """Somebody ended the flow that is asked for, or the child, without asking its code.

    A flow that does not catch this of its child has failed.
    """

    def __init__(self, id: str, reason: str = "") -> None:  # noqa: A002 - it is one
        super().__init__(f"flow {id!r} was terminated" + (f": {reason}" if reason else ""))
        self.id, self.reason = id, reason


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
        self.step, self.type = step, type
        self.message, self.details = message, details
        self.cause = self.__cause__ = cause
        self.attempt = attempt


class StepOutcomeUnknown(FlowError):
    """A step with ``once=True`` was begun, and its host died: it may or may not have run.

    It is not run again by itself. Find out what it did, then decide.
    """

    def __init__(self, step: str) -> None:
        super().__init__(
            f"the outcome of step {step} is unknown: the step (once=True) began, and no result "
            "was recorded; it is not run again automatically"
        )
        self.step = step


class NonDeterminism(FlowError):
    """Replayed from its history, the flow's code does something else than it did.

    Nothing was written. Bring back the code that it began with, branch with
    ``outlive.patched()``, or let a renamed step keep its name by ``name=``, and it goes on. Where
    it is ``failed``, the code raised before it came so far: mend what it raised, which is in
    ``found`` and, with its traceback, in a note.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - it is one
        expected: str,
        found: str,
        *,
        failed: bool = False,
    ) -> None:
        advice = (
            "fix the cause of the failure, or branch changed code with outlive.patched()"
            if failed
            else "branch changed code with outlive.patched(), and keep the old name of a renamed "
            "step with name="
        )
        super().__init__(
            f"flow {id!r} does not match its history: expected {expected}, found {found}; {advice}"
        )
        self.id, self.expected = id, expected
        self.found, self.failed = found, failed


class HistoryTooLong(FlowError):
    """One run of a flow recorded as much as is allowed. Use ``outlive.continue_as_new()``."""

    def __init__(self, id: str, limit: int) -> None:  # noqa: A002 - it is one
        super().__init__(
            f"flow {id!r} has {limit} events in its history, which is the maximum: end a long "
            "run with outlive.continue_as_new()"
        )
        self.id, self.limit = id, limit


class HistoryTooNew(FlowError):
    """A newer release wrote ``what``, and this one does not know its meaning. Nothing was changed.

    Hosts of that release go on with the flow. Upgrade the package to work with it here.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a newer release of Outlive wrote {what}, which this release cannot read: upgrade "
            "Outlive on this host to the release of the other hosts"
        )
        self.what = what


class UpdateRejected(FlowError):
    """The flow did not take the update, and nothing was changed; ``reason`` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"update {name!r} was rejected: {reason}")
        self.name, self.reason = name, reason


class UpdateFailed(FlowError):
    """The flow took the update, and what handles it raised, or never came to its end.

    The flow itself goes on, if nothing else ended it. ``type`` names the error's class, ``message``
    and ``details`` are what it said, ``cause`` what it was raised from. Part of the update may have
    been done.
    """

    def __init__(
        self,
        id: str,  # noqa: A002 - it is one
        name: str,
        type: str,  # noqa: A002 - it is one
        message: str,
        *,
        details: Any = None,
        cause: Exception | None = None,
    ) -> None:
        super().__init__(
            f"update {name!r} of flow {id!r} failed: {type}" + (f": {message}" if message else "")
        )
        self.id, self.name = id, name
        self.type, self.message = type, message
        self.details = details
        self.cause = self.__cause__ = cause


class Evicted(BaseException):
    """The flow's coroutine is being dropped; the flow itself goes on from its history elsewhere.

    Control flow: raised by whatever flow code asks for meanwhile, and never to be caught.
    """
