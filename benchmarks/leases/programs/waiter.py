"""The process that a key is handed to: waits for it when told, says when it had it, gives it back.

Started by ``benchmarks.leases.handover`` with the URL and the key.
"""

from __future__ import annotations

import asyncio
import sys

import outlive
from benchmarks.children import ANSWER_LIMIT_S, boot_time, listen, say


async def main(url: str, key: str) -> None:
    """Take the key each time a line comes, until there are no more lines."""
    async with outlive.connect(url, name="bench-waiter") as host:
        say("ready")
        while await listen() is not None:
            lease = await host.leases.acquire(key, timeout=ANSWER_LIMIT_S)
            acquired = boot_time()
            await lease.release()
            # Said only now: the owner asks for the key again as soon as it hears this.
            say({"acquired": acquired})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
