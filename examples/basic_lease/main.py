"""Own a key, work while it is ours, give it back. Start it twice at once: one of them works.

python examples/basic_lease/main.py sqlite:///leases.db worker-1
python examples/basic_lease/main.py sqlite:///leases.db worker-1 60   # that many steps, not three
"""

from __future__ import annotations

import asyncio
import sys

import outlive

KEY = "basic/report"


async def work(lease: outlive.Lease, steps: int) -> None:
    """Work in steps; cancelled where it waits when the lease is lost."""
    for step in range(1, steps + 1):
        print(f"step {step} of {steps}, token {lease.token}", flush=True)
        await asyncio.sleep(0.5)


async def main(url: str, name: str, steps: int) -> int:
    """Work if the key is free; otherwise say who owns it."""
    async with outlive.connect(url, name=name) as host:
        host.leases.on(outlive.LeaseEvent, lambda event: print(f"event: {type(event).__name__}"))
        try:
            # Renews itself until the end of the block; timeout=5 would wait in line instead.
            async with host.leases.hold(
                KEY, timeout=0, ttl=10, metadata={"job": "report"}
            ) as lease:
                await work(lease, steps)
        except outlive.LeaseHeld as held:
            print(f"not ours: {held.owner} is at it")
            return 0
        except outlive.LeaseLost as lost:
            print(f"stopped: {lost}")
            return 1
    print("done")
    return 0


if __name__ == "__main__":
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 3  # noqa: PLR2004
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], count)))
