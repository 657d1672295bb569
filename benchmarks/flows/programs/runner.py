"""A host that keeps so many flows in flight for as long as it is told, and counts.

Started with the URL and a name. A line tells when to begin, for how long, how many at a time.
"""

from __future__ import annotations

import asyncio
import sys

from benchmarks.children import boot_time, listen, say
from benchmarks.flows.shapes import open_host


async def main(url: str, name: str) -> None:
    """Run for a while each time a line comes, until there are no more lines."""
    async with open_host(url, name) as host:
        say("ready")
        while (told := await listen()) is not None:
            await asyncio.sleep(told["start"] - boot_time())
            say(await host.rate(1, told["in_flight"], told["seconds"]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
