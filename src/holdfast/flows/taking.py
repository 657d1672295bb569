"""From what a run has collected to one ``Decision``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.flows.calls import StepCall
from holdfast.flows.decision import Decision, StepTask
from holdfast.flows.ending import Ending
from holdfast.flows.events import Event, Patched
from holdfast.model.instance import Message, NewInstance
from holdfast.model.job import NewJob

if TYPE_CHECKING:
    from holdfast.flows.run import FlowRun


def decision_of(
    run: FlowRun, ended: Ending | None, *, custom: str | None, attributes: str | None
) -> Decision:
    """Empty the outbox of ``run`` into a decision."""
    out = run.out
    steps = run.calling.tasks()
    durable = (
        ended is not None
        or custom is not None
        or attributes is not None
        or bool(out.sends or out.replies)
        # A patch that was asked for is written with the next commit: nothing depends on it before.
        or any(not isinstance(event, Patched) for event, _ in out)
    )
    if not durable:
        stopped, out.stopped = tuple(out.stopped), []
        jobs, out.stopped_jobs = tuple(out.stopped_jobs), []
        return Decision(steps=tuple(steps), stopped=stopped, stopped_jobs=jobs)
    events: list[Event] = []
    new_jobs: list[NewJob] = []
    starts: list[NewInstance] = []
    sends: list[Message] = []
    for event, effect in out.emptied():
        events.append(event)
        if effect is None:
            continue
        if isinstance(effect, StepCall):
            _intend(run, effect, steps)
        elif isinstance(effect, NewJob):
            new_jobs.append(effect)
        elif isinstance(effect, NewInstance):
            starts.append(effect)
        else:
            sends.append(effect)
    restart = None if ended is None else ended.restart
    if restart is not None:
        # The new run's history begins with this commit: what came before is gone, and the signals
        # that nobody read come first.
        events = list(run.inbox.carried())
    decision = Decision(
        events=tuple(events),
        steps=tuple(steps),
        stopped=tuple(out.stopped),
        stopped_jobs=tuple(out.stopped_jobs),
        jobs=tuple(new_jobs),
        starts=tuple(starts),
        sends=(*sends, *out.sends),
        replies=tuple(out.replies),
        custom=custom,
        attributes=attributes,
        ended=None if ended is None else ended.status,
        outcome=None if ended is None else ended.outcome,
        restart=restart,
        durable=True,
    )
    out.forget_unrecorded()
    return decision


def _intend(run: FlowRun, call: StepCall[object], steps: list[StepTask]) -> None:
    # Cancelled since: its intent is written, so that a replay finds it, and it never begins.
    if not call.done():
        call.intended = True
        steps.append(run.calling.task(call))
