"""A worker over HTTP: ``http_worker.py URL TTL GRACE``; the token comes from the environment.

Says ``begin ID`` and ``done ID`` for each item; the payload is how long it takes.
"""

from __future__ import annotations

import asyncio
import os
import sys

from outlive.client import Client, HttpWorker, Item


async def work(item: Item) -> str:
    print("begin", item.id, flush=True)
    await asyncio.sleep(item.payload)
    print("done", item.id, flush=True)
    return "worked"


async def main() -> None:
    url, ttl, grace = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    token = os.environ["WORKER_TOKEN"]
    async with Client(url, token, worker_id=f"w-{os.getpid()}", ttl=ttl) as client:
        await HttpWorker(client, ["mail"], work, concurrency=4, grace=grace).run()
    print("stopped", flush=True)


asyncio.run(main())
