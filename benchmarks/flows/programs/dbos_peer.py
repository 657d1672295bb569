"""DBOS doing the same: workflows of so many steps that do nothing, on the same kind of store.

Started with the URL. Told a number of steps, how many are in flight and how many there are, it
runs them and says how many a second that were.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from dbos import DBOS

from benchmarks.children import listen, say
from benchmarks.work.jobs import PAYLOAD


@DBOS.step()
async def nothing(payload: str) -> str:
    """Give back what was given."""
    return payload


@DBOS.workflow()
async def steps(count: int, payload: str) -> str:
    """So many steps, one after the other."""
    for _ in range(count):
        payload = await nothing(payload)
    return payload


async def measure(count: int, in_flight: int, flows: int) -> float:
    """Run ``flows`` workflows; how many a second that were."""
    left = iter(range(flows))

    async def keep_going() -> None:
        for _ in left:
            handle = await DBOS.start_workflow_async(steps, count, PAYLOAD)
            await handle.get_result()

    started = time.perf_counter()
    await asyncio.gather(*(keep_going() for _ in range(in_flight)))
    return flows / (time.perf_counter() - started)


async def main(url: str) -> None:
    """Measure each time a line comes, until there are no more lines."""
    # It logs every start; a service in production would not print them either.
    logging.disable(logging.CRITICAL)
    DBOS(config={"name": "bench", "system_database_url": url, "run_admin_server": False})
    DBOS.launch()
    say("ready")
    while (told := await listen()) is not None:
        say(await measure(*told))
    DBOS.destroy()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
