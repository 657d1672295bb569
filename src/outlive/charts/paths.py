"""Every place a chart can get to, the shortest way there, and what of a chart a test has seen.

For model-based tests: ``explore`` walks the chart with the pure step, so that nothing acts.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from outlive.charts.configuration import StateValue
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.inspection import Inspection, MicrostepTaken
from outlive.charts.nodes import Node, Transition
from outlive.charts.snapshot import Snapshot
from outlive.charts.stepping import Taken, Trace
from outlive.errors import ChartError

if TYPE_CHECKING:
    from outlive.charts.chart import Chart

# A chart whose context counts has places without end; this many take about a second.
PLACES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Path:
    """The events that lead from the start to ``snapshot``, as few as possible."""

    events: tuple[Event, ...]
    snapshot: Snapshot

    @property
    def value(self) -> StateValue:
        """Where it ends."""
        return self.snapshot.value

    def __str__(self) -> str:
        way = " -> ".join(event.type for event in self.events) or "(start)"
        return f"{way} => {json.dumps(self.value)}"


@dataclass(frozen=True, slots=True)
class Exploration:
    """The paths found. ``complete`` is false if the limit ended the search."""

    paths: tuple[Path, ...]
    complete: bool

    def to(self, state: str) -> Path | None:
        """The shortest path to a configuration that is in ``state``."""
        return next((path for path in self.paths if path.snapshot.matches(state)), None)


def explore(
    chart: Chart,
    *,
    events: Iterable[EventLike] | None = None,
    input: Any = None,  # noqa: A002
    places_max: int = PLACES_MAX,
) -> Exploration:
    """The shortest path to each configuration that ``events`` can lead to.

    Without ``events``, those that the chart names are tried, without data; the ends of timers and
    services are events too. Places with different contexts are different, because guards may tell
    them apart. An event on which a guard or an assign fails leads nowhere.
    """
    given = None if events is None else tuple(as_event(event) for event in events)
    first, _ = chart.begin(input)
    found = {first.configuration.active: Path((), first)}
    seen = {_place(first)}
    waiting = deque([Path((), first)])
    while waiting:
        path = waiting.popleft()
        for event in _events(path.snapshot, given):
            after = _after(chart, path.snapshot, event)
            if after is None or (place := _place(after)) in seen:
                continue
            if len(seen) >= places_max:
                return Exploration(tuple(found.values()), complete=False)
            seen.add(place)
            further = Path((*path.events, event), after)
            found.setdefault(after.configuration.active, further)
            waiting.append(further)
    return Exploration(tuple(found.values()), complete=True)


def _events(snapshot: Snapshot, given: tuple[Event, ...] | None) -> Iterable[Event]:
    if snapshot.status != "active":
        return ()
    if given is not None:
        return given
    return tuple(Event(name) for name in snapshot.next_events if not name.endswith("*"))


def _after(chart: Chart, snapshot: Snapshot, event: Event) -> Snapshot | None:
    try:
        return chart.step(snapshot, event)[0]
    except (ChartError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # Decisions that need data which this event does not carry.
        return None


def _place(snapshot: Snapshot) -> tuple[Any, ...]:
    context = json.dumps(dict(snapshot.context), sort_keys=True, default=repr)
    history = tuple(sorted(snapshot.history.items()))
    return snapshot.configuration.active, snapshot.status, context, history


class Coverage:
    """The states entered and the transitions taken, over as many machines as one likes.

    Give its ``inspect`` to an ``Environment``, or hand it the trace of a step.
    """

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self._states: set[int] = set()
        self._transitions: set[int] = set()

    def inspect(self, inspection: Inspection) -> None:
        """Note what a machine of this chart did."""
        if isinstance(inspection, MicrostepTaken) and inspection.actor.chart is self._chart:
            self.add([inspection.taken])

    def add(self, trace: Trace | Iterable[Taken]) -> None:
        """Note the microsteps of one step."""
        for taken in trace:
            self._states |= taken.configuration.active
            self._transitions.update(each.number for each in taken.transitions)

    @property
    def unvisited(self) -> tuple[Node, ...]:
        """The states that were never active."""
        return tuple(
            node
            for node in self._chart.nodes
            if node.kind != "history" and node.order not in self._states
        )

    @property
    def untaken(self) -> tuple[Transition, ...]:
        """The transitions that were never taken."""
        return tuple(
            each for each in transitions_of(self._chart) if each.number not in self._transitions
        )

    @property
    def states(self) -> float:
        """The share of the states that were active."""
        counted = [node for node in self._chart.nodes if node.kind != "history"]
        return 1 - len(self.unvisited) / len(counted)

    @property
    def transitions(self) -> float:
        """The share of the transitions that were taken; all of none is all."""
        every = transitions_of(self._chart)
        return 1 - len(self.untaken) / len(every) if every else 1.0


def transitions_of(chart: Chart) -> tuple[Transition, ...]:
    """All transitions of ``chart``, in document order of their states."""
    return tuple(
        each
        for node in chart.nodes
        for group in (*node.transitions.values(), node.always)
        for each in group
    )
