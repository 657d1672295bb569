"""The talk of ``outlive chart simulate``: lines in, states out.

Owns one machine on a simulated clock. A line that is wrong is answered and costs nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

import click

from outlive.charts import Actor, Chart, Environment, SimulatedClock
from outlive.charts.effects import RunAction
from outlive.charts.events import INIT
from outlive.charts.inspection import EffectRun, Inspection
from outlive.cli.output import clean, say
from outlive.errors import OutliveError


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
