"""Procrastinate doing the same: jobs that do nothing, on the same server.

Started with the URL and a number of jobs that run at once. Told a number of jobs, it defers them,
runs its worker until none is left, and says how many a second that were; deferring is not counted.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

import procrastinate

from benchmarks.children import listen, say


async def main(url: str, concurrency: int) -> None:
    """Measure each time a line comes, until there are no more lines."""
    # It logs every job; a worker in production would not print them either.
    logging.disable(logging.CRITICAL)
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=4, max_size=20)
    app = procrastinate.App(connector=connector)

    @app.task(queue="bench", name="nothing")
    async def nothing(to: str, subject: str, template: str) -> None:
        del to, subject, template

    payload = {
        "to": "ann@example.org",
        "subject": "Your order 12345",
        "template": "order-shipped",
    }
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        say("ready")
        while (jobs := await listen()) is not None:
            await nothing.batch_defer_async(*(payload for _ in range(jobs)))
            started = time.perf_counter()
            await app.run_worker_async(
                queues=["bench"],
                concurrency=concurrency,
                wait=False,
                install_signal_handlers=False,
            )
            say(jobs / (time.perf_counter() - started))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
