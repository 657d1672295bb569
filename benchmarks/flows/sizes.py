"""What grows, and what must not: commits of a flow, long flows, wide flows, sleeping flows.

Counted where it can be: commits and bytes are the store's own, not times.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.flows.backend import Backend
from benchmarks.flows.effort import Effort
from benchmarks.flows.shapes import FlowsHost, fan, long, open_host, ran_at, sleeper, steps
from benchmarks.report import Row
from outlive import FlowHandle, InstanceStatus
from outlive.flows.events import encode_events

COMMITS_NAME = "commits"
LONG_NAME = "long-flow"
FAN_NAME = "fan-out"
SLEEPING_NAME = "sleeping"

_COMMITS_OF = 7
_LONG_BAR = 1.3
# A part of the long flow at its beginning, and one at its end.
_PART = 0.1

_FAN = (100, 1000)
# Bytes for each member may not grow with how many there are; ids grow by a digit.
_FAN_BAR = 1.1

_MEMORY_BAR_MB = 50.0
_IDLE_BAR = 1.0
# How many flows a second are started, and how long the last needs to be put aside. A machine on
# which they wake before that gets more time.
_STARTS_PER_S = 300
_SLOWNESS = (1, 3, 9, 27)
_PARK_S = 20.0
_LEAD_S = 2.0
# Between the last look at a host that has nothing to do and the first flow that wakes.
_SPARE_S = 1.0
# A host that still claims or puts aside sends many statements a second, however few are left; but
# it waits for the park grace before it puts the last of them aside.
_LOOK_S = 8.0
_BUSY_PER_S = 3
_START_BATCH = 500
# All wake together. Flows are lost if none completes for so long.
_STILL_S = 60.0
_COUNT_S = 1.0


async def measure_commits(backend: Backend, effort: Effort) -> list[Row]:
    """Commits of a flow of seven steps that runs where it was started, its start included."""
    del effort
    async with open_host(backend.new_store()) as host:
        handle = await host.host.flows.start(steps, _COMMITS_OF, "x")
        await handle.result()
        record = await handle.status()
    return [
        Row(
            name=f"{backend.name}/{COMMITS_NAME}-of-{_COMMITS_OF}-steps",
            unit="commits",
            # The version counts those after the start.
            ours=record.version + 1,
            bar=_COMMITS_OF + 1,
            at_most=True,
        )
    ]


async def measure_long(backend: Backend, effort: Effort) -> list[Row]:
    """Time of a step at the end of a long flow, beside that at its start."""
    ran_at.clear()
    async with open_host(backend.new_store()) as host:
        handle = await host.host.flows.start(long, effort.long_steps)
        await handle.result()
    times = [(later - earlier) * 1e6 for earlier, later in pairwise(ran_at)]
    part = int(effort.long_steps * _PART)
    return [
        Row(
            name=f"{backend.name}/{LONG_NAME}-{effort.long_steps}",
            unit="us/step",
            ours=median(times[-part:]),
            # What comes first warms up; nobody's first steps are typical.
            floor=median(times[part : 2 * part]),
            bar=_LONG_BAR,
            at_most=True,
        )
    ]


async def measure_fan(backend: Backend, effort: Effort) -> list[Row]:
    """Bytes of history for each member of a wide fan-out, beside a narrow one."""
    del effort
    found: list[float] = []
    async with open_host(backend.new_store()) as host:
        for count in _FAN:
            handle = await host.host.flows.start(fan, count)
            await handle.result()
            found.append(await _bytes_of(handle) / count)
    return [
        Row(
            name=f"{backend.name}/{FAN_NAME}-{_FAN[1]}",
            unit="bytes/step",
            ours=found[1],
            floor=found[0],
            bar=_FAN_BAR,
            at_most=True,
        )
    ]


async def _bytes_of(handle: FlowHandle[int]) -> int:
    return sum(len(encode_events(commit.events)) for commit in await handle.history())


async def measure_sleeping(backend: Backend, effort: Effort) -> list[Row]:
    """Memory and statements of a host whose flows all sleep, and whether all of them wake."""
    count = effort.sleeping
    for slowness in _SLOWNESS:
        calm_in_s = (_LEAD_S + count / _STARTS_PER_S + _PARK_S) * slowness
        found = await _sleeping(backend, effort, calm_in_s)
        if found is not None:
            break
    else:
        raise RuntimeError("the flows woke before they were looked at, however long they slept")
    grown_mb, idle, lost = found
    name = f"{backend.name}/{SLEEPING_NAME}-{count}"
    return [
        Row(name=f"{name}-memory", unit="MB", ours=grown_mb, bar=_MEMORY_BAR_MB, at_most=True),
        Row(name=f"{name}-idle", unit="statements/s", ours=idle, bar=_IDLE_BAR, at_most=True),
        Row(name=f"{name}-lost", unit="flows", ours=lost, bar=0.0, at_most=True),
    ]


async def _sleeping(
    backend: Backend, effort: Effort, calm_in_s: float
) -> tuple[float, float, int] | None:
    """Megabytes, statements a second, and how many never woke; ``None`` if they woke too soon.

    Within ``calm_in_s`` all have been started and put aside.
    """
    url, count = backend.new_store(), effort.sleeping
    async with backend.counting(url) as counted, open_host(url) as host:
        before_mb = _memory_mb()
        began = time.monotonic()
        wakes_in_s = calm_in_s + effort.idle_s + _SPARE_S
        wake_at = datetime.now(UTC) + timedelta(seconds=wakes_in_s)
        await _start_all(host, count, wake_at)
        await _put_aside(lambda: counted().statements, until=began + calm_in_s)
        grown_mb = _memory_mb() - before_mb
        sent = counted().statements
        await asyncio.sleep(effort.idle_s)
        idle = (counted().statements - sent) / effort.idle_s
        if time.monotonic() > began + wakes_in_s:
            return None
        return grown_mb, idle, await _wake_all(host, count, wake_at)


async def _start_all(host: FlowsHost, count: int, wake_at: datetime) -> None:
    for first in range(0, count, _START_BATCH):
        size = min(_START_BATCH, count - first)
        await host.host.flows.start_many(sleeper, [(wake_at,)] * size)


async def _put_aside(statements: Callable[[], float], *, until: float) -> None:
    """Wait until the host has put all of them aside, which it has when it asks for nothing more."""
    await asyncio.sleep(_PARK_S)
    while time.monotonic() < until - _LOOK_S:
        sent = statements()
        await asyncio.sleep(_LOOK_S)
        if statements() - sent < _BUSY_PER_S * _LOOK_S:
            return


async def _wake_all(host: FlowsHost, count: int, wake_at: datetime) -> int:
    """How many are not through when no more come through."""
    await asyncio.sleep(max(0.0, (wake_at - datetime.now(UTC)).total_seconds()))
    done, moved = 0, time.monotonic()
    while done < count and time.monotonic() < moved + _STILL_S:
        await asyncio.sleep(_COUNT_S)
        now = (await host.host.flows.count(name=sleeper.name)).get(InstanceStatus.COMPLETED, 0)
        if now > done:
            done, moved = now, time.monotonic()
    return count - done


def _memory_mb() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("the kernel does not say how much memory this process has")
