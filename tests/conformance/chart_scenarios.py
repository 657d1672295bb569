"""Runs one conformance scenario and compares it with the recorded trace.

Owns what a step of a scenario does to a machine, and what of a trace has to agree.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outlive.charts import Actor, ChartWarning, Environment, SimulatedClock
from outlive.charts.timers import Cancellable
from outlive.errors import OutliveError
from tests.conformance.chart_language import Meanings, Recorder, ScenarioError

# Tasks of services start, end and tell their parents in a few turns of the loop each.
TURNS = 12


class SteppedClock(SimulatedClock):
    """The clock of a scenario moves in steps: what is started with no delay is due in the next."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Cancellable:
        return super().call_later(max(delay_s, 1e-6), callback)


class Run:
    """One machine under a scenario."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        self.recorder = Recorder()
        self.clock = SteppedClock()
        self.environment = Environment(timers=self.clock, on_error=self._ignore)
        self.scenario = scenario
        meanings = Meanings(scenario.get("impl") or {}, self.recorder, "")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ChartWarning)
            self.chart = meanings.chart(scenario["machine"])
        self.actor = Actor(self.chart, input=scenario.get("input"), environment=self.environment)
        self.saved: dict[str, Any] = {}

    def _ignore(self, actor: Actor, error: BaseException) -> None:
        """A failing machine says so in its status."""

    async def start(self) -> dict[str, Any]:
        self._listen()
        self._attempt(self.actor.start)
        await self._turn()
        return self._entry(None)

    async def step(self, step: dict[str, Any]) -> dict[str, Any]:
        self.recorder.reset()
        result = await self._do(step)
        await self._turn()
        return self._entry(result)

    def _listen(self) -> None:
        self.actor.on("*", lambda event: self.recorder.emitted.append(event.to_json()))

    def _attempt(self, function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except (ScenarioError, OutliveError, TypeError, KeyError):
            # What a scenario provokes shows in the status.
            assert self.actor.snapshot.status == "error"

    async def _turn(self) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    # One case for each word of the format.
    async def _do(self, step: dict[str, Any]) -> Any:  # noqa: C901, PLR0912
        recorder = self.recorder
        match step:
            case {"send": event}:
                self._attempt(self.actor.send, event)
            case {"sendTo": child, "event": event}:
                child_actor = (self.actor.children or {})[child]
                child_actor.send(event)
            case {"advance": ms}:
                await self._advance(ms / 1000)
            case {"resolve": child}:
                recorder.promises[child].set_result(step.get("output"))
            case {"reject": child}:
                recorder.promises[child].set_exception(ScenarioError(step.get("error")))
            case {"callback": child, "event": event}:
                recorder.senders[child](event)
            case {"next": child}:
                recorder.streams[child].put_nowait(("next", step.get("value")))
            case {"complete": child}:
                recorder.streams[child].put_nowait(("complete", None))
            case {"error": child}:
                recorder.streams[child].put_nowait(("error", step.get("message")))
            case {"can": event}:
                return self.actor.snapshot.can(event)
            case {"matches": value}:
                return self.actor.snapshot.matches(value)
            case {"hasTag": tag}:
                return self.actor.snapshot.has_tag(tag)
            case {"meta": _}:
                return dict(self.actor.snapshot.meta)
            case {"persist": _}:
                self.saved = json.loads(json.dumps(self.actor.persist()))
            case {"restore": _}:
                await self._restore()
            case {"stop": _}:
                self.actor.stop()
            case _:
                raise AssertionError(f"the format has no step {step!r}")
        return None

    async def _advance(self, seconds: float) -> None:
        left_ms = round(seconds * 1000)
        while (due := self.clock.next_due_s) is not None:
            step_ms = max(1, round(due * 1000))
            if step_ms > left_ms:
                break
            self.clock.advance(step_ms / 1000)
            left_ms -= step_ms
            await self._turn()
        self.clock.advance(left_ms / 1000)

    async def _restore(self) -> None:
        self.actor.stop()
        await self._turn()
        self.recorder.reset()
        self.actor = Actor.restore(self.chart, self.saved, environment=self.environment)
        self._listen()
        self._attempt(self.actor.start)

    def _entry(self, result: Any) -> dict[str, Any]:
        snapshot = self.actor.snapshot
        leaves = [node.id for node in snapshot.configuration.in_order if node.is_leaf]
        return {
            "value": snapshot.value,
            "configuration": sorted(snapshot.active_ids),
            "atomic": sorted(leaves),
            "status": snapshot.status,
            "context": dict(snapshot.context),
            "output": snapshot.output,
            "log": list(self.recorder.log),
            "services": list(self.recorder.services),
            "emitted": list(self.recorder.emitted),
            "result": result,
        }


def per_actor(log: list[list[Any]]) -> dict[str, list[list[Any]]]:
    """The log of each machine by itself: only that order is promised."""
    parted: dict[str, list[list[Any]]] = defaultdict(list)
    for entry in log:
        machine, _, _ = entry[0].rpartition("/")
        parted[machine].append(entry)
    return dict(parted)


def differences(entry: dict[str, Any], golden: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where what was seen differs from what was recorded."""
    wanted = {
        "value": golden.get("value"),
        "configuration": sorted(golden.get("configuration", [])),
        "status": golden.get("status"),
        "context": golden.get("context", {}),
        "output": golden.get("output"),
        "services": golden.get("services", []),
        "emitted": golden.get("emitted", []),
        "result": golden.get("result"),
        "log": per_actor(golden.get("log", [])),
    }
    seen = {**entry, "log": per_actor(entry["log"])}
    return {key: (seen[key], want) for key, want in wanted.items() if seen[key] != want}


async def trace_of(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """What happens at the start and at each step."""
    run = Run(scenario)
    entries = [await run.start()]
    entries.extend([await run.step(step) for step in scenario.get("steps", [])])
    run.actor.stop()
    await asyncio.sleep(0)
    return entries


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))
