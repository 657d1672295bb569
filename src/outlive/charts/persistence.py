"""A machine as JSON and back: snapshot, timers, children, deferred events.

Owns the stored form; a form that it does not know (``format``) is refused. Never evaluates what it
reads: names in it refer to the chart's states and services only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from outlive.charts.configuration import Configuration
from outlive.charts.effects import Scope, StartChild, StartTimer
from outlive.charts.events import Event, as_event
from outlive.charts.frame import Child
from outlive.charts.nodes import Node
from outlive.charts.snapshot import EMPTY_CONTEXT, Rest, Snapshot, settle
from outlive.errors import ChartError, UsageError

if TYPE_CHECKING:
    from outlive.charts.chart import Chart
    from outlive.charts.interpreter import Interpreter

TimerPolicy = Literal["absolute", "remaining", "restart"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class SavedTimer:
    """A delayed event that had not come yet."""

    effect: StartTimer
    due_at: float
    remaining_ms: float


@dataclass(frozen=True, slots=True)
class Saved:
    """A machine as it was kept, resolved against its chart."""

    snapshot: Snapshot
    timers: tuple[SavedTimer, ...]
    children: Mapping[str, Saved]
    deferred: tuple[Event, ...]
    policy: TimerPolicy


def snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    """The JSON form of a snapshot alone."""
    nodes = snapshot.configuration.tables.nodes
    error = snapshot.error
    return {
        "status": snapshot.status,
        "value": snapshot.value,
        "context": dict(snapshot.context),
        "history": {
            name: [nodes[order].id for order in orders] for name, orders in snapshot.history.items()
        },
        "children": {
            name: {
                "src": child.src,
                "input": child.input,
                "systemId": child.system_id,
                "watched": child.watched,
                "done": child.done,
            }
            for name, child in snapshot.children.items()
        },
        "output": snapshot.output,
        "error": None if error is None else {"type": type(error).__name__, "message": str(error)},
    }


def snapshot_from_json(chart: Chart, data: Mapping[str, Any]) -> Snapshot:
    """The snapshot that ``snapshot_to_json`` described.

    Raises:
        UsageError: It names states that the chart does not have, or is no snapshot.
    """
    status = data.get("status")
    if status not in ("active", "done", "error", "stopped"):
        raise UsageError(f"a snapshot cannot have the status {status!r}")
    by_id = {node.id: node for node in chart.nodes}
    history: dict[str, tuple[int, ...]] = {}
    for name in (given := _mapping(data, "history")):
        kept = [by_id.get(_text(each, "a state")) for each in _list(given, name)]
        known = by_id.get(name)
        if known is None or not all(_remembers(known, node) for node in kept):
            raise UsageError(
                f"chart {chart.id!r} cannot restore history {name!r} as {given[name]!r}"
            )
        history[name] = tuple(node.order for node in kept if node is not None)
    children = {name: _child(each) for name, each in _mapping(data, "children").items()}
    error = data.get("error")
    if isinstance(error, Mapping):
        error = cast("Mapping[str, Any]", error).get("message", error)
    cause = None if error is None else ChartError(str(error))
    rest = None
    if children or history or status != "active":
        rest = Rest(children, history, data.get("output"), cause)
    configuration = configuration_of(chart, data.get("value", {}))
    context = _mapping(data, "context") or EMPTY_CONTEXT
    return settle(configuration, context, status, rest)


def configuration_of(chart: Chart, value: Any) -> Configuration:
    """The configuration of a state value; what it leaves out is at its initial state.

    Raises:
        UsageError: The chart has no such state.
    """
    orders: list[int] = []

    def enter(node: Node, inside: Any) -> None:
        orders.append(node.order)
        wanted: dict[str, Any] = {}
        if isinstance(inside, str):
            wanted = {inside: {}}
        elif isinstance(inside, Mapping):
            wanted = dict(cast("Mapping[str, Any]", inside))
        elif inside is not None:
            raise UsageError(
                f"state {node.id!r} of chart {chart.id!r} has no child state {inside!r}"
            )
        strange = wanted.keys() - {child.key for child in node.children}
        if strange or (node.kind == "compound" and len(wanted) > 1):
            raise UsageError(
                f"state {node.id!r} of chart {chart.id!r} has no child state {inside!r}"
            )
        if node.kind == "compound" and not wanted:
            assert node.initial is not None
            wanted = {node.initial.key: {}}
        for child in node.children:
            if child.key in wanted or node.kind == "parallel":
                enter(child, wanted.get(child.key, {}))

    enter(chart.nodes[0], value)
    return chart.tables.configuration(tuple(orders))


def _mapping(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    found: object = data.get(key)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise UsageError(f"{key!r} of a snapshot must be an object, not {found!r}")
    return dict(cast("Mapping[str, Any]", found))


def _list(data: Mapping[str, Any], key: str) -> list[Any]:
    found: object = data.get(key)
    if found is None:
        return []
    if not isinstance(found, (list, tuple)):
        raise UsageError(f"{key!r} of a snapshot must be a list, not {found!r}")
    return list(cast("list[Any]", found))


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} of a snapshot must be text, not {value!r}")
    return value


def _number(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
        raise UsageError(f"{what} of a snapshot must be a number, not {value!r}")
    return value


def _remembers(history: Node, node: Node | None) -> bool:
    parent = history.parent
    return (
        history.kind == "history"
        and node is not None
        and node is not parent
        and node.within(parent)
    )


def _child(given: object) -> Child:
    child = _mapping({"a child": given}, "a child")
    system_id = child.get("systemId")
    return Child(
        _text(child.get("src"), "the 'src' of a child"),
        child.get("input"),
        None if system_id is None else _text(system_id, "the 'systemId' of a child"),
        bool(child.get("watched")),
        bool(child.get("done")),
    )


def _timer(given: object) -> SavedTimer:
    timer = _mapping({"a timer": given}, "a timer")
    name, target = timer.get("id"), timer.get("target")
    scope = timer.get("scope", "self")
    if scope not in get_args(Scope):
        raise UsageError(f"the 'scope' of a timer cannot be {scope!r}")
    effect = StartTimer(
        # A program may number its timers.
        cast("Any", name) if isinstance(name, int) else _text(name, "the 'id' of a timer"),
        as_event(timer.get("event") or ""),
        _number(timer.get("delay"), "the 'delay' of a timer"),
        None if target is None else _text(target, "the 'target' of a timer"),
        scope,
    )
    due_at = _number(timer.get("dueAt"), "the 'dueAt' of a timer")
    return SavedTimer(effect, due_at, _number(timer.get("remaining"), "the rest of a timer"))


def to_json(actor: Interpreter, deferred: list[Event]) -> dict[str, Any]:
    """The JSON form of a machine at rest, with its timers and children."""
    from outlive.charts.interpreter import Interpreter

    now = actor.environment.timers.now()
    timers = [
        {
            "id": timer.id,
            "event": timer.event.to_json(),
            "delay": timer.delay_ms,
            "dueAt": timer.due_at,
            "remaining": max(0.0, (timer.due_at - now) * 1000),
            "target": timer.target,
            "scope": timer.scope,
        }
        for timer in (actor.timers or {}).values()
    ]
    children = {
        name: child.persist()
        for name, child in (actor.children or {}).items()
        if isinstance(child, Interpreter)
    }
    return {
        "format": FORMAT,
        "id": actor.id,
        "chart": actor.chart.id,
        "version": actor.chart.version,
        **snapshot_to_json(actor.snapshot),
        "timers": timers,
        "machines": children,
        "deferred": [event.to_json() for event in deferred],
    }


def from_json(chart: Chart, data: Mapping[str, Any], policy: TimerPolicy) -> Saved:
    """What ``to_json`` wrote, resolved against ``chart``.

    Raises:
        UsageError: It is of a newer format, of another chart, or does not fit the chart.
    """
    if not isinstance(cast("object", data), Mapping):
        raise UsageError(f"a persisted machine must be an object, not {data!r}")
    if policy not in get_args(TimerPolicy):
        raise UsageError(f"timers must be absolute, remaining or restart, not {policy!r}")
    if data.get("format", FORMAT) != FORMAT:
        raise UsageError(f"this release reads machines of format {FORMAT}, not {data['format']!r}")
    if data.get("chart", chart.id) != chart.id:
        raise UsageError(f"the machine is of chart {data['chart']!r}, not of {chart.id!r}")
    snapshot = snapshot_from_json(chart, data)
    timers = tuple(_timer(each) for each in _list(data, "timers"))
    children: dict[str, Saved] = {}
    for name, saved in _mapping(data, "machines").items():
        record = snapshot.children.get(name)
        service = None if record is None else chart.services.get(record.src)
        if service is not None and isinstance(service, type(chart)):
            children[name] = from_json(service, saved, policy)
    deferred = tuple(as_event(event) for event in _list(data, "deferred"))
    return Saved(snapshot, timers, children, deferred, policy)


def resume(actor: Interpreter, saved: Saved) -> None:
    """Set the timers and children of a restored machine going; one that has ended has none."""
    from outlive.charts.effecting import start_child, start_timer

    for timer in saved.timers:
        effect = timer.effect
        match saved.policy:
            case "absolute":
                start_timer(actor, effect, due_at=timer.due_at)
            case "remaining":
                due_at = actor.environment.timers.now() + timer.remaining_ms / 1000
                start_timer(actor, effect, due_at=due_at)
            case "restart":
                start_timer(actor, effect)
    for name, child in saved.snapshot.children.items():
        if not child.done:
            effect = StartChild(name, child.src, child.input, child.system_id, child.watched)
            start_child(actor, effect, saved.children.get(name))
