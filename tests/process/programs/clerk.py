"""Enqueues jobs as told, and tells what the store knows of all of them. Nobody kills it."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import outlive
from tests.process.programs.speech import Ears, now, say
from tests.process.programs.toiler import QUEUE

_PAGE = 500


async def enqueue(host: outlive.Host, told: dict[str, Any]) -> None:
    """Add the jobs, each with its own id, and tell which were created."""
    jobs = [
        host.work.prepare(QUEUE, None, id=name, delay=told.get("delay", 0)) for name in told["ids"]
    ]
    jobs += [
        host.work.prepare(QUEUE, None, id=name, unique_key=key)
        for name, key in told.get("unique", {}).items()
    ]
    asked = now()
    outcomes = await host.work.submit(jobs)
    created = [outcome.id for outcome in outcomes if outcome.entry == "created"]
    say("did", do="enqueue", asked=asked, created=created)


async def look(host: outlive.Host) -> None:
    """Tell everything, page by page."""
    after = None
    while page := await host.work.list(queue=QUEUE, limit=_PAGE, after=after):
        say("page", jobs=[(info.id, info.state, info.token, info.losses) for info in page])
        after = page[-1].cursor
    say("did", do="look")


async def count(host: outlive.Host) -> None:
    """Tell how many are not done."""
    queues = {info.name: info.counts for info in await host.work.queues()}
    counts = queues.get(QUEUE, {})
    left = sum(number for state, number in counts.items() if state != outlive.JobState.DONE)
    say("did", do="count", left=left)


async def main(url: str) -> None:
    """Do what the test says until it closes its end."""
    ears = Ears()
    async with outlive.connect(url, name="clerk") as host:
        say("ready")
        while (told := await ears.next()) is not None:
            match told["do"]:
                case "enqueue":
                    await enqueue(host, told)
                case "count":
                    await count(host)
                case _:
                    await look(host)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
