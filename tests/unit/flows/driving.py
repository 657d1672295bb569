"""A host made of a list: drives runs of flows without a store, a clock or a task."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from outlive.flows.decision import Decision, RetryDue, StepTask
from outlive.flows.events import StepEnded, decode_events, encode_events
from outlive.flows.failures import failure_of
from outlive.flows.flow import Flow
from outlive.flows.run import FlowRun
from outlive.model.instance import HistoryRow, InstanceStatus, Letter
from outlive.names import InstanceId, Token
from outlive.serialization.payloads import encode

BEGAN_US = 1_700_000_000_000_000
SECOND = 1_000_000


@dataclass
class Driven:
    """One flow: its history, its run in memory, and what it wants done."""

    flow: Flow[..., Any]
    args: tuple[Any, ...] = ()
    id: str = "f"
    base: int = 0
    parent: str | None = None
    input: str | None = None
    now_us: int = BEGAN_US
    began_us: int = BEGAN_US
    rows: list[HistoryRow] = field(default_factory=list)
    steps: dict[str, StepTask] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    custom: str | None = None
    attributes: str = "{}"
    letters: int = 0

    def __post_init__(self) -> None:
        if self.input is None:
            self.input = bytes(self.flow.arguments.encode(self.args, {})).decode()
        self.run = self.fresh()
        self.run.begin(self.rows)
        self.commit()

    def fresh(self) -> FlowRun:
        return FlowRun(
            self.flow,
            id=InstanceId(self.id),
            base=self.base,
            input=self.input or "{}",
            began_at_us=self.began_us,
            custom=self.custom,
            attributes=self.attributes,
            parent=None if self.parent is None else InstanceId(self.parent),
            on_error=self.errors.append,
        )

    # -- the host's part --------------------------------------------------------------------------

    def commit(self) -> Decision:
        """Take what was decided, write it down, and start what is to be started."""
        decision = self.run.take()
        self.decisions.append(decision)
        if decision.durable:
            self.write(*decision.events)
        else:
            assert decision.events == ()
        if decision.custom is not None:
            self.custom = decision.custom
        if decision.attributes is not None:
            self.attributes = decision.attributes
        for step in decision.stopped:
            self.stopped.append(step)
            self.steps.pop(step, None)
        self.steps.update({task.identity: task for task in decision.steps})
        return decision

    def write(self, *events: Any) -> None:
        version = self.rows[-1].version + 1 if self.rows else self.base + 1
        text = encode_events(events)
        self.rows.append(HistoryRow(version, Token(1), "w", self.now_us, text))

    def crash(self) -> FlowRun:
        """Forget what is in memory, and go on from the history."""
        self.run.close()
        self.steps.clear()
        self.run = self.fresh()
        self.run.begin(self.rows)
        self.run.settle_unknown(self.now_us)
        self.commit()
        return self.run

    # -- what happens -----------------------------------------------------------------------------

    def feed(self, event: Any) -> Decision:
        self.now_us = max(self.now_us, event.at)
        self.run.feed(event)
        return self.commit()

    def end(self, step: str, result: object = None) -> Decision:
        """A step gave a result, or raised."""
        self.now_us += 10
        self.steps.pop(step, None)
        if isinstance(result, Exception):
            call = self.run.calling.steps.get(step)
            errors = () if call is None else call.step.options.errors
            failure = failure_of(result, errors=errors)
            return self.feed(StepEnded(at=self.now_us, step=step, error=failure))
        raw = msgspec.Raw(encode(result, "the result"))
        return self.feed(StepEnded(at=self.now_us, step=step, result=raw))

    def letter(self, kind: str, name: str, payload: object = None, of: str = "") -> Decision:
        """A letter came, with the id ``of`` or a new one, and was read."""
        self.letters += 1
        text = encode(payload, "the payload")
        letter = Letter(self.letters, of or f"m{self.letters}", kind, name, text, self.now_us)
        self.now_us += 10
        event = self.run.read(letter, self.now_us)
        return Decision() if event is None else self.feed(event)

    def signal(self, name: str, payload: object = None) -> Decision:
        return self.letter("signal", name, payload)

    def cancel(self, reason: str = "enough") -> Decision:
        return self.letter("cancel", "", {"reason": reason})

    def elapse(self, seconds: float) -> list[Decision]:
        """Time passes, and what comes due is fed."""
        until_us = self.now_us + round(seconds * SECOND)
        made: list[Decision] = []
        while (due_us := self.run.due_at_us) is not None and due_us <= until_us:
            self.now_us = max(self.now_us, due_us)
            for event in self.run.due(self.now_us):
                if self.run.ended:
                    break
                if isinstance(event, RetryDue):
                    self.run.feed(event)
                    made.append(self.commit())
                else:
                    made.append(self.feed(event))
        self.now_us = until_us
        return made

    def work(self, limit: int = 10_000) -> Any:
        """Run every step with its own function until the flow waits for something else."""
        while self.steps and limit:
            limit -= 1
            name, task = next(iter(self.steps.items()))
            args, kwargs = task.arguments()
            try:
                result = task.step.function(*args, **kwargs)
                if task.step.is_async:
                    result = finished(result)
            except Exception as error:
                result = error
            self.end(name, result)
        return self

    # -- what came of it --------------------------------------------------------------------------

    @property
    def status(self) -> InstanceStatus | None:
        return self.decisions[-1].ended

    @property
    def outcome(self) -> Any:
        text = self.decisions[-1].outcome
        return None if text is None else msgspec.json.decode(text)

    def history(self) -> list[Any]:
        return [event for row in self.rows for event in decode_events(row.events)]

    def told(self) -> list[str]:
        """The history in short."""
        return [type(event).__name__ for event in self.history()]


def finished(coroutine: Any) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("a step of a test waits for something")
