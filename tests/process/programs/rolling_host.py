"""One host of a fleet that is restarted host by host: a guest asks for work, and others do it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import outlive
from tests.process.programs.speech import Ears, say, serve, speak_the_log

app = outlive.App("rolling")

# Between two flows that are started: the machine of a test runs other tests as well.
_PACE_S = 0.03


@app.step
async def work(number: int) -> int:
    """A local step that tells who ran it."""
    say("ran", key=outlive.current().idempotency_key)
    await asyncio.sleep(0.005)
    return number


@app.step(queue="side")
async def aside(number: int) -> int:
    """A step that goes through a queue."""
    say("ran", key=f"aside/{outlive.current().idempotency_key}")
    return number


@app.handler("jobs")
async def toil(name: str) -> None:
    """A job that tells who ran it."""
    say("ran", key=f"job/{name}")
    await asyncio.sleep(0.005)


@app.flow
async def order(steps: int, seconds: float) -> int:
    """Local steps, a timer, and a step elsewhere."""
    total = 0
    for number in range(steps):
        total += await work(number)
    await asyncio.sleep(seconds)
    return total + await aside(steps)


class Desk:
    """What a test may ask for."""

    def __init__(self, host: outlive.Host) -> None:
        self._host = host
        self._lease: outlive.Lease | None = None
        self._pouring: asyncio.Task[list[str]] | None = None
        self._ceasing = False

    async def pour(self, told: dict[str, Any]) -> dict[str, Any]:
        """Start flows and enqueue jobs, one after the other, until told to cease."""
        self._pouring = asyncio.ensure_future(self._pour(told["prefix"], told["args"]))
        return {}

    async def cease(self, told: dict[str, Any]) -> dict[str, Any]:
        """End that; all that was begun is told, and what went wrong is raised."""
        del told
        assert self._pouring is not None
        self._ceasing = True
        return {"poured": await self._pouring}

    async def _pour(self, prefix: str, args: list[Any]) -> list[str]:
        poured: list[str] = []
        while not self._ceasing:
            name = f"{prefix}-{len(poured)}"
            await self._host.flows.start(order, *args, id=name)
            await self._host.work.enqueue("jobs", name, id=f"job-{name}")
            poured.append(name)
            await asyncio.sleep(_PACE_S)
        return poured

    async def results(self, told: dict[str, Any]) -> dict[str, Any]:
        """Wait for the ends of flows."""
        flows = self._host.flows
        waiting = (flows.get(name).result(timeout=told["limit"]) for name in told["ids"])
        return {"results": await asyncio.gather(*waiting)}

    async def lease(self, told: dict[str, Any]) -> dict[str, Any]:
        """Take a lease and keep it; asked again, tell whether it is held still."""
        if self._lease is None:
            self._lease = await self._host.leases.acquire(told["key"])
        return {"token": self._lease.token, "held": self._lease.is_held}

    async def close(self) -> None:
        """Give back what is held."""
        if self._lease is not None:
            await self._lease.release()


async def main(url: str, manner: str) -> None:
    """Work until the test closes its end."""
    speak_the_log()
    ears = Ears()
    # Flows go from host to host as often as they wait.
    options = outlive.FlowOptions(park_grace=0.05)
    async with outlive.connect(url, app=app, flows=options) as host:
        running = None if manner == "guest" else asyncio.ensure_future(host.run())
        await asyncio.sleep(0)
        say("ready")
        desk = Desk(host)
        await serve(desk, ears)
        await desk.close()
        if running is not None:
            host.stop()
            await running
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
