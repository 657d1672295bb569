"""One host of the demonstration that runs a flow: an order in four steps that take a while.

Speaks to the story on standard output, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import outlive
from outlive.demo.job_worker import SESSION_TTL_S
from outlive.demo.worker import say

FLOW = "ship_order"
STEPS = ("reserve", "charge", "pack", "ship")
_WORK_S = 0.3

app = outlive.App("demo-flows")


@app.step
async def reserve(order: int) -> str:
    """Take it from the shelf."""
    return await _pretend("reserve", order)


@app.step
async def charge(order: int) -> str:
    """Take the money."""
    return await _pretend("charge", order)


@app.step
async def pack(order: int) -> str:
    """Put it into a box."""
    return await _pretend("pack", order)


@app.step
async def ship(order: int) -> str:
    """Give it to the carrier."""
    return await _pretend("ship", order)


async def _pretend(what: str, order: int) -> str:
    """Take a while; the name of the host that did."""
    step = outlive.current()
    say("began", step=what, order=order, token=step.token)
    await asyncio.sleep(_WORK_S)
    return step.host


@app.flow(name=FLOW)
async def ship_order(order: int) -> list[str]:
    """Which host did which step of the order."""
    return [
        await reserve(order),
        await charge(order),
        await pack(order),
        await ship(order),
    ]


class _Told(logging.Handler):
    """Tells the story each record that an operator would see with ``-v``."""

    def emit(self, record: logging.LogRecord) -> None:
        say("log", text=record.getMessage())


async def main(file: Path, region: str) -> None:
    """Run flows until told to stop."""
    log = logging.getLogger("outlive")
    log.setLevel(logging.INFO)
    log.propagate = False
    log.addHandler(_Told())
    async with outlive.connect(
        f"sqlite:///{file}", app=app, name=region, session_ttl=SESSION_TTL_S
    ) as host:
        say("ready")
        await host.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
