"""The flows that are measured, and a host that runs them with so many in flight."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime

import outlive
from benchmarks.work.jobs import PAYLOAD
from outlive.host import Host

app = outlive.App("bench-flows")

# When each step of the long flow ran.
ran_at: list[float] = []


@app.step
async def nothing(payload: str) -> str:
    """Give back what was given: some hundred bytes."""
    return payload


@app.step
async def tick(number: int) -> int:
    """Note when this step ran."""
    ran_at.append(time.perf_counter())
    return number


@app.flow
async def steps(count: int, payload: str) -> str:
    """So many steps, one after the other."""
    for _ in range(count):
        payload = await nothing(payload)
    return payload


@app.flow
async def long(count: int) -> int:
    """The same, noting the time of each."""
    last = 0
    for number in range(count):
        last = await tick(number)
    return last


@app.flow
async def fan(count: int) -> int:
    """So many steps at once."""
    return len(await asyncio.gather(*(nothing(f"{number}") for number in range(count))))


@app.flow
async def sleeper(until: datetime) -> bool:
    """Sleep, and wake."""
    await outlive.sleep_until(until)
    return True


class FlowsHost:
    """A host that runs the app, and starts flows on itself."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._numbers = itertools.count()

    async def one(self, count: int) -> None:
        """One flow of so many steps, from its start to its result."""
        handle = await self.host.flows.start(steps, count, PAYLOAD)
        if await handle.result() != PAYLOAD:
            raise RuntimeError("a flow returned something else")

    async def rate(self, count: int, in_flight: int, seconds: float) -> float:
        """Flows a second, so many of them at a time."""
        started = time.perf_counter()
        until = started + seconds

        async def keep_going() -> int:
            done = 0
            while time.perf_counter() < until:
                await self.one(count)
                done += 1
            return done

        done = await asyncio.gather(*(keep_going() for _ in range(in_flight)))
        return sum(done) / (time.perf_counter() - started)

    async def latencies(self, count: int, times: int) -> list[float]:
        """Milliseconds of flows one after the other."""
        found: list[float] = []
        for _ in range(times):
            started = time.perf_counter()
            await self.one(count)
            found.append((time.perf_counter() - started) * 1000)
        return found


@asynccontextmanager
async def open_host(url: str, name: str = "bench") -> AsyncGenerator[FlowsHost]:
    """A host on ``url`` that runs the app until the block ends."""
    async with outlive.connect(url, app=app, name=name) as host:
        running = asyncio.ensure_future(host.run())
        # One turn, in which it begins: from now on flows that are started here run here.
        await asyncio.sleep(0)
        try:
            yield FlowsHost(host)
        finally:
            host.stop()
            await running
