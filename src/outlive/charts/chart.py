"""``Chart``: a compiled statechart, and the pure function that runs it.

The seam that everything else is built on:

- ``Chart.load`` turns a document and its implementations into tables, once. A chart is immutable
  and shared by all of its machines, in all threads.
- ``chart.begin(input)`` and ``chart.step(snapshot, event)`` return ``(snapshot, effects)``. They
  are pure and synchronous: no clock, no task, no I/O. A step that raises has changed nothing.
- Effects (``outlive.charts.effects``) are plain data in the order in which they are to be done,
  after the new snapshot is in place. An interpreter does them: ``Actor`` in memory, others
  durably.
- ``chart.stop`` and ``chart.fail`` end a machine from outside, in the same form.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from outlive.charts import paths, persistence, shape, spellings, stepping, structure
from outlive.charts.binding import Binder
from outlive.charts.compiling import Compilation
from outlive.charts.configuration import Tables
from outlive.charts.convention import adapt, refuse_async
from outlive.charts.document import Source, read
from outlive.charts.effects import Effects
from outlive.charts.events import Event, EventLike, as_event
from outlive.charts.layout import Layout, lay_out
from outlive.charts.mermaid import to_mermaid
from outlive.charts.nodes import Node
from outlive.charts.paths import Exploration
from outlive.charts.problems import Problem, Problems, did_you_mean
from outlive.charts.selection import plan_of
from outlive.charts.services import Service
from outlive.charts.snapshot import EMPTY_CONTEXT, Snapshot, settle
from outlive.charts.stepping import MICROSTEPS_MAX, Trace
from outlive.errors import UsageError

Implementations = Mapping[str, Any]

_NOTHING_TO_DO: Effects = ()


class ChartWarning(UserWarning):
    """A chart is written in a way that works but should be changed."""


class Chart:
    """A compiled statechart. Make one with ``Chart.load``; it never changes afterwards."""

    __slots__ = (
        "_context",
        "_tables",
        "document",
        "events",
        "id",
        "microsteps_max",
        "services",
        "version",
        "warnings",
    )

    def __init__(
        self,
        tables: Tables,
        *,
        document: Mapping[str, Any],
        services: Mapping[str, Chart | Service],
        context: Any,
        microsteps_max: int,
        warnings: tuple[Problem, ...],
    ) -> None:
        self._tables = tables
        self._context = context
        self.id: str = tables.chart_id
        self.version: str | None = document.get("version")
        self.document = document
        # Events without data, made once: most machines get the same few, over and over.
        self.events: Mapping[str, Event] = {name: Event(name) for name in tables.exact}
        self.services = services
        self.microsteps_max = microsteps_max
        self.warnings = warnings

    def __repr__(self) -> str:
        return f"<Chart {self.id!r}>"

    @classmethod
    def load(  # noqa: PLR0913 - public options
        cls,
        source: Source,
        *,
        actions: Implementations | None = None,
        guards: Implementations | None = None,
        services: Implementations | None = None,
        delays: Implementations | None = None,
        activities: Implementations | None = None,
        missing: bool = False,
        microsteps_max: int = MICROSTEPS_MAX,
    ) -> Chart:
        """Compile a document: a dict, JSON text, or the path of a file.

        Names in the document refer to the implementations; nothing in it is ever evaluated. With
        ``missing=True`` names may be left without one: such an action does nothing, and such a
        guard or delay is an error when it is asked. Spellings of XState 4 are understood, with a
        ``ChartWarning``.

        Raises:
            InvalidChart: Something is wrong; the error lists everything that is.
            ConfigurationError: The file cannot be read.
            UsageError: It is no JSON object, or too large.
        """
        raw = read(source)
        problems = Problems()
        document = shape.checked(spellings.modernised(raw, problems), problems)
        compilation = Compilation(problems)
        compilation.build(document)
        given = {**(services or {}), **(activities or {})}
        binder = Binder(
            actions={} if actions is None else actions,
            guards={} if guards is None else guards,
            delays={} if delays is None else delays,
            find_node=compilation.find,
        )
        compilation.bind(binder)
        given.update(compilation.inline)
        offered = _offered(given, problems)
        if not missing:
            _report_missing(problems, binder, compilation, given, (actions, guards, delays))
        _report_unused(problems, binder, compilation, given)
        structure.judge(compilation.nodes, problems)
        name = compilation.nodes[0].id
        context = _context_of(document, problems)
        problems.refuse(name)
        for problem in problems.warnings:
            if problem.message.startswith(spellings.MARK):
                warnings.warn(str(problem), ChartWarning, stacklevel=2)
        return cls(
            Tables(tuple(compilation.nodes), chart_id=name),
            document=document,
            services=offered,
            context=context,
            microsteps_max=microsteps_max,
            warnings=tuple(problems.warnings),
        )

    @property
    def tables(self) -> Tables:
        """The compiled tables, for tools that look inside."""
        return self._tables

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All states in document order; the first is the root."""
        return self._tables.nodes

    def begin(
        self,
        input: Any = None,  # noqa: A002
        *,
        trace: Trace | None = None,
    ) -> tuple[Snapshot, Effects]:
        """The first snapshot of a machine, and what is to be done on its start.

        Raises:
            Exception: Whatever a guard, an assign or the context's function raises.
        """
        context = stepping.context_of(self._context, input)
        return stepping.begin(self._tables, context, input, self.microsteps_max, trace)

    def step(
        self, snapshot: Snapshot, event: Event, trace: Trace | None = None
    ) -> tuple[Snapshot, Effects]:
        """The snapshot after ``event`` and everything that follows from it, and the effects.

        Pure: the snapshot given is not changed, and a step that raises leaves nothing behind. A
        machine that has ended stays as it is. With a ``trace`` each microstep is appended to it.

        Raises:
            MicrostepLimit: The chart goes in a circle.
            UnknownTarget: An action sends to a child that does not exist.
            Exception: Whatever a guard, an assign or a computed value raises.
        """
        if snapshot.status != "active":
            return snapshot, _NOTHING_TO_DO
        configuration = snapshot.configuration
        plan = configuration.plans.get(event.type)
        if plan is None:
            plan = plan_of(configuration, event.type)
        elif plan.quick is not None and trace is None:
            # Nothing to ask, nothing to do: only the place changes.
            return settle(plan.quick, snapshot.context, "active", snapshot.rest), _NOTHING_TO_DO
        return stepping.advance(snapshot, event, plan, self.microsteps_max, trace)

    def stop(self, snapshot: Snapshot) -> tuple[Snapshot, Effects]:
        """End a machine from outside: no exit actions run, its children are stopped."""
        if snapshot.status != "active":
            return snapshot, _NOTHING_TO_DO
        return stepping.end(snapshot, "stopped")

    def fail(self, snapshot: Snapshot, error: BaseException) -> tuple[Snapshot, Effects]:
        """End a machine with an error: it stays where it stood, its children are stopped."""
        if snapshot.status != "active":
            return snapshot, _NOTHING_TO_DO
        return stepping.fail(snapshot, error)

    def unstarted(self, input: Any = None) -> Snapshot:  # noqa: A002
        """The snapshot of a machine whose start failed: nothing but the root was entered."""
        try:
            context = stepping.context_of(self._context, input)
        except Exception:  # noqa: BLE001 - then this is why the start failed, and is told there
            context = EMPTY_CONTEXT
        return Snapshot(self._tables.configuration((0,)), context)

    def to_json(self, snapshot: Snapshot) -> dict[str, Any]:
        """The JSON form of a snapshot alone; timers and children belong to who runs the machine."""
        return persistence.snapshot_to_json(snapshot)

    def from_json(self, data: Mapping[str, Any]) -> Snapshot:
        """The snapshot that ``to_json`` described.

        Raises:
            UsageError: It does not fit this chart.
        """
        return persistence.snapshot_from_json(self, data)

    def next_events(self, snapshot: Snapshot) -> tuple[str, ...]:
        """What ``snapshot`` listens to; see ``Snapshot.next_events``."""
        return snapshot.next_events

    def paths(
        self,
        *,
        events: Iterable[EventLike] | None = None,
        input: Any = None,  # noqa: A002
        places_max: int = paths.PLACES_MAX,
    ) -> Exploration:
        """The shortest way to each configuration that ``events`` can lead to.

        Without ``events``, those that the chart names are tried, without data. Nothing acts.
        """
        return paths.explore(self, events=events, input=input, places_max=places_max)

    def to_mermaid(self, snapshot: Snapshot | None = None) -> str:
        """A Mermaid state diagram; the active states of ``snapshot`` are highlighted."""
        return to_mermaid(self, snapshot)

    def layout(self) -> Layout:
        """Boxes and lines, ready to be drawn."""
        return lay_out(self)

    def event(self, event: EventLike, /, **data: Any) -> Event:
        """The event that the arguments mean: ``chart.event("PAY", amount=5)``."""
        return Event(event, data) if data and isinstance(event, str) else as_event(event)


