"""A host that runs a handler that does nothing, for as long as it is told, and counts.

Started with the URL, and how many jobs run at once. Everything that it counts is durable: it says
so only after ``run`` returned.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time

import outlive
from benchmarks.children import boot_time, listen, say
from benchmarks.work.crew import CONCURRENCY, QUEUE

app = outlive.App("bench")
served = 0


@app.handler(QUEUE, concurrency=int(sys.argv[2]) if len(sys.argv) > 2 else CONCURRENCY)
async def nothing(payload: dict[str, str]) -> None:
    """Take the payload, and be done."""
    del payload
    global served  # noqa: PLW0603 - the one number of this program
    served += 1


async def main(url: str) -> None:
    """Run for a while each time a line comes, until there are no more lines."""
    global served  # noqa: PLW0603 - as above
    say("ready")
    while (told := await listen()) is not None:
        async with outlive.connect(url, app=app, name="bench") as host:
            say("connected")
            told = await listen()
            await asyncio.sleep(told["start"] - boot_time())
            served = 0
            started = time.perf_counter()
            running = asyncio.ensure_future(host.run())
            await asyncio.sleep(told["seconds"])
            # As an operator does: what is being run is finished, and its end is written.
            signal.raise_signal(signal.SIGTERM)
            await running
            elapsed_s = time.perf_counter() - started
        say({"served": served, "elapsed_s": elapsed_s})


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
