"""The steps that a macrostep is made of: compiled actions, run one after another on a frame.

Pure: an operation reads and changes its frame and nothing else. Whatever must act on the world
becomes an effect in the frame. If one raises, the frame is dropped and the snapshot stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from outlive.charts.effects import (
    Emit,
    Log,
    RunAction,
    Scope,
    Send,
    StartChild,
    StartTimer,
    StopChild,
    StopTimer,
)
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.frame import Child, Frame
from outlive.charts.guards import Guard
from outlive.errors import ChartError, UnknownTarget

if TYPE_CHECKING:
    from outlive.charts.binding import Binder

PureFunction = Callable[[Any, Event, Any], Any]


class Operation(Protocol):
    """One thing that happens inside a step."""

    def run(self, frame: Frame) -> None:
        """Do it to ``frame``."""
        ...


class Value:
    """Something constant, or computed from context, event and the action's parameters."""

    __slots__ = ("constant", "function", "params")

    def __init__(
        self, constant: Any, function: PureFunction | None = None, params: Value | None = None
    ) -> None:
        self.constant = constant
        self.function = function
        self.params = params

    def of(self, frame: Frame) -> Any:
        """What it is now."""
        function = self.function
        if function is None:
            return self.constant
        params = self.params
        return function(frame.context, frame.event, None if params is None else params.of(frame))


@dataclass(slots=True)
class Run:
    """An action of the user: an effect, with the context as it is at this point."""

    name: str
    function: Callable[[Any, Event, Any, Any], Any] | None
    awaitable: bool
    params: Value | None

    def run(self, frame: Frame) -> None:
        """Note it down, to be run after the step."""
        params = None if self.params is None else self.params.of(frame)
        frame.effects.append(
            RunAction(self.name, self.function, self.awaitable, frame.context, frame.event, params)
        )


@dataclass(slots=True)
class AssignParts:
    """New values for some keys of the context; all of them see the context from before."""

    constants: dict[str, Any]
    computed: tuple[tuple[str, Value], ...]

    def run(self, frame: Frame) -> None:
        """Make a new context."""
        update = {key: value.of(frame) for key, value in self.computed}
        frame.context = {**frame.context, **self.constants, **update}
        frame.changed = True


@dataclass(slots=True)
class AssignAll:
    """The keys that a function returns."""

    value: Value

    def run(self, frame: Frame) -> None:
        """Make a new context."""
        update = self.value.of(frame)
        if update is not None and not hasattr(update, "keys"):
            raise ChartError(f"an assign must return a mapping of changes, not {update!r}")
        frame.context = {**frame.context, **(update or {})}
        frame.changed = True


@dataclass(slots=True)
class RaiseEvent:
    """An event for the machine itself, inside this macrostep or by a timer."""

    event: Value
    delay: Value | None
    id: Value | None

    def run(self, frame: Frame) -> None:
        """Queue it, or start the timer."""
        event = as_event(cast("EventLike", self.event.of(frame)), "a raised event")
        if self.delay is None:
            frame.queue.append(event)
            return
        name = None if self.id is None else self.id.of(frame)
        frame.effects.append(StartTimer(name, event, self.delay.of(frame)))


@dataclass(slots=True)
class SendEvent:
    """An event for another machine."""

    target: Value
    event: Value
    delay: Value | None
    id: Value | None
    scope: Scope

    def run(self, frame: Frame) -> None:
        """Check that the child exists, and note the delivery down."""
        event = as_event(cast("EventLike", self.event.of(frame)), "a sent event")
        target = self.target.of(frame)
        if self.scope == "child" and target not in frame.children:
            if target not in frame.expected:
                raise UnknownTarget(str(target), f"{frame.chart_id!r} has no such child")
            if self.delay is None:
                frame.held.append(Send(target, event, self.scope))
                return
        if self.delay is None:
            frame.effects.append(Send(target, event, self.scope))
            return
        name = None if self.id is None else self.id.of(frame)
        delay_ms = self.delay.of(frame)
        frame.effects.append(StartTimer(name, event, delay_ms, target, self.scope))


@dataclass(slots=True)
class CancelTimer:
    """A delayed event that is not wanted any more."""

    id: Value

    def run(self, frame: Frame) -> None:
        """Note it down."""
        frame.effects.append(StopTimer(self.id.of(frame)))


