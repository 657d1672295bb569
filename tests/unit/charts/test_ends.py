"""The end of a machine, and of a wait: nothing is left behind, and nothing is held up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from outlive.charts import Actor, Chart, Environment, SimulatedClock, raise_
from outlive.errors import ChartError


async def test_an_action_whose_own_wait_is_cancelled_does_not_hold_up_the_machine():
    async def cut_off() -> None:
        lost = asyncio.get_running_loop().create_future()
        lost.cancel()
        await lost

    errors: list[BaseException] = []
    actor = Actor(
        Chart.load(
            {
                "id": "m",
                "initial": "a",
                "states": {"a": {"on": {"GO": {"target": "b", "actions": "cut"}}}, "b": {}},
                "on": {"HOME": ".a"},
            },
            actions={"cut": cut_off},
        ),
        environment=Environment(on_error=lambda _, error: errors.append(error)),
    ).start()
    actor.send("GO")
    actor.send("HOME")
    await actor.settled()
    assert actor.snapshot.value == "a"
    assert [type(error) for error in errors] == [ChartError]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_machine_that_an_action_stops_starts_nothing_more(waits):
    begun: list[str] = []

    def stop(actor: Any) -> None:
        actor.stop()

    async def stop_later(actor: Any) -> None:
        actor.stop()

    chart = Chart.load(
        {
            "id": "m",
            "initial": "a",
            "states": {
                "a": {"on": {"GO": "b"}},
                "b": {"entry": "stop", "invoke": {"src": "job"}, "after": {"60000": "a"}},
            },
        },
        actions={"stop": stop_later if waits else stop},
        services={"job": lambda: begun.append("job")},
    )
    actor = Actor(chart).start()
    actor.send("GO")
    await actor.settled()
    assert actor.snapshot.status == "stopped"
    assert not begun
    assert not actor.timers


def test_the_step_that_ends_a_machine_leaves_no_timer_behind():
    clock = SimulatedClock()
    chart = Chart.load(
        {
            "id": "m",
            "initial": "a",
            "states": {
                "a": {"on": {"GO": {"target": "over", "actions": "later"}}},
                "over": {"type": "final"},
            },
        },
        actions={"later": raise_("LATE", delay=1000)},
    )
    actor = Actor(chart, environment=Environment(timers=clock)).start()
    actor.send("GO")
    assert actor.snapshot.status == "done"
    assert clock.waiting == 0
