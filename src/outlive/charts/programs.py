"""What entering and leaving one state does, as operations in their order.

Owns that order: on entry the entry actions, the timers, the services and the initial actions; on
exit the exit actions, the timers and the services.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlive.charts.effects import Effect, StartTimer, StopTimer
from outlive.charts.events import Event
from outlive.charts.frame import Frame
from outlive.charts.nodes import Node
from outlive.charts.operations import Expect, Operation, RaiseEvent, Start, Stop, Value


@dataclass(slots=True)
class Note:
    """An effect that is always the same."""

    effect: Effect

    def run(self, frame: Frame) -> None:
        """Note it down."""
        frame.effects.append(self.effect)


def start_timer(event_type: str, delay: Value) -> Operation:
    """The timer of an ``after``."""
    event = Event(event_type)
    if delay.function is None:
        return Note(StartTimer(event_type, event, delay.constant))
    return RaiseEvent(Value(event), delay, Value(event_type))


def stop_timer(event_type: str) -> Operation:
    """The end of the timer of an ``after``."""
    return Note(StopTimer(event_type))


def entering(node: Node, *, by_default: bool) -> list[Operation]:
    """What happens when ``node`` is entered; its entry actions and timers come first."""
    operations: list[Operation] = []
    if node.invokes:
        operations.append(Expect(frozenset(invoke.id for invoke in node.invokes)))
    operations += node.entry
    operations += [
        Start(invoke.src, Value(invoke.id), invoke.system_id, invoke.input, invoke.watched)
        for invoke in node.invokes
    ]
    if by_default:
        operations += node.initial_actions
    return operations


def leaving(node: Node) -> list[Operation]:
    """What happens when ``node`` is left."""
    return [*node.exit, *(Stop(Value(invoke.id)) for invoke in node.invokes)]
