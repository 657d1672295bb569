"""The steps and children that a run has called and that have not ended.

Owns identities: the name and which call of it this is, given at the call and never again. What has
ended leaves nothing behind but that count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import InvalidPayload
from holdfast.flows.arguments import text_of
from holdfast.flows.calls import ChildCall, StepCall
from holdfast.flows.decision import StepTask
from holdfast.flows.events import (
    NULL,
    ChildEnded,
    ChildStarted,
    StepEnded,
    StepIntended,
    StepRetrying,
    StepSent,
)
from holdfast.flows.failures import failure_of, flow_error, step_error
from holdfast.flows.letters import cancel
from holdfast.flows.replaying import same_input, told_call
from holdfast.model.instance import NewInstance
from holdfast.model.job import NewJob
from holdfast.names import InstanceId, JobId, check_key

if TYPE_CHECKING:
    from holdfast.flows.flow import Flow
    from holdfast.flows.run import FlowRun
    from holdfast.flows.step import Step


class Calling:
    """The open calls of one run."""

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._counts: dict[str, int] = {}
        self._child_counts: dict[str, int] = {}
        self.steps: dict[str, StepCall[Any]] = {}
        # Local steps to be given out, and those that were and run now.
        self.fresh: dict[str, StepCall[Any]] = {}
        self.running: set[str] = set()
        self.children: dict[str, ChildCall[Any]] = {}
        self.jobs: dict[str, str] = {}
        self.child_ids: dict[str, str] = {}
        # Ends that the history holds and the code has not asked for.
        self.unasked: dict[str, StepEnded] = {}

    # -- steps ------------------------------------------------------------------------------------

    def step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> StepCall[Any]:
        """Call a step."""
        given = step.arguments.encode(args, kwargs)
        name = step.name
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        identity = f"{name}#{count}"
        call = StepCall[Any](self._run, step, identity, given)
        if self.unasked:
            ended = self.unasked.pop(identity, None)
            if ended is not None:
                self.compare(call, ended.input)
                self._resolve(call, ended)
                return call
        self.steps[identity] = call
        if step.options.queue is not None:
            self.send(call)
        elif step.options.once:
            self.intend(call)
        else:
            self.fresh[identity] = call
        return call

    def intend(self, call: StepCall[Any]) -> None:
        """Decide to run a step that is never to be run twice."""
        event = StepIntended(at=self._run.at_us, step=call.identity, input=call.input)
        self._run.out.put(event, call)

    def send(self, call: StepCall[Any]) -> None:
        """Decide to put a step into its queue."""
        run, options = self._run, call.step.options
        job = JobId(f"{run.id}/{call.identity}{run.epoch}")
        self.sent(call, job)
        new = NewJob(
            id=job,
            queue=options.queue or "",
            payload=text_of(call.input),
            max_attempts=options.retry.max_attempts,
            retry=options.retry.to_json(),
            expires_us=None if options.retry_for_s is None else round(options.retry_for_s * 1e6),
            headers=run.headers_with(flow=run.id, step=call.identity, name=call.step.name),
            instance=run.id,
            step=call.identity,
        )
        run.out.put(StepSent(at=run.at_us, step=call.identity, job=job, input=call.input), new)

    def sent(self, call: StepCall[Any], job: JobId) -> None:
        """The end of this step comes from this job."""
        if call.job is not None:
            self.jobs.pop(call.job, None)
        call.job = job
        self.jobs[job] = call.identity
        self.fresh.pop(call.identity, None)

    def step_ended(self, event: StepEnded) -> StepEnded | None:
        """Feed the end of a step; what is to be recorded of it, if anybody waited for it."""
        call = self.steps.get(event.step)
        if call is None:
            return None
        self._close(call)
        if call.job is None and not call.intended and event.input is NULL:
            event = msgspec.structs.replace(event, input=call.input)
        return self._resolve(call, event)

    def as_recorded(self, event: StepEnded) -> StepEnded:
        """What feeding this end would record, without feeding it."""
        call = self.steps.get(event.step)
        if call is None or event.error is not None:
            return event
        try:
            call.step.arguments.returns.decode(text_of(event.result))
        except InvalidPayload as invalid:
            return _misfit(event, invalid)
        return event

    def step_retrying(self, event: StepRetrying) -> StepRetrying | None:
        """Feed a failed attempt, after which another is to come."""
        call = self.steps.get(event.step)
        if call is None:
            return None
        call.attempt = event.attempt + 1
        call.details = event.details
        self.running.discard(event.step)
        self.fresh.pop(event.step, None)
        self._run.timers.retry(event.step, event.due)
        return event

    def retry_due(self, step: str) -> None:
        """The next attempt begins."""
        call = self.steps.get(step)
        if self._run.timers.retried(step) and call is not None:
            self.fresh[step] = call

    def step_cancelled(self, call: StepCall[Any]) -> None:
        """Nobody waits for this step any more."""
        if self.steps.get(call.identity) is not call:
            return
        if call.identity in self.running:
            self._run.out.stopped.append(call.identity)
        if call.job is not None:
            self._run.out.stopped_jobs.append(call.job)
        self._close(call)

    def _close(self, call: StepCall[Any]) -> None:
        identity = call.identity
        del self.steps[identity]
        self.running.discard(identity)
        self.fresh.pop(identity, None)
        if call.job is not None:
            self.jobs.pop(call.job, None)
        if call.attempt > 1:
            self._run.timers.retried(identity)

    def _resolve(self, call: StepCall[Any], event: StepEnded) -> StepEnded:
        """Give a step's end to whoever awaits it: a copy, as a replay would."""
        error = event.error
        if error is None:
            try:
                value = call.step.arguments.returns.decode(text_of(event.result))
            except InvalidPayload as invalid:
                if self._run.replaying:
                    self._run.differs(
                        f"a result of step {event.step} that fits its type", str(invalid)
                    )
                event = _misfit(event, invalid)
                error = event.error
                assert error is not None
            else:
                call.set_result(value)
                return event
        call.set_exception(
            step_error(event.step, error, attempt=event.attempt, errors=call.step.options.errors)
        )
        return event

    def compare(self, call: StepCall[Any], recorded: msgspec.Raw) -> None:
        """Look whether a step was called with what the history says."""
        # Jobs and intents are recorded with their input, and their ends without.
        if not self._run.comparing or bytes(recorded) == b"null":
            return
        if not same_input(recorded, call.input, call.step.arguments):
            self._run.differs(
                told_call(call.identity, recorded), told_call(call.identity, call.input)
            )

    def tasks(self) -> list[StepTask]:
        """The local steps to run now, which run from now on."""
        fresh = self.fresh
        if not fresh:
            return []
        self.fresh = {}
        return [self.task(call) for call in fresh.values()]

    def task(self, call: StepCall[Any]) -> StepTask:
        """One of them."""
        self.running.add(call.identity)
        return StepTask(
            identity=call.identity,
            step=call.step,
            input=call.input,
            attempt=call.attempt,
            first_at_us=call.called_at_us,
            details=call.details,
        )

    # -- children ---------------------------------------------------------------------------------

    def child(
        self,
        flow: Flow[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        id: str | None,  # noqa: A002 - it is one
        abandon: bool,
        detached: bool,
    ) -> ChildCall[Any]:
        """Start a child."""
        given = flow.arguments.encode(args, kwargs)
        count = self._child_counts.get(flow.name, 0)
        identity = f"{flow.name}#{count}"
        wanted = InstanceId(check_key(id if id is not None else self._child_id(identity)))
        self._child_counts[flow.name] = count + 1
        call = ChildCall[Any](
            self._run, flow, identity, id=wanted, input=given, abandon=abandon, detached=detached
        )
        self.start(call)
        return call

    def _child_id(self, identity: str) -> str:
        return f"{self._run.id}/{identity}{self._run.epoch}"

    def restart(self, call: ChildCall[Any]) -> None:
        """Start a child again, under an id that it has not had."""
        del self.child_ids[call.id]
        call.id = InstanceId(self._child_id(call.identity))
        self.start(call)

    def start(self, call: ChildCall[Any]) -> None:
        """Decide to start a child."""
        run = self._run
        new = NewInstance(
            id=call.id,
            kind="flow",
            name=call.flow.name,
            input=text_of(call.input),
            request=f"child/{run.id}/{call.identity}{run.epoch}",
            parent=None if call.detached else run.id,
            outlives=call.abandon,
            headers=run.headers,
            retention_us=round(call.flow.retention_s * 1e6),
        )
        event = ChildStarted(
            at=run.at_us,
            child=call.identity,
            id=call.id,
            input=call.input,
            detached=call.detached,
        )
        run.out.put(event, new)
        if not call.detached:
            self.children[call.identity] = call
            self.child_ids[call.id] = call.identity

    def named(self, call: ChildCall[Any], id: str) -> None:  # noqa: A002 - it is one
        """The history says which id a child has."""
        self.child_ids.pop(call.id, None)
        call.id = InstanceId(id)
        self.child_ids[call.id] = call.identity

    def child_ended(self, event: ChildEnded) -> ChildEnded | None:
        """Feed the end of a child; what is to be recorded, if anybody waited for it."""
        call = self.children.pop(event.child, None)
        if call is None:
            return None
        self.child_ids.pop(call.id, None)
        if event.error is not None:
            call.set_exception(flow_error(call.id, event.error))
            return event
        try:
            value = call.flow.arguments.returns.decode(text_of(event.result))
        except InvalidPayload as invalid:
            if self._run.replaying:
                self._run.differs(
                    f"a result of child {event.child} that fits its type", str(invalid)
                )
            event = msgspec.structs.replace(event, result=NULL, error=failure_of(invalid))
            call.set_exception(flow_error(call.id, failure_of(invalid)))
        else:
            call.set_result(value)
        return event

    def child_cancelled(self, call: ChildCall[Any]) -> None:
        """Nobody waits for this child any more."""
        if self.children.get(call.identity) is not call:
            return
        del self.children[call.identity]
        self.child_ids.pop(call.id, None)
        if not call.abandon:
            self._ask_to_cancel(call, "the flow that waited for it does not any more")

    def _ask_to_cancel(self, call: ChildCall[Any], reason: str) -> None:
        run = self._run
        id_ = f"cancel/{run.id}{run.epoch}/{call.identity}"
        run.out.sends.append(cancel(call.id, reason, id=id_))

    def end(self, *, cancel_children: bool) -> None:
        """The run ends: stop what runs, and tell the children that are not to outlive it."""
        out = self._run.out
        out.stopped.extend(sorted(self.running))
        out.stopped_jobs.extend(JobId(job) for job in self.jobs)
        if cancel_children:
            for call in self.children.values():
                if not call.abandon:
                    self._ask_to_cancel(call, "the flow that started it has ended")
        for book in (self.steps, self.fresh, self.children, self.jobs, self.child_ids):
            book.clear()
        self.running.clear()


def _misfit(event: StepEnded, invalid: InvalidPayload) -> StepEnded:
    """The end of a step whose result does not fit its type: a failure."""
    return msgspec.structs.replace(event, result=NULL, error=failure_of(invalid))