def _context_of(document: Mapping[str, Any], problems: Problems) -> Callable[[Any], Any] | Any:
    context = document.get("context")
    if not callable(context):
        return context
    try:
        refuse_async(context, "the context function")
        return adapt(context, ("input",), "the context function")
    except UsageError as error:
        problems.add("/context", str(error))
        return None


def _offered(given: Mapping[str, Any], problems: Problems) -> dict[str, Chart | Service]:
    offered: dict[str, Chart | Service] = {}
    for name, found in given.items():
        try:
            if isinstance(found, Chart):
                offered[name] = found
            elif callable(found):
                offered[name] = Service(name, found)
            else:
                raise UsageError(f"service {name!r} must be a function or a Chart")
        except UsageError as error:
            problems.add("", str(error))
    return offered


def _report_unused(
    problems: Problems, binder: Binder, compilation: Compilation, services: Mapping[str, Any]
) -> None:
    named = {name for name, _ in compilation.services}
    # A service may also be spawned by an action, which does not say so until it runs.
    unused = [("service", name) for name in services if name not in named and not binder.spawns]
    for kind, name in (*binder.unused(), *unused):
        wanted = [other for each, other, _ in binder.missing if each == kind]
        hint = did_you_mean(name, wanted)
        problems.warn("", f"{kind} {name!r} is given, but the chart does not use it{hint}")


def _report_missing(
    problems: Problems,
    binder: Binder,
    compilation: Compilation,
    services: Mapping[str, Any],
    given: tuple[Implementations | None, ...],
) -> None:
    kinds = ("action", "guard", "delay")
    known: dict[str, Implementations | None] = dict(zip(kinds, given, strict=True))
    for kind, name, pointer in dict.fromkeys(binder.missing):
        hint = did_you_mean(name, known[kind] or {})
        place = pointer if pointer.startswith("/") else ""
        where = "" if place else f" (in {pointer})"
        problems.add(place, f"{kind} {name!r} is not implemented{where}{hint}")
    for name, pointer in compilation.services:
        if name not in services:
            hint = did_you_mean(name, services)
            problems.add(pointer, f"service {name!r} is not implemented{hint}")