@dataclass(slots=True)
class Tell:
    """An event for listeners outside."""

    event: Value

    def run(self, frame: Frame) -> None:
        """Note it down."""
        frame.effects.append(Emit(as_event(cast("EventLike", self.event.of(frame)))))


@dataclass(slots=True)
class Write:
    """A line for the log."""

    value: Value
    label: str | None

    def run(self, frame: Frame) -> None:
        """Note it down."""
        frame.effects.append(Log(self.value.of(frame), self.label))


@dataclass(slots=True)
class Start:
    """A child: invoked by a state, or spawned."""

    src: str
    id: Value | None
    system_id: str | None
    input: Value
    watched: bool

    def run(self, frame: Frame) -> None:
        """Give it a name that is free, enter it in the books, note the start down."""
        name = frame.free_name(self.src) if self.id is None else str(self.id.of(frame))
        given = self.input.of(frame)
        child = Child(self.src, given, self.system_id, self.watched)
        frame.children = {**frame.children, name: child}
        frame.effects.append(StartChild(name, self.src, given, self.system_id, self.watched))
        frame.changed = True
        if frame.held:
            frame.effects.extend(send for send in frame.held if send.target == name)
            frame.held = [send for send in frame.held if send.target != name]


@dataclass(slots=True)
class Stop:
    """The end of a child."""

    id: Value

    def run(self, frame: Frame) -> None:
        """Strike it from the books; one that was to be started in this very step never is."""
        name = self.id.of(frame)
        frame.changed = True
        if name not in frame.children:
            return
        frame.children = {key: child for key, child in frame.children.items() if key != name}
        if any(isinstance(each, StartChild) and each.id == name for each in frame.effects):
            frame.effects[:] = [
                each
                for each in frame.effects
                if not (isinstance(each, StartChild) and each.id == name)
                and not (isinstance(each, Send) and each.scope == "child" and each.target == name)
            ]
        else:
            frame.effects.append(StopChild(name))


@dataclass(slots=True)
class Expect:
    """The children that the state being entered is about to invoke: its entry may send to them."""

    children: frozenset[str]

    def run(self, frame: Frame) -> None:
        """Remember them."""
        frame.expected = self.children


@dataclass(slots=True)
class Branch:
    """The operations of the first guard that holds."""

    branches: tuple[tuple[Guard | None, tuple[Operation, ...]], ...]

    def run(self, frame: Frame) -> None:
        """Ask the guards in turn."""
        for guard, operations in self.branches:
            if guard is None or frame.holds(guard):
                for operation in operations:
                    operation.run(frame)
                return


@dataclass(slots=True)
class Decide:
    """A function of the user that enqueues what is to happen."""

    name: str
    function: Callable[..., Any]
    params: Value | None
    binder: Binder

    def run(self, frame: Frame) -> None:
        """Let it decide with the context of now, then do what it enqueued, in order."""
        enqueued: list[Any] = []
        params = None if self.params is None else self.params.of(frame)

        def check(guard: Any) -> bool:
            return frame.holds(self.binder.guard(guard, f"action {self.name!r}"))

        self.function(frame.context, frame.event, params, None, enqueued.append, check)
        for operation in self.binder.actions(enqueued, f"action {self.name!r}"):
            operation.run(frame)


@dataclass(slots=True)
class RaiseDone:
    """A state has reached its final state."""

    type: str
    output: Value | None

    def run(self, frame: Frame) -> None:
        """Queue the news, with the output if there is one."""
        output = None if self.output is None else self.output.of(frame)
        frame.queue.append(Event(self.type, {"output": output}))


@dataclass(slots=True)
class Complete:
    """The whole machine has reached its final state."""

    output: Value | None
    done_type: str
    done_output: Value | None

    def run(self, frame: Frame) -> None:
        """Mark the frame, and compute the output from the event that says what was reached."""
        frame.status = "done"
        if self.output is None:
            return
        reached = None if self.done_output is None else self.done_output.of(frame)
        before, frame.event = frame.event, Event(self.done_type, {"output": reached})
        frame.output = self.output.of(frame)
        frame.event = before
