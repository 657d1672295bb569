"""What one look at a running flow yields: what to record, and what to do once it is recorded.

Values only. Between a run, which decides, and its host, which commits and then acts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from outlive.flows.arguments import Call
from outlive.flows.events import NULL, Event
from outlive.flows.step import Step
from outlive.model.instance import InstanceStatus, Message, NewInstance, Reply
from outlive.model.job import NewJob
from outlive.names import JobId


class StepTask(msgspec.Struct, frozen=True, kw_only=True):
    """A local step to run now; how (timeout, retry, once…) stands in ``step.options``.

    Attributes:
        identity: ``charge#0``: what its end is fed under.
        input: What it was called with, as it is recorded.
        attempt: 1 is the first.
        first_at_us: When the step was called, by the flow's time: for limits on all attempts.
        details: What the attempts before said last with ``heartbeat``.
        key: What its effects are known by, if that is not its identity.
    """

    identity: str
    step: Step[..., Any]
    input: msgspec.Raw
    attempt: int = 1
    first_at_us: int = 0
    details: msgspec.Raw = NULL
    key: str | None = None

    def arguments(self) -> Call:
        """Positional and keyword arguments: a copy, so that step and flow share no object.

        Raises:
            InvalidPayload: They do not fit the annotated types: the step has failed.
        """
        return self.step.arguments.decode(self.input)


class RetryDue(msgspec.Struct, frozen=True):
    """A step that failed is to be tried again. Fed like an event, and never recorded."""

    at: int
    step: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a run recorded and decided since it was last asked.

    Attributes:
        events: For the history row, in order: what was fed, and what was decided on it.
        steps: Local steps to run now; after the commit, if it is durable.
        stopped: Identities of local steps whose end nobody waits for any more: cancel them.
        stopped_jobs: The same for steps that were sent to a queue.
        jobs, starts, sends, replies: As in ``Commit``.
        custom, attributes: ``None`` leaves what was.
        ended: How the flow ended, if it did, and its ``outcome`` as JSON.
        restart: The input of a new run (``continue_as_new``), which begins with this commit.
        durable: Whether it must be committed before anything of it takes effect. If not, there
            are only local steps to run, and nothing to write.
        plain: Whether certainly nothing is to be written but events, and the end.
    """

    events: tuple[Event, ...] = ()
    steps: tuple[StepTask, ...] = ()
    stopped: tuple[str, ...] = ()
    stopped_jobs: tuple[JobId, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    starts: tuple[NewInstance, ...] = ()
    sends: tuple[Message, ...] = ()
    replies: tuple[Reply, ...] = ()
    custom: str | None = None
    attributes: str | None = None
    ended: InstanceStatus | None = None
    outcome: str | None = None
    restart: str | None = None
    durable: bool = False
    plain: bool = False

    @property
    def only_acts(self) -> bool:
        """Whether it writes nothing but its events."""
        return not (
            self.jobs
            or self.starts
            or self.sends
            or self.replies
            or self.custom is not None
            or self.attributes is not None
            or self.ended is not None
            or self.restart is not None
        )
