"""Own a key, work while it is ours, give it back. Start it twice at once: one of them works.

python examples/basic_lease/main.py sqlite:///leases.db worker-1
"""

from __future__ import annotations

import asyncio
import sys

import holdfast

KEY = "basic/report"
STEPS = 3


async def work(lease: holdfast.Lease) -> None:
    """Work in steps; cancelled where it waits when the lease is lost."""
    for step in range(1, STEPS + 1):
        print(f"step {step} of {STEPS}, token {lease.token}", flush=True)
        await asyncio.sleep(0.5)


async def main(url: str, name: str) -> int:
    """Work if the key is free; otherwise say who owns it."""
    async with holdfast.connect(url, host=name) as hf:
        hf.leases.on(holdfast.LeaseEvent, lambda event: print(f"event: {type(event).__name__}"))
        try:
            # Renews itself until the end of the block; timeout=5 would wait in line instead.
            async with hf.leases.hold(KEY, timeout=0, ttl=10, metadata={"job": "report"}) as lease:
                await work(lease)
        except holdfast.LeaseHeld as held:
            print(f"not ours: {held.owner} is at it")
            return 0
        except holdfast.LeaseLost as lost:
            print(f"stopped: {lost}")
            return 1
    print("done")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2])))
