"""From what a run has collected to one ``Decision``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outlive.flows.calls import StepCall
from outlive.flows.decision import Decision, StepTask
from outlive.flows.ending import Ending
from outlive.flows.events import Event
from outlive.flows.outbox import Effect
from outlive.model.instance import Message, NewInstance
from outlive.model.job import NewJob

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun


def decision_of(
    run: FlowRun, ended: Ending | None, *, custom: str | None, attributes: str | None
) -> Decision:
    """Empty the outbox of ``run`` into a decision."""
    out = run.out
    steps = run.calling.tasks() if run.calling.fresh else []
    if not (
        out.urgent
        or ended is not None
        or custom is not None
        or attributes is not None
        or out.sends
        or out.replies
    ):
        return _of_acts(run, steps)
    plain = custom is None and attributes is None and out.is_plain()
    entries = out.emptied()
    if plain and ended is None and len(entries) == 1 and entries[0][1] is None:
        # The usual one: a step has ended, and another begins.
        return Decision(events=(entries[0][0],), steps=tuple(steps), durable=True, plain=True)
    events: list[Event] = []
    effects: list[Effect] = []
    for event, effect in entries:
        events.append(event)
        if effect is not None:
            effects.append(effect)
            if isinstance(effect, StepCall):
                _intend(run, effect, steps)
    restart = status = outcome = None
    if ended is not None:
        restart, status, outcome = ended.restart, ended.status, ended.outcome
    if plain and restart is None and not effects:
        return Decision(
            events=tuple(events),
            steps=tuple(steps),
            ended=status,
            outcome=outcome,
            durable=True,
            plain=True,
        )
    decision = Decision(
        # The history of a new run begins with this commit: what came before is gone, and the
        # signals that nobody read come first.
        events=tuple(events) if restart is None else tuple(run.inbox.carried()),
        steps=tuple(steps),
        stopped=tuple(out.stopped),
        stopped_jobs=tuple(out.stopped_jobs),
        jobs=tuple([effect for effect in effects if isinstance(effect, NewJob)]),
        starts=tuple([effect for effect in effects if isinstance(effect, NewInstance)]),
        sends=(*[effect for effect in effects if isinstance(effect, Message)], *out.sends),
        replies=tuple(out.replies),
        custom=custom,
        attributes=attributes,
        ended=status,
        outcome=outcome,
        restart=restart,
        durable=True,
    )
    out.forget_unrecorded()
    return decision


def _of_acts(run: FlowRun, steps: list[StepTask]) -> Decision:
    """What is done without anything to be written."""
    out = run.out
    decision = Decision(
        steps=tuple(steps),
        stopped=tuple(out.stopped),
        stopped_jobs=tuple(out.stopped_jobs),
    )
    out.forget_unrecorded()
    return decision


def _intend(run: FlowRun, call: StepCall[object], steps: list[StepTask]) -> None:
    # Cancelled since: its intent is written, so that a replay finds it, and it never begins.
    if not call.done():
        call.intended = True
        steps.append(run.calling.task(call))
