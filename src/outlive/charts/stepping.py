"""The macrostep: one event, and everything that follows from it until the machine is at rest.

Pure: ``(snapshot, event) -> (snapshot, effects)``. No clock, no task, no I/O. A step that raises
has changed nothing, and none of its effects exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from outlive.charts.configuration import Configuration, Tables
from outlive.charts.effects import Effect, Effects, Finish, StartChild, StopChild, Unhandled
from outlive.charts.events import DONE_ACTOR, ERROR_ACTOR, INIT, Event
from outlive.charts.frame import Frame
from outlive.charts.microsteps import Histories, Microstep, compute
from outlive.charts.nodes import Node, Transition
from outlive.charts.selection import Plan, eventless_of, plan_of
from outlive.charts.snapshot import EMPTY_CONTEXT, Rest, Snapshot, Status, settle
from outlive.errors import ChartError, MicrostepLimit

# A chart that raises events or takes eventless transitions without end would never come to rest.
# No chart written by people takes a thousand; ten times that still ends within a blink.
MICROSTEPS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Taken:
    """One microstep, for those who want to know: the event and the transitions it took."""

    event: Event
    transitions: tuple[Transition, ...]
    configuration: Configuration


Trace = list[Taken]

_NO_HISTORY: Mapping[str, tuple[int, ...]] = {}


def begin(
    tables: Tables, context: Any, given: Any, limit: int, trace: Trace | None = None
) -> tuple[Snapshot, Effects]:
    """Enter the initial states of a machine whose input was ``given``."""
    before = tables.configuration((0,))
    frame = Frame(tables.chart_id, before, context, Event(INIT, {"input": given}))
    start = Transition(tables.root, INIT, "", -1)
    start.targets = tuple(_initial_nodes(tables.root))
    start.reenter = True
    _run(frame, compute(before, (start,), Histories({}, tables), initial=True))
    if trace is not None:
        trace.append(Taken(frame.event, (), frame.configuration))
    _rest(frame, limit, trace)
    return _result(frame)


def _initial_nodes(node: Node) -> list[Node]:
    found = [node]
    if node.kind == "compound":
        assert node.initial is not None
        found += _initial_nodes(node.initial)
    elif node.kind == "parallel":
        for child in node.children:
            found += _initial_nodes(child)
    return found


def advance(
    snapshot: Snapshot, event: Event, plan: Plan, limit: int, trace: Trace | None = None
) -> tuple[Snapshot, Effects]:
    """Handle ``event``, and everything that it raises, until nothing is left to do."""
    configuration = snapshot.configuration
    rest = snapshot.rest
    chosen = plan.choose(snapshot.context, event)
    microstep = plan.step(chosen, _NO_HISTORY if rest is None else rest.history) if chosen else None
    if trace is None and (rest is None or not event.type.startswith("xstate.")):
        # Without operations there is nothing to keep a frame for.
        if microstep is None:
            if eventless_of(configuration).ignored:
                return snapshot, _unhandled(event)
        elif microstep.quiet and eventless_of(microstep.target).ignored:
            return settle(microstep.target, snapshot.context, "active", rest), ()
    frame = Frame(configuration.tables.chart_id, configuration, snapshot.context, event)
    if rest is not None:
        frame.children, frame.history = rest.children, rest.history
        _end_child(frame)
    if microstep is not None:
        _run(frame, microstep)
    elif event.type.startswith(ERROR_ACTOR):
        return fail(snapshot, event.get("error"))
    if trace is not None:
        trace.append(Taken(event, chosen, frame.configuration))
    took_more = _rest(frame, limit, trace)
    if not chosen and not took_more:
        frame.effects += _unhandled(event)
    return _result(frame)


def _unhandled(event: Event) -> tuple[Effect, ...]:
    # Nobody has to listen to the engine's own news.
    return () if event.type.startswith("xstate.") else (Unhandled(event),)


def _run(frame: Frame, microstep: Microstep) -> None:
    for operation in microstep.operations:
        operation.run(frame)
    if microstep.moved:
        frame.changed = True
        frame.configuration = microstep.target
        if microstep.records:
            frame.history = {**frame.history, **dict(microstep.records)}


def _rest(frame: Frame, limit: int, trace: Trace | None) -> bool:
    """Take eventless transitions and raised events until there are none; true if any was taken."""
    seek = True
    taken = False
    for _ in range(limit):
        if frame.status != "active":
            return taken
        plan = eventless_of(frame.configuration)
        chosen = plan.choose(frame.context, frame.event) if seek else ()
        eventless = bool(chosen)
        if not chosen:
            if not frame.queue:
                return taken
            frame.event = frame.queue.popleft()
            plan = plan_of(frame.configuration, frame.event.type)
            chosen = plan.choose(frame.context, frame.event)
        frame.changed = False
        if chosen:
            taken = True
            _run(frame, plan.step(chosen, frame.history))
        # An eventless transition that changed nothing would be taken again for ever.
        seek = frame.changed or not eventless
        if trace is not None:
            trace.append(Taken(frame.event, chosen, frame.configuration))
    raise MicrostepLimit(frame.chart_id, limit)


def _end_child(frame: Frame) -> None:
    kind = frame.event.type
    for prefix in (DONE_ACTOR, ERROR_ACTOR):
        if kind.startswith(prefix + "."):
            name = kind[len(prefix) + 1 :]
            child = frame.children.get(name)
            if child is not None and not child.done:
                ended = type(child)(
                    child.src, child.input, child.system_id, child.watched, done=True
                )
                frame.children = {**frame.children, name: ended}


def _result(frame: Frame) -> tuple[Snapshot, Effects]:
    effects = frame.effects
    if frame.status == "done":
        effects += _stopping(frame)
        effects.append(Finish("done", frame.output))
    rest = None
    if frame.children or frame.history or frame.status == "done":
        rest = Rest(frame.children, frame.history, frame.output)
    status: Status = "done" if frame.status == "done" else "active"
    return settle(frame.configuration, frame.context, status, rest), effects


def _stopping(frame: Frame) -> list[Effect]:
    unstarted = {each.id for each in frame.effects if isinstance(each, StartChild)}
    frame.effects[:] = [each for each in frame.effects if not isinstance(each, StartChild)]
    running = [name for name, child in frame.children.items() if not child.done]
    return [StopChild(name) for name in running if name not in unstarted]


def end(
    snapshot: Snapshot, status: Status, error: BaseException | None = None
) -> tuple[Snapshot, list[Effect]]:
    """The snapshot of a machine that was stopped or has failed, and the end of its children."""
    rest = Rest(snapshot.children, snapshot.history, snapshot.output, error)
    running = [name for name, child in snapshot.children.items() if not child.done]
    ended = Snapshot(snapshot.configuration, snapshot.context, status, rest)
    return ended, [StopChild(name) for name in running]


def fail(snapshot: Snapshot, error: Any) -> tuple[Snapshot, Effects]:
    """The snapshot of a machine that failed: where it stood, with the error."""
    cause = error if isinstance(error, BaseException) else RuntimeError(str(error))
    ended, effects = end(snapshot, "error", cause)
    return ended, [*effects, Finish("error", None, cause)]


def context_of(document: Any, given: Any) -> Any:
    """The context a machine begins with: the document's, or what its function makes of the input.

    Containers are copied, so that no machine shares a list with another.
    """
    if document is None:
        return EMPTY_CONTEXT
    if callable(document):
        made = document(given)
        if made is not None and not isinstance(made, Mapping):
            raise ChartError(f"the context function must return a mapping, not {made!r}")
        return EMPTY_CONTEXT if made is None else cast("Any", made)
    return _copied(document) or EMPTY_CONTEXT


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_copied(item) for item in cast("list[Any]", value)]
    return value
