"""The steps that a run has called and that have not ended.

Owns identities: the name and which call of it this is, given at the call and never again. What has
ended leaves nothing behind but that count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from outlive.errors import InvalidPayload
from outlive.flows.arguments import text_of
from outlive.flows.calls import StepCall
from outlive.flows.decision import StepTask
from outlive.flows.effect_keys import BEGUN_MAX, EffectKeys, digest_of, told
from outlive.flows.events import (
    NULL,
    StepEnded,
    StepIntended,
    StepRetrying,
    StepSent,
)
from outlive.flows.failures import failure_of, marked, step_error, unknown_outcome
from outlive.flows.replaying import same_input, told_call
from outlive.flows.rewinding import Rewind
from outlive.flows.salvaging import Salvaged, callee_of
from outlive.model.job import NewJob
from outlive.names import JobId

if TYPE_CHECKING:
    from outlive.flows.run import FlowRun
    from outlive.flows.step import Step


# The number of a call has fewer digits than this: no flow makes so many.
_DIGITS_MAX = 18


class Calling:
    """The open steps of one run."""

    # The open calls that ends from a part that is void may belong to, by step and input: only there
    # while these are fed.
    alike: dict[tuple[str, bytes], deque[StepCall[Any]]] | None = None

    def __init__(self, run: FlowRun) -> None:
        self._run = run
        self._counts: dict[str, int] = {}
        self.steps: dict[str, StepCall[Any]] = {}
        # Local steps to be given out, and those that were and run now.
        self.fresh: dict[str, StepCall[Any]] = {}
        self.running: set[str] = set()
        self.jobs: dict[str, str] = {}
        # Ends that the history holds and the code has not asked for, and those of a part that a
        # retry made void.
        self.unasked: dict[str, StepEnded] = {}
        self._salvaged: Salvaged[StepEnded] | None = None
        self._keys: EffectKeys | None = None
        # Local steps that the code cancelled, with digests of their inputs: they may have begun,
        # and have no end. Not more of them than are told.
        self._cancelled: dict[str, str] | None = None

    def step(
        self, step: Step[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> StepCall[Any]:
        """Call a step."""
        given = step.arguments.encode(args, kwargs)
        name = step.name
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        identity = f"{name}#{count}"
        call: StepCall[Any] = StepCall(self._run, step, identity, given)
        asking = self._run.asking
        if asking.undoing:
            asking.undid = f"step/{identity}"
        if (self.unasked or self._keys is not None) and self._ended_before(call):
            return call
        self.steps[identity] = call
        options = step.options
        if options.queue is not None:
            self.send(call)
        elif options.once:
            self.intend(call)
        else:
            self.fresh[identity] = call
        return call

    def _ended_before(self, call: StepCall[Any]) -> bool:
        """Whether the history holds the end of a call that is made now."""
        if self.unasked:
            ended = self.unasked.pop(call.identity, None)
            if ended is not None:
                self.compare(call, ended.input)
                self._resolve(call, ended)
                return True
        if self._salvaged:
            ended = self._salvaged.take(
                call.identity,
                call.input,
                same=lambda it: self._is_for(call, it),
                loose=self._run.loose,
            )
            if ended is not None:
                # Under the identity that it had: that is what another retry goes by.
                self._resolve(call, ended)
                return True
        if self._keys is not None:
            call.key = self._keys.key_of(call.identity, call.input, self._run.rewinds)
        return False

    def asked(self, identity: str) -> bool:
        """Whether the code has made this call, whatever became of it."""
        name, _, number = identity.rpartition("#")
        # A document from elsewhere may say anything.
        known = number.isdecimal() and len(number) <= _DIGITS_MAX
        return known and int(number) < self._counts.get(name, 0)

    def rewound(self, rewind: Rewind) -> None:
        """A part is void; the ends in it are those of calls that the code makes from now on."""
        if self._salvaged is None or self._keys is None:
            self._salvaged, self._keys = Salvaged(), EffectKeys()
        self._keys.rewound(rewind.begun)
        for event in rewind.kept:
            if isinstance(event, StepEnded):
                self._salvaged.add(event.step, event.input, event)

    def begun(self) -> dict[str, str] | None:
        """The local steps that may have begun and have no end, as the end of the flow tells it."""
        if not self.steps and not self._cancelled:
            return None
        begun = dict(self._cancelled or {})
        for call in self.steps.values():
            if call.job is None and len(begun) <= BEGUN_MAX:
                begun[call.identity] = digest_of(call.input)
        return told(begun)

    def _is_for(self, call: StepCall[Any], given: msgspec.Raw) -> bool:
        """Whether an end of this identity, with this input, is the one of ``call``."""
        return bytes(given) == b"null" or self._run.same(given, call.input, call.step.arguments)

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
            call.step.arguments.decode_result(event.result)
        except InvalidPayload as invalid:
            # One that was recorded ahead is compared with the code, and fails nothing.
            return self._misfit(call, event, invalid, told=not event.ahead)
        return event

    def salvage(self, event: StepEnded) -> StepEnded | None:
        """Feed the end of a step from a part that is void to a call that is open.

        ``None`` if there is none: it waits for the call, or was given to one already.
        """
        if self._salvaged is None or not self._salvaged.holds(event.step, event):
            return None
        call = self._call_for(event)
        if call is None:
            return None
        found = self._salvaged.take(
            event.step, event.input, same=lambda _: True, fits=lambda value: value is event
        )
        assert found is event
        self._close(call)
        self.strike(call.identity)
        return self._resolve(call, event)

    def _call_for(self, event: StepEnded) -> StepCall[Any] | None:
        """The open call that an end from a part that is void is given to."""
        named = self.steps.get(event.step)
        if named is not None and self._is_for(named, event.input):
            return named
        return self._first_alike(event) or (named if self._run.loose else None)

    def _first_alike(self, event: StepEnded) -> StepCall[Any] | None:
        """The first open call of the same step with the same input."""
        if self.alike is None:
            self.alike = {}
            # Those that are called later take what is theirs in that moment.
            for call in self.steps.values():
                key = (call.step.name, bytes(call.input))
                self.alike.setdefault(key, deque()).append(call)
        calls = self.alike.get((callee_of(event.step), bytes(event.input)), deque())
        while calls and self.steps.get(calls[0].identity) is not calls[0]:
            calls.popleft()
        return calls[0] if calls else None

    def strike(self, identity: str) -> None:
        """A step that is to be begun, in a queue or with ``once``, has ended before that."""
        decided = self._run.out.begun(identity)
        if decided is not None:
            self._run.out.strike(decided[0])

    def begin_again(self, call: StepCall[Any]) -> None:
        """Run a step from its first attempt on, whatever became of it before."""
        call.called_at_us = self._run.at_us
        call.attempt = 1
        self._run.timers.retried(call.identity)
        call.intended = False
        if call.job is not None:
            self.jobs.pop(call.job, None)
            call.job = None
        if call.step.options.queue is not None:
            self.send(call)
        elif call.step.options.once:
            self.intend(call)
        else:
            self.fresh[call.identity] = call

    def step_not_ended(self, event: StepRetrying) -> StepRetrying | None:
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
        else:
            self._note_cancelled(call)
        self._close(call)

    def _note_cancelled(self, call: StepCall[Any]) -> None:
        if self._cancelled is None:
            self._cancelled = {}
        if len(self._cancelled) <= BEGUN_MAX:
            self._cancelled[call.identity] = digest_of(call.input)

    def _close(self, call: StepCall[Any]) -> None:
        identity = call.identity
        del self.steps[identity]
        self.running.discard(identity)
        if self.fresh:
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
                value = call.step.arguments.decode_result(event.result)
            except InvalidPayload as invalid:
                if self._run.replaying:
                    self._run.differs(
                        f"a result of step {event.step} that fits its type", str(invalid)
                    )
                event = self._misfit(call, event, invalid, told=not self._run.replaying)
                error = event.error
                assert error is not None
            else:
                call.set_result(value)
                return event
        failed = step_error(
            event.step, error, attempt=event.attempt, errors=call.step.options.errors
        )
        call.set_exception(marked(failed, f"step/{event.step}"))
        return event

    def _misfit(
        self, call: StepCall[Any], event: StepEnded, invalid: InvalidPayload, *, told: bool
    ) -> StepEnded:
        """The end of a step whose result does not fit its type: a failure."""
        run, name = self._run, call.step.name
        failure = failure_of(InvalidPayload(f"the result of step {name}: {invalid}"))
        if told:
            run.log.warning(
                "step %s of flow %s failed permanently at attempt %d: %s",
                *(event.step, run.id, event.attempt, f"{failure.type}: {failure.message}"),
                extra={"flow": run.id, "step": event.step, "attempt": event.attempt},
            )
        return msgspec.structs.replace(event, result=NULL, error=failure)

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
            key=call.key,
        )

    def unknown(self, at_us: int) -> list[StepEnded]:
        """What to feed after a take-over: an end for each step with ``once`` that nobody knows of.

        One that was intended and does not run here may have run where the flow was before.
        """
        steps = [
            call.identity
            for call in self.steps.values()
            if call.intended and call.identity not in self.running
        ]
        return [StepEnded(at=at_us, step=step, error=unknown_outcome(step)) for step in steps]

    def end(self) -> None:
        """The run ends: stop what runs."""
        if not self.steps:
            return
        out = self._run.out
        out.stopped.extend(sorted(self.running))
        out.stopped_jobs.extend(JobId(job) for job in self.jobs)
        for book in (self.steps, self.fresh, self.jobs):
            book.clear()
        self.running.clear()
