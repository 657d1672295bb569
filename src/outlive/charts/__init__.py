"""Statecharts in XState's JSON: a pure engine, and machines in memory.

The public names. ``Chart`` compiles a document; ``Actor`` runs one machine; the rest describes what
actions and guards do.
"""

from outlive.charts.actions import (
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
from outlive.charts.actor import Actor
from outlive.charts.chart import Chart, ChartWarning
from outlive.charts.environment import Environment
from outlive.charts.events import Event
from outlive.charts.guards import and_, not_, or_, state_in
from outlive.charts.layout import Layout
from outlive.charts.paths import Coverage, Exploration, Path
from outlive.charts.problems import Problem
from outlive.charts.snapshot import Snapshot
from outlive.charts.timers import LoopTimers, SimulatedClock

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
