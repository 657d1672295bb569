"""One worker of the demonstration: runs the jobs of a queue until the story ends it.

Speaks to the story on standard output, one JSON object a line.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import holdfast
from holdfast.demo.worker import say

QUEUE = "invoices"
SESSION_TTL_S = 2.0
_WORK_S = 0.4

app = holdfast.App("demo")


@app.handler(QUEUE, concurrency=2)
async def send_invoice(number: int) -> str:
    """Pretend to do something that takes a while."""
    job = holdfast.current()
    say("began", number=number, token=job.token)
    await asyncio.sleep(_WORK_S)
    return job.host


async def main(file: Path, region: str) -> None:
    """Run jobs until told to stop."""
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)
    async with holdfast.connect(
        f"sqlite:///{file}", app=app, host=region, session_ttl=SESSION_TTL_S
    ) as hf:
        say("ready")
        await hf.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
