"""The process that an idle queue's next job goes to: says when its handler began.

Started with the URL.
"""

from __future__ import annotations

import asyncio
import sys

import outlive
from benchmarks.children import boot_time, listen, say
from benchmarks.work.pickup import QUEUE

app = outlive.App("bench-picker")


@app.handler(QUEUE)
async def pick(number: int) -> None:
    """Say when the job was here."""
    picked = boot_time()
    say({"number": number, "picked": picked})


async def main(url: str) -> None:
    """Serve until the input ends."""
    async with outlive.connect(url, app=app, name="bench-picker") as host:
        running = asyncio.ensure_future(host.run())
        say("ready")
        while await listen() is not None:
            continue
        running.cancel()
        await asyncio.wait([running])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
