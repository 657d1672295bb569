"""Flows of a store whose clock was set back: what they recorded was computed from the old time."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import outlive
from outlive import App, FlowFailed, Retry
from outlive.clock import SystemClock


class MovedTime:
    """The clock of the machine, which somebody sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.moved_s = 0
        now, now_us = SystemClock.now, SystemClock.now_us

        def moved(clock: SystemClock) -> datetime:
            return now(clock) + timedelta(seconds=self.moved_s)

        patch.setattr(SystemClock, "now", moved)
        patch.setattr(SystemClock, "now_us", lambda clock: now_us(clock) + self.moved_s * 1_000_000)


@pytest.mark.parametrize("url", ["memory", "sqlite"])
async def test_a_flow_is_retried_by_the_time_that_it_began_at(tmp_path, url, monkeypatch):
    app, broken, time = App("a"), [True], MovedTime(monkeypatch)

    @app.step
    async def book(day: str) -> str:
        return day

    @app.step(retry=Retry(max_attempts=1))
    async def pay() -> None:
        if broken:
            raise ValueError("no")

    @app.flow
    async def orders() -> str:
        booked = await book(outlive.now().isoformat())
        await pay()
        return booked

    place = f"sqlite:///{tmp_path}/h.db" if url == "sqlite" else f"memory://back-{tmp_path.name}"
    async with outlive.connect(place, app=app) as host, host.running():
        handle = await host.flows.start(orders)
        with pytest.raises(FlowFailed):
            await handle.result(timeout=10)
        broken.clear()
        time.moved_s -= 60
        before = SystemClock().now().isoformat()
        await handle.retry()
        assert await handle.result(timeout=10) > before
