"""What a type checker must say about apps: a decorator leaves a function as it was."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

import outlive

app = outlive.App("typed")


@app.leader("scheduler", ttl=timedelta(seconds=15))
async def schedule(lease: outlive.Lease) -> None:
    assert_type(lease, outlive.Lease)


@app.every(300, key="reconcile")
async def reconcile(tick: outlive.Tick) -> None:
    assert_type(tick.number, int)


@app.every(timedelta(minutes=5))
def sweep() -> None: ...


@app.cron("0 3 * * *", tz="Europe/Berlin")
async def nightly(tick: outlive.CronTick) -> int:
    return tick.missed


def decorated() -> None:
    cron: Callable[[outlive.CronTick], Coroutine[Any, Any, int]] = nightly
    leader: Callable[[outlive.Lease], Coroutine[Any, Any, None]] = schedule
    ticker: Callable[[outlive.Tick], Coroutine[Any, Any, None]] = reconcile
    plain: Callable[[], None] = sweep
    assert_type(sweep(), None)
    del cron, leader, ticker, plain


@app.leader("wrong")  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def not_awaitable(lease: outlive.Lease) -> None: ...


def clocked(clock: outlive.Clock) -> outlive.Runtime:
    system: outlive.Clock = outlive.SystemClock()
    del system
    return outlive.Runtime(clock=clock)
