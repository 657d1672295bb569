"""A machine as JSON and back: snapshot, timers, children, deferred events.

Owns the stored form. Readers accept what older releases wrote (``format``). Never evaluates what it
reads: names in it refer to the chart's states and services only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from holdfast.charts.configuration import Configuration
from holdfast.charts.effects import Scope, StartChild, StartTimer
from holdfast.charts.events import Event, as_event
from holdfast.charts.frame import Child
from holdfast.charts.nodes import Node
from holdfast.charts.snapshot import EMPTY_CONTEXT, Rest, Snapshot, settle
from holdfast.errors import ChartError, UsageError

if TYPE_CHECKING:
    from holdfast.charts.chart import Chart
    from holdfast.charts.interpreter import Interpreter

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
    for name, names in _mapping(data, "history").items():
        if name in by_id and all(each in by_id for each in names):
            history[name] = tuple(by_id[each].order for each in names)
        else:
            raise UsageError(f"chart {chart.id!r} has no history {name!r} of {names!r}")
    children = {
        name: Child(
            child["src"],
            child.get("input"),
            child.get("systemId"),
            bool(child.get("watched")),
            bool(child.get("done")),
        )
        for name, child in _mapping(data, "children").items()
    }
    error = data.get("error")
    cause = None if error is None else ChartError(str(error.get("message", error)))
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
        wanted: dict[str, Any] = {inside: {}} if isinstance(inside, str) else dict(inside or {})
        strange = [key for key in wanted if key not in node.states]
        if strange or (node.kind == "compound" and len(wanted) > 1):
            raise UsageError(f"state {node.id!r} of chart {chart.id!r} has no place {inside!r}")
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
        raise UsageError(f"{key!r} of a snapshot is an object, not {found!r}")
    return dict(cast("Mapping[str, Any]", found))


def to_json(actor: Interpreter, deferred: list[Event]) -> dict[str, Any]:
    """The JSON form of a machine at rest, with its timers and children."""
    from holdfast.charts.interpreter import Interpreter

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
    if data.get("format", FORMAT) != FORMAT:
        raise UsageError(f"this release reads machines of format {FORMAT}, not {data['format']!r}")
    if data.get("chart", chart.id) != chart.id:
        raise UsageError(f"the machine is of chart {data['chart']!r}, not of {chart.id!r}")
    snapshot = snapshot_from_json(chart, data)
    timers = tuple(
        SavedTimer(
            StartTimer(
                timer["id"],
                as_event(timer["event"]),
                timer["delay"],
                timer.get("target"),
                cast("Scope", timer.get("scope", "self")),
            ),
            timer["dueAt"],
            timer["remaining"],
        )
        for timer in data.get("timers", ())
    )
    children: dict[str, Saved] = {}
    for name, saved in _mapping(data, "machines").items():
        record = snapshot.children.get(name)
        service = None if record is None else chart.services.get(record.src)
        if service is not None and isinstance(service, type(chart)):
            children[name] = from_json(service, saved, policy)
    deferred = tuple(as_event(event) for event in data.get("deferred", ()))
    return Saved(snapshot, timers, children, deferred, policy)


def resume(actor: Interpreter, saved: Saved) -> None:
    """Set the timers and children of a restored machine going; one that has ended has none."""
    from holdfast.charts.effecting import start_child, start_timer

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
