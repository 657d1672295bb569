"""A loop that goes on for as long as it takes, with a history that stays short.

python examples/flows/monitor.py memory://

The monitor looks, sleeps and begins anew with `continue_as_new`: same id, same unread signals, and
a history of one round.
"""

from __future__ import annotations

import asyncio
import sys

import outlive

app = outlive.App("watch")
READINGS = [71, 74, 79, 83, 91]


@app.step
async def read_temperature(round_number: int) -> int:
    """Stand for a sensor."""
    return READINGS[min(round_number, len(READINGS) - 1)]


@app.step
async def alarm(degrees: int) -> None:
    """Tell somebody."""
    print(f"alarm: {degrees} degrees")


@app.flow
async def monitor(limit: int, round_number: int = 0) -> int:
    """Look until it is too hot; how many rounds that took."""
    degrees = await read_temperature(round_number)
    outlive.set_status({"round": round_number, "degrees": degrees})
    if degrees <= limit:
        await asyncio.sleep(0.05)
        outlive.continue_as_new(limit, round_number + 1)
    await alarm(degrees)
    return round_number


async def main(url: str) -> None:
    """Watch until the alarm."""
    async with outlive.connect(url, app=app, name="watch-1") as host, host.running():
        handle = await host.flows.start(monitor, 80, id="boiler-3")
        print(f"too hot in round {await handle.result(timeout=30)}")
        print(f"{len(await handle.history())} rows of history")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python examples/flows/monitor.py URL, such as memory://")
    asyncio.run(main(sys.argv[1]))
