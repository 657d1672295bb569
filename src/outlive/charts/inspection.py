"""What an inspector is told about machines: events, microsteps, guards, effects, snapshots.

Owns the records. A machine without an inspector makes none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outlive.charts.effects import Effect
from outlive.charts.events import Event
from outlive.charts.nodes import Transition
from outlive.charts.snapshot import Snapshot
from outlive.charts.stepping import Taken


@dataclass(frozen=True, slots=True)
class EventReceived:
    """An event is about to be handled."""

    actor: Any
    event: Event


@dataclass(frozen=True, slots=True)
class MicrostepTaken:
    """The transitions of one microstep were taken; there may be none."""

    actor: Any
    taken: Taken


@dataclass(frozen=True, slots=True)
class GuardHeld:
    """A guard let a transition be taken; its names are those in the document."""

    actor: Any
    names: tuple[str, ...]
    transition: Transition


@dataclass(frozen=True, slots=True)
class EffectRun:
    """An effect is about to be done."""

    actor: Any
    effect: Effect


@dataclass(frozen=True, slots=True)
class SnapshotChanged:
    """A macrostep is over, and its snapshot is in place."""

    actor: Any
    event: Event
    snapshot: Snapshot


Inspection = EventReceived | MicrostepTaken | GuardHeld | EffectRun | SnapshotChanged
Inspect = Callable[[Inspection], None]
