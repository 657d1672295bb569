"""A thousand items at once, in one flow that survives its host.

python examples/flows/fan_out.py memory://

Each item is a step of its own with a result of its own. After a crash only those without a result
run again.
"""

from __future__ import annotations

import asyncio
import sys

import outlive

app = outlive.App("census")


@app.step(concurrency=100)
async def count_words(page: int) -> int:
    """Stand for reading a page somewhere: some take longer than others."""
    await asyncio.sleep(page % 50 / 1000)
    return page % 7


@app.flow
async def census(pages: int) -> int:
    """Read all pages, and add up what was found."""
    counts = await asyncio.gather(*(count_words(page) for page in range(pages)))
    return sum(counts)


async def main(url: str) -> None:
    """Count the words of a thousand pages."""
    async with outlive.connect(url, app=app, name="reader-1") as host, host.running():
        handle = await host.flows.start(census, 1000, id="census")
        print(f"{await handle.result(timeout=60)} words on 1000 pages")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python examples/flows/fan_out.py URL, such as memory://")
    asyncio.run(main(sys.argv[1]))
