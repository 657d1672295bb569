"""What a type checker must say about charts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, assert_type

from outlive import InvalidChart, MicrostepLimit, WaitTimeout
from outlive.charts import (
    Actor,
    Chart,
    Coverage,
    Environment,
    Event,
    Exploration,
    SimulatedClock,
    Snapshot,
    and_,
    assign,
    choose,
    not_,
    raise_,
    send_to,
)


def more(context: dict[str, int]) -> int:
    return context["n"] + 1


def loading() -> Chart:
    actions = {"inc": assign(n=more), "again": raise_("GO", delay=5)}
    guards = {"both": and_("a", not_("b"))}
    chart = Chart.load({"id": "m"}, actions=actions, guards=guards)
    assert_type(chart, Chart)
    assert_type(Chart.load(Path("m.json"), missing=True), Chart)
    assert_type(chart.id, str)
    return chart


def stepping(chart: Chart) -> None:
    snapshot, effects = chart.begin({"n": 1})
    assert_type(snapshot, Snapshot)
    for effect in effects:
        del effect
    after, _ = chart.step(snapshot, chart.event("PAY", amount=5))
    assert_type(after.status, Literal["active", "done", "error", "stopped"])
    assert_type(after.matches({"a": "b"}), bool)
    assert_type(after.can("PAY", amount=5), bool)
    assert_type(after.tags, frozenset[str])
    assert_type(after.next_events, tuple[str, ...])
    assert_type(chart.paths(events=["A", {"type": "B"}, Event("C")]), Exploration)
    assert_type(chart.to_mermaid(after), str)


async def acting(chart: Chart) -> None:
    clock = SimulatedClock()
    coverage = Coverage(chart)
    environment = Environment(timers=clock, unhandled="defer", inspect=coverage.inspect)
    actor = Actor(chart, id="one", environment=environment).start()
    assert_type(actor, Actor)
    actor.send("PAY", amount=5)
    actor.send({"type": "PAY", "amount": 5})
    assert_type(await actor.wait_for(lambda snapshot: snapshot.has_tag("x"), 5), Snapshot)
    saved: Mapping[str, Any] = actor.persist()
    assert_type(Actor.restore(chart, saved, timers="remaining"), Actor)
    Environment(unhandled="explode")  # pyright: ignore[reportArgumentType]
    choose((None, [send_to("child", "X")]))


def failing(invalid: InvalidChart, limit: MicrostepLimit, wait: WaitTimeout) -> None:
    assert_type(invalid.chart, str)
    assert_type(limit.limit, int)
    assert_type(wait.timeout_s, float)
