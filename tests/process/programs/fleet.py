"""One host of a fleet: it may be elected, and it runs ticks, until SIGTERM tells it to stop."""

from __future__ import annotations

import asyncio
import sys

import outlive
from tests.process.programs.speech import say, speak_the_log

TICK_S = 1.0
# Stepping down takes a while, so that an early successor would be seen.
_CLEAN_UP_S = 0.3

app = outlive.App("fleet")


@app.leader("chief")
async def lead(lease: outlive.Lease) -> None:
    """Lead until cancelled; the clean-up is part of leading."""
    token = lease.token
    say("leading", token=token, previous=lease.previous_owner)
    try:
        while True:
            await asyncio.sleep(0.05)
            lease.check()
    finally:
        await asyncio.sleep(_CLEAN_UP_S)
        say("led", token=token, still_held=lease.is_held)


@app.every(TICK_S, key="pulse")
async def pulse(tick: outlive.Tick) -> None:
    """One tick of the fleet."""
    say("tick", number=tick.number, missed=tick.missed, due=tick.due_at.timestamp())


async def main(url: str, name: str, ttl_s: str) -> None:
    """Serve until SIGTERM."""
    speak_the_log()
    options = outlive.LeaseOptions(ttl=float(ttl_s))
    async with outlive.connect(url, app=app, name=name, leases=options) as host:
        say("ready")
        await host.run()
        say("drained")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
