"""Jobs that survive their worker: enqueue orders, run them, look at what became of each.

python examples/worker.py memory://

One order fails once and is tried again; one can never be read, and goes to the dead letters.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import outlive
from outlive import JobFailed, Retry

app = outlive.App("shop")


@dataclass
class Order:
    """What a customer wants."""

    id: int
    amount: int


@app.handler("orders", concurrency=5, timeout=10, retry=Retry(max_attempts=3, first=0.05))
async def charge(order: Order) -> str:
    """Charge the card; the bank knows the key, so that a second attempt charges nothing twice."""
    current = outlive.current()
    if order.id == 2 and current.attempt == 1:  # noqa: PLR2004
        raise ConnectionError("the bank does not answer")
    return f"order {order.id}: {order.amount} charged at attempt {current.attempt}"


async def main(url: str) -> None:
    """Serve until all orders are through."""
    async with outlive.connect(url, app=app, name="worker-1") as host, host.running():
        orders = [Order(1, 500), Order(2, 70)]
        jobs = await host.work.enqueue_many(charge, orders)
        jobs.append(await host.work.enqueue("orders", {"id": 3, "amount": "a lot"}))
        for job in jobs:
            try:
                print(await job.result(timeout=30))
            except JobFailed as failed:
                print(f"{failed.state}: {failed.error['message']}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
