"""What a type checker must say about apps: a decorator leaves a function as it was."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, assert_type

import holdfast

app = holdfast.App("typed")


@app.leader("scheduler", ttl=timedelta(seconds=15))
async def schedule(lease: holdfast.Lease) -> None:
    assert_type(lease, holdfast.Lease)


@app.every(300, key="reconcile")
async def reconcile(tick: holdfast.Tick) -> None:
    assert_type(tick.number, int)


@app.every(timedelta(minutes=5))
def sweep() -> None: ...


@app.cron("0 3 * * *", tz="Europe/Berlin")
async def nightly(tick: holdfast.CronTick) -> int:
    return tick.missed


def decorated() -> None:
    cron: Callable[[holdfast.CronTick], Coroutine[Any, Any, int]] = nightly
    leader: Callable[[holdfast.Lease], Coroutine[Any, Any, None]] = schedule
    ticker: Callable[[holdfast.Tick], Coroutine[Any, Any, None]] = reconcile
    plain: Callable[[], None] = sweep
    assert_type(sweep(), None)
    del cron, leader, ticker, plain


@app.leader("wrong")  # pyright: ignore[reportArgumentType, reportUntypedFunctionDecorator]
def not_awaitable(lease: holdfast.Lease) -> None: ...


def clocked(clock: holdfast.Clock) -> holdfast.Runtime:
    system: holdfast.Clock = holdfast.SystemClock()
    del system
    return holdfast.Runtime(clock=clock)
