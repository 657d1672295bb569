"""A job that every machine schedules and one machine runs, at most once for each tick.

python examples/cron_singleton/main.py sqlite:///leases.db machine-1
python examples/cron_singleton/main.py sqlite:///leases.db machine-2

Ticks are aligned to the clock, so that all machines agree on them. A tick is claimed in the store
before it runs. Ticks that nobody could run are told to the next one that runs.
"""

from __future__ import annotations

import asyncio
import sys

import outlive

INTERVAL_S = 1.0  # An hour is 3600; a second shows the same sooner.

app = outlive.App("cron")


@app.every(INTERVAL_S, key="cron/report", ttl=3)
async def report(tick: outlive.Tick) -> None:
    """Run on one machine of the fleet."""
    missed = f", {tick.missed} missed before it" if tick.missed else ""
    print(f"tick {tick.number}{missed}", flush=True)


async def main(url: str, name: str) -> None:
    """Serve until SIGTERM or Ctrl-C; another machine goes on with the next tick."""
    async with outlive.connect(url, app=app, name=name) as host:
        print("ready", flush=True)
        await host.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
