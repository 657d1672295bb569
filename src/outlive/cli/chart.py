"""``outlive chart``: check, draw, walk through, explore and watch charts. Needs no store.

A document is judged and run without its program: actions do nothing, guards hold unless told
otherwise, delays without a number take a second. Nothing in a document is ever evaluated.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO, cast

import click

from outlive.charts import Actor, Chart, ChartWarning, Environment, Problem, SimulatedClock
from outlive.charts.drawing import drawn_targets, event_of, name_of
from outlive.charts.effects import RunAction
from outlive.charts.events import INIT
from outlive.charts.inspection import EffectRun, Inspection
from outlive.charts.paths import PLACES_MAX, transitions_of
from outlive.cli.chart_top import top
from outlive.cli.invocation import current, global_options
from outlive.cli.output import clean, emit_document, emit_rows, say
from outlive.errors import InvalidChart, OutliveError

FORMATS = ("table", "mermaid", "layout")

# What a delay without a number takes in a simulation, unless told otherwise.
DELAY_MS = 1000.0

_file = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
_guard = click.option(
    "--guard", "guards", multiple=True, metavar="NAME=yes|no", help="Result of a guard."
)


class Assumed(dict[str, Any]):
    """Implementations for every name that a document may use."""

    def __init__(self, given: Mapping[str, Any], otherwise: Any) -> None:
        super().__init__(given)
        self._otherwise = otherwise

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> Any:
        return self._otherwise


def _keep_running(send: Any) -> None:
    """Stand for a service: it runs until somebody says how it ended."""
    del send


def load(file: Path, guards: tuple[str, ...] = ()) -> Chart:
    """The chart in ``file``, with assumed implementations.

    Raises:
        InvalidChart, ConfigurationError, UsageError: It cannot be loaded.
    """
    answers = {name: _always(value) for name, value in map(_answer, guards)}
    assumed: dict[str, Any] = {
        "guards": Assumed(answers, _always(True)),
        "delays": Assumed({}, DELAY_MS),
        "missing": True,
    }
    with warnings.catch_warnings():
        # They are shown with the problems, not one by one on the way.
        warnings.simplefilter("ignore", ChartWarning)
        alone = Chart.load(file, **assumed)
        names = {invoke.src for node in alone.nodes for invoke in node.invokes}
        return Chart.load(file, **assumed, services=dict.fromkeys(names, _keep_running))


def _always(answer: bool) -> Any:
    return lambda: answer


def _answer(given: str) -> tuple[str, bool]:
    name, _, value = given.partition("=")
    if value not in ("yes", "no"):
        raise click.BadParameter(f"{given!r} is not NAME=yes or NAME=no", param_hint="--guard")
    return name, value == "yes"


@click.group()
def chart() -> None:
    """Check, draw, simulate and watch statecharts."""


chart.add_command(top)


@chart.command()
@_file
@global_options
def validate(file: Path) -> None:
    """List all problems of a chart; exit with 2 if there is an error.

    Warnings are listed too, but do not change the exit code.
    """
    invocation = current()
    try:
        problems: tuple[Problem, ...] = load(file).warnings
        wrong = False
    except InvalidChart as error:
        problems, wrong = error.problems, True
    rows = [
        {"level": each.level, "pointer": each.pointer or "/", "message": each.message}
        for each in problems
    ]
    columns = {"level": "LEVEL", "pointer": "WHERE", "message": "WHAT"}
    if rows or invocation.output != "table":
        emit_rows(invocation.output, "problems", rows, columns)
    if wrong:
        raise click.exceptions.Exit(2)
    say(f"{file.name} is a valid chart")


@chart.command()
@_file
@click.option(
    "--format", "form", type=click.Choice(FORMATS), default="table", help="Form of the output."
)
@global_options
def show(file: Path, form: str) -> None:
    """Show a chart: a table of its transitions, a Mermaid diagram, or boxes and lines as JSON."""
    invocation = current()
    found = load(file)
    if form == "mermaid":
        click.echo(found.to_mermaid(), nl=False)
        return
    if form == "layout":
        emit_document(found.layout().to_json())
        return
    rows = [
        {
            "state": each.source.id,
            "event": event_of(each),
            "guard": None if each.guard is None else " & ".join(each.guard.names()),
            "target": None
            if each.targets is None
            else ", ".join(target.id for target in drawn_targets(each)),
            "actions": ", ".join(filter(None, map(name_of, each.actions))) or None,
        }
        for each in transitions_of(found)
    ]
    columns = {
        "state": "STATE",
        "event": "EVENT",
        "guard": "GUARD",
        "target": "TARGET",
        "actions": "ACTIONS",
    }
    emit_rows(invocation.output, "transitions", rows, columns)


@chart.command()
@_file
@_guard
@click.option("--limit", default=PLACES_MAX, show_default=True, help="Maximum number of states.")
@global_options
def paths(file: Path, guards: tuple[str, ...], limit: int) -> None:
    """List the shortest path to each state that a chart can reach."""
    invocation = current()
    found = load(file, guards).paths(places_max=limit)
    rows = [
        {"value": path.value, "events": [event.type for event in path.events]}
        for path in found.paths
    ]
    if invocation.output == "json":
        emit_document({"paths": rows, "complete": found.complete})
    else:
        emit_rows(invocation.output, "paths", rows, {"value": "STATE", "events": "EVENTS"})
    if not found.complete:
        say(f"stopped after {limit} states; a higher --limit shows more")


@chart.command()
@_file
@_guard
@global_options
def simulate(file: Path, guards: tuple[str, ...]) -> None:
    """Simulate a chart: one event per line of input, followed by its data as JSON.

    ":advance 1.5" advances the time by 1.5 s, ":start" restarts, ":quit" or the end of the input
    ends. Services run until an event ends them, such as "xstate.done.actor.job".
    """
    simulate_lines(load(file, guards), sys.stdin)


class Simulation:
    """One machine, and what it did on the last line."""

    def __init__(self, chart: Chart) -> None:
        self._chart = chart
        self.start()

    def start(self) -> None:
        """Begin with a new machine."""
        self._done: list[str] = []
        self._clock = SimulatedClock()
        environment = Environment(
            timers=self._clock, inspect=self._note, faults="keep", on_error=self._complain
        )
        self._actor = Actor(self._chart, environment=environment)
        self._actor.start()
        self.show(INIT)

    def _note(self, inspection: Inspection) -> None:
        if isinstance(inspection, EffectRun) and isinstance(inspection.effect, RunAction):
            self._done.append(inspection.effect.name)

    def _complain(self, actor: Any, error: BaseException) -> None:
        del actor
        say(f"error: {error}")

    def send(self, line: str) -> None:
        """Send the event of ``line``: a type, and perhaps a JSON object with data."""
        name, _, rest = line.partition(" ")
        try:
            data: object = json.loads(rest) if rest.strip() else {}
        except ValueError as error:
            say(f"the data of an event must be a JSON object: {error}")
            return
        if not isinstance(data, dict):
            say("the data of an event must be a JSON object")
            return
        if not self._actor.snapshot.can({"type": name, **cast("dict[str, Any]", data)}):
            say(f"no transition for {name!r} in this state")
        self._actor.send({**cast("dict[str, Any]", data), "type": name})
        self.show(name)

    def advance(self, text: str) -> None:
        """Let time pass."""
        try:
            self._clock.advance(float(text))
        except ValueError:
            say(":advance needs a number of seconds")
            return
        self.show(f"{text} s")

    def show(self, cause: str) -> None:
        """Say where the machine stands, what it did, and what it listens to."""
        snapshot = self._actor.snapshot
        done = f"  did {', '.join(self._done)}" if self._done else ""
        heard = ", ".join(snapshot.next_events) or "nothing"
        self._done.clear()
        click.echo(clean(f"{cause} => {json.dumps(snapshot.value)} {snapshot.status}{done}"))
        if snapshot.status == "active":
            click.echo(clean(f"  listens to {heard}"))
        sys.stdout.flush()


def simulate_lines(chart: Chart, lines: TextIO | Iterable[str]) -> None:
    """Answer each of ``lines`` until they end."""
    simulation = Simulation(chart)
    for line in lines:
        words = line.strip()
        command, _, rest = words.partition(" ")
        try:
            match command:
                case "":
                    continue
                case ":quit":
                    return
                case ":start":
                    simulation.start()
                case ":advance":
                    simulation.advance(rest)
                case _ if command.startswith(":"):
                    say(f"unknown command {command}; use :advance, :start or :quit")
                case _:
                    simulation.send(words)
        except OutliveError as error:
            say(str(error))
