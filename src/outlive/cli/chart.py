"""``outlive chart``: check, draw, walk through, explore and watch charts. Needs no store.

A document is judged and run without its program: actions do nothing, guards hold unless told
otherwise, delays without a number take a second. Nothing in a document is ever evaluated.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from outlive.charts import Chart, ChartWarning, Problem
from outlive.charts.drawing import drawn_targets, event_of, name_of
from outlive.charts.paths import PLACES_MAX, transitions_of
from outlive.cli.chart_simulate import simulate_lines
from outlive.cli.chart_top import top
from outlive.cli.invocation import current, global_options
from outlive.cli.output import emit_document, emit_rows, say
from outlive.errors import InvalidChart

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
