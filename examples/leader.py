"""One host of the fleet leads; the others wait and take over. Start it several times.

python examples/leader.py sqlite:///leader.db worker-1
python examples/leader.py sqlite:///leader.db worker-2

Stop the leader with Ctrl-C and another leads at once. Kill it with SIGKILL and another leads when
its ttl has passed.
"""

from __future__ import annotations

import asyncio
import sys

import outlive

app = outlive.App("example")


@app.leader("example/leader", ttl=3)
async def lead(lease: outlive.Lease) -> None:
    """Run while this host leads; cancelled when it does not."""
    print(f"leading with token {lease.token}", flush=True)
    try:
        # The leader's work goes here; this one only waits for its cancellation.
        await asyncio.Event().wait()
    finally:
        print("stepping down", flush=True)


@app.every(1, key="example/tick")
async def tick(tick: outlive.Tick) -> None:
    """Run on one host of the fleet, at most once for each second."""
    print(f"tick {tick.number}", flush=True)


async def main(url: str, name: str) -> None:
    """Serve until told to stop."""
    async with outlive.connect(url, app=app, name=name) as host:
        await host.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
