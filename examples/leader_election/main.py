"""Several workers, one leader, which hands out the work. Start it as often as you like.

python examples/leader_election/main.py sqlite:///leases.db worker-1
python examples/leader_election/main.py sqlite:///leases.db worker-2

Everybody follows; one leads as well. Stop the leader with Ctrl-C and another leads at once. Kill it
with SIGKILL and another leads when the ttl has passed.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import outlive

KEY = "election/leader"


async def lead(lease: outlive.Lease) -> None:
    """Run on the leader alone; cancelled, and waited for, before anybody else leads."""
    print(f"elected, term {lease.token}", flush=True)
    if lease.previous_owner is not None:
        print(f"took over from {lease.previous_owner}", flush=True)
    try:
        while True:
            print(f"handing out work in term {lease.token}", flush=True)
            await asyncio.sleep(0.5)
    finally:
        print("stepping down", flush=True)


async def follow(host: outlive.Host) -> None:
    """Run on everybody: look who leads."""
    known: str | None = None
    while True:
        info = await host.leases.get(KEY)
        leader = info.host if info is not None and info.active else None
        if leader != known:
            print(f"the leader is {leader or 'being elected'}", flush=True)
            known = leader
        await asyncio.sleep(0.25)


async def main(url: str, name: str) -> None:
    """Campaign and follow until told to stop."""
    async with outlive.connect(url, name=name) as host, asyncio.TaskGroup() as group:
        campaign = group.create_task(host.leases.lead(KEY, lead, ttl=3))
        following = group.create_task(follow(host))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Cancelling the campaign steps down in order: lead() ends, then the key is free.
            loop.add_signal_handler(number, campaign.cancel)
        await asyncio.wait([campaign])
        following.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
