"""Letters as a run understands them: each becomes one event, or is none of its business.

Letters about jobs and children name these by their own ids: what an earlier run of the same flow,
or an attempt that became void, had begun, ends without anybody waiting for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from outlive.flows.arguments import encoded
from outlive.flows.events import (
    CancelRequested,
    ChildEnded,
    Fed,
    SignalReceived,
    StepEnded,
    UpdateReceived,
)
from outlive.flows.failures import failure_of_job
from outlive.flows.letters import (
    CANCEL,
    CHILD,
    SIGNAL,
    STEP,
    UPDATE,
    job_of,
    read_reason,
    read_settled,
    read_told,
)
from outlive.model.instance import Letter
from outlive.model.job import JobState

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun


_whole = msgspec.json.Decoder(msgspec.Raw)


def event_of(run: FlowRun, letter: Letter, at_us: int) -> Fed | None:
    """What a letter says to ``run``; ``None`` if nobody waits for it, or it makes no sense."""
    try:
        return _read(run, letter, at_us)
    except msgspec.MsgspecError:
        # Nothing of ours wrote it; there is nobody to be told.
        return None


def _read(run: FlowRun, letter: Letter, at_us: int) -> Fed | None:
    # Written into the history as it is: what is no JSON would make all of it unreadable.
    payload = _whole.decode(letter.payload)
    match letter.kind:
        case kind if kind == SIGNAL:
            return SignalReceived(at=at_us, name=letter.name, id=letter.id, payload=payload)
        case kind if kind == UPDATE:
            return UpdateReceived(at=at_us, name=letter.name, id=letter.id, payload=payload)
        case kind if kind == CANCEL:
            return CancelRequested(at=at_us, reason=read_reason(letter.payload))
        case kind if kind == CHILD:
            child = run.children.ids.get(letter.name)
            told = read_told(letter.payload)
            if child is None:
                return None
            return ChildEnded(at=at_us, child=child, result=told.result, error=told.error)
        case kind if kind == STEP:
            return _step_ended(run, letter, at_us)
        case _:
            return None


def _step_ended(run: FlowRun, letter: Letter, at_us: int) -> StepEnded | None:
    step = run.calling.jobs.get(job_of(letter.id))
    if step is None:
        return None
    settled = read_settled(letter.payload)
    if settled.state == JobState.DONE:
        return StepEnded(at=at_us, step=step, result=encoded(settled.outcome, "the result"))
    return StepEnded(at=at_us, step=step, error=failure_of_job(settled.outcome))
