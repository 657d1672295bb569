"""What a type checker must say about the orchestrator."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import datetime, timedelta
from typing import assert_type

import outlive
from outlive.charts import Chart, Snapshot
from outlive.charts.orchestrator import Group, Health, Machine, Metrics, Orchestrator

app = outlive.App("shop")
order = app.chart({"id": "order"}, name="order", actions={}, guards={})


async def running() -> None:
    assert_type(order, Chart)
    hub = outlive.orchestrator()
    assert_type(hub, Orchestrator)
    async with hub.group("tenant") as group:
        assert_type(group, Group)
        assert_type(group.id, int)
        assert_type(group.created_at, datetime)
        machine = await group.start(order, id="order", mailbox_policy="reject")
        assert_type(machine, Machine)
        assert_type(machine.send("PAY", amount=5), Awaitable[None])
        assert_type(await machine.request("PAY", timeout=timedelta(seconds=5)), Snapshot)
        assert_type(await group.request("order", "PAY", run_late=True), Snapshot)
        assert_type(group.broadcast("TICK"), int)
        await machine.stop(drain=False)
    assert_type(hub.metrics(), Metrics)
    assert_type(hub.health(), Health)
    assert_type(await hub.force_cleanup(), int)
