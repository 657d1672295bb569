"""Metrics, the pool, health and inspection: what can be known of an orchestrator from outside."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

import pytest

import outlive
from outlive.charts import Chart
from outlive.charts.inspection import (
    EffectRun,
    EventReceived,
    GuardHeld,
    MicrostepTaken,
    SnapshotChanged,
)
from outlive.charts.orchestrator import Orchestrator, shared
from outlive.charts.orchestrator import lanes as lanes_module
from outlive.charts.orchestrator.health import judge
from outlive.charts.orchestrator.metrics import Histogram
from outlive.errors import UsageError
from tests.unit.charts.orchestrator.charts_used import RECORDER, TOGGLE


@pytest.fixture
async def hub():
    made = Orchestrator(logging=False)
    yield made
    await made.force_cleanup()


def test_a_histogram_tells_percentiles_within_a_quarter():
    seen = Histogram()
    values = [n / 1000 for n in range(1, 1001)]
    for value in values:
        seen.add(value)
    for percent in (50, 95, 99):
        exact = percent / 100
        told = seen.percentile(percent)
        assert told is not None
        assert exact <= told <= exact * 1.25
    assert Histogram().percentile(50) is None


async def test_metrics_count_processed_events(hub):
    group = hub.group("g")
    machines = [await group.start(RECORDER) for _ in range(3)]
    for machine in machines:
        for n in range(100):
            machine.send("NOTE", n=n)
    assert hub.metrics().queue_depth == 3
    for machine in machines:
        await machine.request("LOOK")
    told = hub.metrics()
    assert told.processed == told.succeeded == 303
    assert (told.failed, told.timeouts, told.throttled, told.dead_letters) == (0, 0, 0, 0)
    assert (told.machines, told.active_machines, told.groups, told.loops) == (3, 3, 1, 1)
    assert told.queue_depth == 0
    assert told.pool_size == 16
    assert told.latency_s["p50"] is not None
    assert told.as_json()["processed"] == 303


async def test_counts_outlive_their_event_loop():
    hub = Orchestrator()

    async def one() -> None:
        machine = await hub.start(TOGGLE)
        await machine.request("FLIP")
        await hub.force_cleanup()

    await asyncio.to_thread(asyncio.run, one())
    await asyncio.to_thread(asyncio.run, one())
    assert hub.metrics().processed == 2
    assert hub.metrics().loops == 1


async def test_the_pool_grows_while_machines_wait_and_shrinks_afterwards(monkeypatch):
    monkeypatch.setattr(lanes_module, "SHRINK_PAUSE_S", 0.05)
    monkeypatch.setattr(lanes_module, "GROW_PAUSE_S", 0.0)
    hub = Orchestrator(pool_size=2, max_pool_size=8)
    chart = Chart.load(
        {"id": "c", "on": {"WORK": {"actions": "work"}}},
        actions={"work": lambda: time.sleep(0.002)},
    )
    machines = [await hub.start(chart) for _ in range(300)]
    for machine in machines:
        machine.send("WORK")
    recorder = await hub.start(RECORDER)
    for n in range(100):
        recorder.send("NOTE", n=n)
    await asyncio.gather(*(machine.request("LOOK") for machine in machines))
    assert hub.metrics().pool_size == 8
    assert hub.metrics().grown == 2
    assert recorder.snapshot.context["seen"] == list(range(100))
    # Twice the pause after which the pool is looked at, and as long again for a busy computer.
    await asyncio.sleep(0.2)
    assert hub.metrics().pool_size == 2
    assert hub.metrics().shrunk == 2
    await hub.force_cleanup()


async def test_the_pool_stays_when_growth_is_not_allowed():
    hub = Orchestrator(pool_size=1, allow_growth=False)
    chart = Chart.load(
        {"id": "c", "on": {"WORK": {"actions": "work"}}},
        actions={"work": lambda: time.sleep(0.002)},
    )
    machines = [await hub.start(chart) for _ in range(60)]
    await asyncio.gather(*(machine.request("WORK") for machine in machines))
    assert hub.metrics().grown == 0
    await hub.force_cleanup()


@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": 0},
        {"pool_size": True},
        {"max_pool_size": 20.5},
        {"unhandled": "perhaps"},
        {"pool_size": 32, "max_pool_size": 16},
        {"growth_factor": 1.0},
        {"growth_factor": float("inf")},
        {"shrink_threshold": 1.0},
        {"mailbox_limit": 0},
        {"mailbox_policy": "perhaps"},
    ],
)
def test_options_that_do_not_fit_are_refused(options):
    with pytest.raises(UsageError):
        Orchestrator(**options)


async def test_turns_are_short_so_that_others_run_too(hub, monkeypatch):
    # What waits long makes turns longer: how often, is up to the speed of the machine.
    monkeypatch.setattr(lanes_module, "GROW_AGE_S", float("inf"))
    machines = [await hub.start(TOGGLE) for _ in range(100)]
    for machine in machines:
        for _ in range(1_000):
            machine.send("FLIP")
    turns = 0
    while hub.metrics().queue_depth:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 100_000 / (16 * lanes_module.SLICE_EVENTS) / 2


async def test_a_machine_that_works_does_not_take_the_whole_turn(hub):
    chart = Chart.load(
        {"id": "c", "on": {"WORK": {"actions": "work"}}},
        actions={"work": lambda: time.sleep(0.003)},
    )
    machine = await hub.start(chart)
    for _ in range(20):
        machine.send("WORK")
    turns = 0
    while hub.metrics().queue_depth:
        await asyncio.sleep(0)
        turns += 1
    assert turns >= 10


async def test_without_metrics_no_send_is_timed():
    hub = Orchestrator(metrics=False)
    machine = await hub.start(TOGGLE)
    for _ in range(1_000):
        machine.send("FLIP")
    await machine.stop()
    assert hub.metrics().latency_s["p50"] is None
    assert hub.metrics().processed == 1_000


async def test_health_has_three_levels(hub):
    calm = hub.metrics()
    assert hub.health().level == "healthy"
    assert judge(replace(calm, queue_age_s=0.3)).level == "degraded"
    assert judge(replace(calm, queue_age_s=6)).level == "unhealthy"
    assert judge(replace(calm, succeeded=80, failed=20)).level == "degraded"
    assert judge(replace(calm, succeeded=10, failed=90)).level == "unhealthy"
    assert judge(replace(calm, succeeded=1, failed=9)).level == "healthy"
    throttled = judge(replace(calm, throttled=3))
    assert throttled.level == "degraded"
    assert throttled.reasons == ("3 events were sent to a full mailbox",)
    assert judge(replace(calm, throttled=3), replace(calm, throttled=3)).level == "healthy"


async def test_inspectors_see_events_transitions_actions_and_snapshots(hub):
    chart = Chart.load(
        {
            "id": "c",
            "initial": "a",
            "states": {
                "a": {"on": {"GO": {"target": "b", "guard": "may", "actions": "act"}}},
                "b": {},
            },
        },
        guards={"may": lambda: True},
        actions={"act": lambda: None},
    )
    machine = await hub.start(chart)
    seen: list[object] = []
    forget = hub.inspect(seen.append)
    hub.inspect(lambda _: 1 / 0)
    await machine.request("GO")
    assert [type(each) for each in seen] == [
        EventReceived,
        GuardHeld,
        MicrostepTaken,
        SnapshotChanged,
        EffectRun,
    ]
    assert seen[1].names == ("may",)
    forget()
    await machine.request("GO")
    assert len(seen) == 5


async def test_errors_and_dead_letters_are_logged_where_one_wishes(caplog):
    log = logging.getLogger("mine")
    hub = Orchestrator(logging=log)
    hub.group("g").send("nobody", "HELLO")

    def fail() -> None:
        raise RuntimeError("broken")

    chart = Chart.load({"id": "c", "on": {"GO": {"actions": "fail"}}}, actions={"fail": fail})
    machine = await hub.start(chart)
    machine.send("GO")
    await machine.stop()
    assert [record.name for record in caplog.records] == ["mine", "mine"]
    assert "HELLO" in caplog.text
    assert "broken" in caplog.text


async def test_a_host_that_is_asked_for_its_health_names_charts_that_do_not_keep_up(monkeypatch):
    hub = Orchestrator(logging=False)
    monkeypatch.setattr(shared, "_made", hub)

    def fails() -> None:
        raise ValueError("no")

    document = {"id": "bad", "on": {"GO": {"actions": "fails"}}}
    machine = await hub.start(Chart.load(document, actions={"fails": fails}))
    async with outlive.connect("memory://charts-health") as host:
        assert (await host.health()).ok
        for _ in range(40):
            machine.send("GO")
        await hub.idle()
        health = await host.health()
    assert not health.ok
    assert "charts: 100% of the events failed" in [each.what for each in health.findings]
    await hub.force_cleanup()
