"""A pipeline whose heavy step runs on whichever host can do it.

python examples/flows/pipeline.py memory://

`render` belongs to the queue "gpu": it becomes a job there, is claimed by a host that serves the
queue, and its result returns to the flow, wherever that is by then.
"""

from __future__ import annotations

import asyncio
import sys

import outlive
from outlive import Retry

app = outlive.App("film")


@app.step
async def split(film: str, scenes: int) -> list[str]:
    """Cut the film into scenes."""
    return [f"{film}/{number}" for number in range(scenes)]


@app.step(queue="gpu", retry=Retry(max_attempts=3, first=0.05))
def render(scene: str) -> str:
    """Stand for an hour of computing; an ordinary function, run in a thread."""
    return f"{scene}.png"


@app.step
async def join(frames: list[str]) -> str:
    """Put the frames together."""
    return f"{len(frames)} frames, from {frames[0]} to {frames[-1]}"


@app.flow
async def produce(film: str, scenes: int) -> str:
    """Split, render everywhere, join."""
    frames = await asyncio.gather(*(render(scene) for scene in await split(film, scenes)))
    return await join(frames)


async def main(url: str) -> None:
    """Produce one film."""
    async with outlive.connect(url, app=app, name="studio-1") as host, host.running():
        handle = await host.flows.start(produce, "storm", 8, id="storm")
        print(await handle.result(timeout=60))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python examples/flows/pipeline.py URL, such as memory://")
    asyncio.run(main(sys.argv[1]))
