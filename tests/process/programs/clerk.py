"""Enqueues jobs as told, and tells what the store knows of all of them. Nobody kills it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import holdfast
from tests.process.programs.speech import Ears, now, say
from tests.process.programs.toiler import QUEUE

_PAGE = 500


async def enqueue(hf: holdfast.Holdfast, told: dict[str, Any]) -> None:
    """Add the jobs, each with its own id, and tell which were created."""
    jobs = [
        hf.work.prepare(QUEUE, None, id=name, delay=told.get("delay", 0)) for name in told["ids"]
    ]
    jobs += [
        hf.work.prepare(QUEUE, None, id=name, unique_key=key)
        for name, key in told.get("unique", {}).items()
    ]
    asked = now()
    outcomes = await hf.work.submit(jobs)
    created = [outcome.id for outcome in outcomes if outcome.entry == "created"]
    say("did", do="enqueue", asked=asked, created=created)


async def look(hf: holdfast.Holdfast) -> None:
    """Tell everything, page by page."""
    after = None
    while page := await hf.work.list(queue=QUEUE, limit=_PAGE, after=after):
        say("page", jobs=[(info.id, info.state, info.token, info.losses) for info in page])
        after = page[-1].cursor
    say("did", do="look")


async def count(hf: holdfast.Holdfast) -> None:
    """Tell how many are not done."""
    queues = {info.name: info.counts for info in await hf.work.queues()}
    counts = queues.get(QUEUE, {})
    left = sum(number for state, number in counts.items() if state != holdfast.JobState.DONE)
    say("did", do="count", left=left)


async def main(url: str) -> None:
    """Do what the test says until it closes its end."""
    ears = Ears()
    async with holdfast.connect(url, host="clerk") as hf:
        say("ready")
        while (told := await ears.next()) is not None:
            match told["do"]:
                case "enqueue":
                    await enqueue(hf, told)
                case "count":
                    await count(hf)
                case _:
                    await look(hf)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
