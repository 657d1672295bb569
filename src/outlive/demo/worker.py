"""One instance of the demonstration: races for the lock, then writes under it until told to stop.

Speaks to the story on standard output, one JSON object a line, and listens on standard input.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import outlive
from outlive.demo.ledger import write_fenced, write_guarded

KEY = "nightly-report"
TTL_S = 2.0
_WRITE_EVERY_S = 0.25


def say(event: str, **fields: object) -> None:
    """Tell the story what happened."""
    print(json.dumps({"event": event, **fields}), flush=True)


async def race(host: outlive.Host, region: str) -> outlive.Lease:
    """Try once; a loser says to whom it lost, and waits its turn."""
    lease = await host.leases.try_acquire(KEY, ttl=TTL_S, metadata={"region": region})
    if lease is None:
        info = await host.leases.get(KEY)
        say("lost", to=None if info is None else info.metadata.get("region"))
        lease = await host.leases.acquire(KEY, ttl=TTL_S, metadata={"region": region})
    say("won", token=lease.token, previous=lease.previous_owner)
    return lease


async def work(lease: outlive.Lease, region: str, ledger: sqlite3.Connection) -> None:
    """Write a line again and again, each in a transaction tied to the lease."""
    token = lease.token
    while True:
        try:
            await write_guarded(ledger, lease, region)
            say("wrote", token=token)
        except outlive.LeaseLost as error:
            say("refused", by="its own handle", why=str(error))
            break
        await asyncio.sleep(_WRITE_EVERY_S)
    # A write that was on its way when the process stalled carries only the old token.
    if not write_fenced(ledger, token, region):
        say("refused", by="the database", why=f"token {token} is older than the newest one seen")


async def main(file: Path, region: str) -> None:
    """Run one instance until its lease is lost or the story ends it."""
    # The story tells of the loss itself; the log would say it a second time.
    logging.getLogger("outlive").setLevel(logging.CRITICAL)
    async with outlive.connect(f"sqlite:///{file}", name=region) as host:
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        lease = await race(host, region)
        with closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as ledger:
            await work(lease, region, ledger)
        say("ended")
        # The story ends a worker that still has something to say by closing its input.
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
