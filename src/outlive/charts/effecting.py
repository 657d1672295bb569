"""How a machine in memory does its effects: timers, children, deliveries, the user's actions.

Thin: everything was decided before. Whatever raises here reaches the sender of the event, and the
other effects of the step are still done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from outlive.charts.effects import (
    Effect,
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
from outlive.charts.events import Event, snapshot_of
from outlive.charts.services import Child, ServiceChild
from outlive.errors import ChartError, UnknownTarget, UsageError
from outlive.telemetry import PROCESS

if TYPE_CHECKING:
    from outlive.charts.interpreter import Interpreter
    from outlive.charts.snapshot import Snapshot

_log = PROCESS.logger("outlive.charts")


class PendingTimer:
    """A delayed event. ``due_at`` is by the wall clock, so that it means the same elsewhere."""

    __slots__ = ("delay_ms", "due_at", "event", "handle", "id", "scope", "target")

    def __init__(self, effect: StartTimer, name: str, due_at: float) -> None:
        self.id = name
        self.event = effect.event
        self.delay_ms = effect.delay_ms
        self.target = effect.target
        self.scope: Scope = effect.scope
        self.due_at = due_at
        self.handle: Any = None

    def claim(self, actor: Interpreter) -> Event | None:
        """The event, unless the timer was stopped while it waited in the mailbox."""
        timers = actor.timers
        if timers is None or timers.get(self.id) is not self:
            return None
        del timers[self.id]
        return self.event


def start_timer(actor: Interpreter, effect: StartTimer, *, due_at: float | None = None) -> None:
    """Start a timer, in place of one with the same id; ``due_at`` is given on a restart.

    Not for a machine that has ended: nobody would stop it any more.
    """
    if actor.snapshot.status != "active":
        return
    clock = actor.environment.timers
    now = clock.now()
    due = now + effect.delay_ms / 1000 if due_at is None else due_at
    if actor.timers is None:
        actor.timers = {}
    name = effect.id if effect.id is not None else _free_name(actor.timers)
    timer = PendingTimer(effect, name, due)
    stop_timer(actor, name)
    actor.timers[name] = timer

    def fire() -> None:
        if timer.scope == "self":
            actor.deliver(timer)
        elif timer.claim(actor) is not None:
            _deliver_late(actor, timer)

    # Not the difference of two readings: the delay itself is exact.
    delay_s = effect.delay_ms / 1000 if due_at is None else max(0.0, due - now)
    timer.handle = clock.call_later(delay_s, fire)


def _deliver_late(actor: Interpreter, timer: PendingTimer) -> None:
    try:
        deliver(actor, timer.scope, timer.target, timer.event)
    except ChartError as error:
        actor.environment.on_error(actor, error)


def stop_timer(actor: Interpreter, name: str) -> None:
    """Forget a timer; one that is not there needs nothing."""
    timer = None if actor.timers is None else actor.timers.pop(name, None)
    if timer is not None and timer.handle is not None:
        timer.handle.cancel()


def _free_name(timers: dict[str, PendingTimer]) -> str:
    number = len(timers)
    while f"#{number}" in timers:
        number += 1
    return f"#{number}"


def deliver(actor: Interpreter, scope: Scope, target: str | None, event: Event) -> None:
    """Hand ``event`` to the machine that ``scope`` and ``target`` name.

    Raises:
        UnknownTarget: There is none.
    """
    receiver: Child | Interpreter | None
    match scope:
        case "self":
            receiver = actor
        case "parent":
            receiver = actor.parent
        case "child":
            receiver = (actor.children or {}).get(target or "")
            if receiver is None and target in actor.snapshot.children:
                return
        case "system":
            receiver = actor.registry.get(target or "")
        case "machine":
            receiver = actor.peer(target or "")
    if receiver is None:
        raise UnknownTarget(target or scope, f"from machine {actor.id!r}")
    receiver.deliver(event)


def start_child(actor: Interpreter, effect: StartChild, saved: Any = None) -> None:
    """Start a child; ``saved`` is what was kept of it, if it lived before.

    One that runs under the same id is stopped first, or nobody could stop it any more; for the
    same reason a machine that has ended starts none.

    Raises:
        UsageError: The system id is taken, or there is no such service.
    """
    from outlive.charts.actor import Actor
    from outlive.charts.chart import Chart

    if actor.snapshot.status != "active":
        return
    found = actor.chart.services.get(effect.src)
    if found is None:
        raise UsageError(f"chart {actor.chart.id!r} has no service {effect.src!r}")
    child: Child
    if isinstance(found, Chart):
        machine = Actor(
            found, id=effect.id, input=effect.input, environment=actor.environment, parent=actor
        )
        if saved is not None:
            machine.adopt(saved)
        if effect.watched:
            machine.subscribe(lambda snapshot: _show(actor, effect.id, snapshot))
        child = machine
    else:
        child = ServiceChild(
            found,
            child=effect.id,
            given=effect.input,
            watched=effect.watched,
            tell=actor.deliver,
            actor=actor,
        )
    if effect.system_id is not None:
        taken = actor.registry.get(effect.system_id)
        if taken is not None and not taken.ended:
            raise UsageError(f"the system id {effect.system_id!r} is already used")
        actor.registry[effect.system_id] = child
    try:
        stop_child(actor, effect.id)
    finally:
        if actor.children is None:
            actor.children = {}
        actor.children[effect.id] = child
        child.begin()


def _show(actor: Interpreter, child: str, snapshot: Snapshot) -> None:
    if snapshot.status == "active":
        seen = {"status": "active", "value": snapshot.value, "context": dict(snapshot.context)}
        actor.deliver(Event(snapshot_of(child), {"snapshot": seen}))


def stop_child(actor: Interpreter, name: str) -> None:
    """Stop a child, and free its names; one that is not there needs nothing."""
    child = None if actor.children is None else actor.children.pop(name, None)
    if child is None:
        return
    registry = actor.registry
    for system_id in [key for key, value in registry.items() if value is child]:
        del registry[system_id]
    child.stop()


def _run_action(actor: Interpreter, effect: RunAction) -> Awaitable[Any] | None:
    if effect.function is None:
        return None
    result = effect.function(effect.context, effect.event, effect.params, actor)
    return result if effect.awaitable else None


def _emit(actor: Interpreter, effect: Emit) -> None:
    actor.emitted(effect.event)


def _log_value(actor: Interpreter, effect: Log) -> None:
    label = f"{effect.label}: " if effect.label else ""
    _log.info("machine %s: %s%s", actor.id, label, effect.value, extra={"machine": actor.id})


_DO: dict[type[Any], Callable[[Any, Any], Awaitable[Any] | None]] = {
    RunAction: _run_action,
    StartTimer: start_timer,
    StopTimer: lambda actor, effect: stop_timer(actor, effect.id),
    StartChild: start_child,
    StopChild: lambda actor, effect: stop_child(actor, effect.id),
    Send: lambda actor, effect: deliver(actor, effect.scope, effect.target, effect.event),
    Emit: _emit,
    Log: _log_value,
}


def perform(actor: Interpreter, effect: Effect) -> Awaitable[Any] | None:
    """Do ``effect``; what is still to be awaited comes back.

    Raises:
        Exception: Whatever the user's action raises, or ``UnknownTarget``.
    """
    return _DO[type(effect)](actor, effect)
