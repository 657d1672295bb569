"""One worker of the demonstration: runs the jobs of a queue until the story ends it.

Speaks to the story on standard output, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import outlive
from outlive.demo.worker import say

QUEUE = "invoices"
SESSION_TTL_S = 2.0
_WORK_S = 0.4

app = outlive.App("demo")


@app.handler(QUEUE, concurrency=2)
async def send_invoice(number: int) -> str:
    """Pretend to do something that takes a while."""
    job = outlive.current()
    say("began", number=number, token=job.token)
    await asyncio.sleep(_WORK_S)
    return job.host


async def main(file: Path, region: str) -> None:
    """Run jobs until told to stop."""
    logging.getLogger("outlive").setLevel(logging.CRITICAL)
    async with outlive.connect(
        f"sqlite:///{file}", app=app, name=region, session_ttl=SESSION_TTL_S
    ) as host:
        say("ready")
        await host.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
