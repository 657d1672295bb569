"""Statecharts in XState's JSON: a pure engine, and machines in memory.

The public names. ``Chart`` compiles a document; ``Actor`` runs one machine; the rest describes what
actions and guards do.
"""

from holdfast.charts.actions import (
    assign,
    cancel,
    choose,
    emit,
    log,
    raise_,
    send_parent,
    send_self,
    send_to,
    spawn,
    stop_child,
)
from holdfast.charts.actor import Actor
from holdfast.charts.chart import Chart, ChartWarning
from holdfast.charts.environment import Environment
from holdfast.charts.events import Event
from holdfast.charts.guards import and_, not_, or_, state_in
from holdfast.charts.layout import Layout
from holdfast.charts.paths import Coverage, Exploration, Path
from holdfast.charts.problems import Problem
from holdfast.charts.snapshot import Snapshot
from holdfast.charts.timers import LoopTimers, SimulatedClock

__all__ = [
    "Actor",
    "Chart",
    "ChartWarning",
    "Coverage",
    "Environment",
    "Event",
    "Exploration",
    "Layout",
    "LoopTimers",
    "Path",
    "Problem",
    "SimulatedClock",
    "Snapshot",
    "and_",
    "assign",
    "cancel",
    "choose",
    "emit",
    "log",
    "not_",
    "or_",
    "raise_",
    "send_parent",
    "send_self",
    "send_to",
    "spawn",
    "state_in",
    "stop_child",
]
