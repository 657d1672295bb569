"""An order that undoes what it did when a later step fails.

python examples/flows/order_saga.py memory://

Reserving and charging register what undoes them. Shipping refuses one order, and the charge and the
reservation are taken back, in reverse, before the flow fails.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import outlive
from outlive import FlowFailed, Retry

app = outlive.App("shop")


@dataclass
class Order:
    """What a customer wants."""

    id: str
    amount: int
    country: str


@app.step
async def reserve(order: Order) -> str:
    """Put the goods aside."""
    print(f"{order.id}: reserved")
    return f"shelf-{order.id}"


@app.step
async def unreserve(shelf: str) -> None:
    """Put them back."""
    print(f"{shelf}: put back")


@app.step(retry=Retry(max_attempts=3, first=0.05))
async def charge(order: Order) -> str:
    """Charge the card. The provider knows the key: a second attempt charges nothing twice."""
    print(f"{order.id}: charged {order.amount} under {outlive.current().idempotency_key}")
    return f"receipt-{order.id}"


@app.step
async def refund(receipt: str) -> None:
    """Give the money back."""
    print(f"{receipt}: refunded")


@app.step(retry=Retry(max_attempts=1))
async def ship(order: Order) -> str:
    """Hand it to the carrier, who does not go everywhere."""
    if order.country == "Atlantis":
        raise ValueError("no carrier goes to Atlantis")
    print(f"{order.id}: shipped")
    return f"parcel-{order.id}"


@app.flow
async def checkout(order: Order) -> str:
    """Reserve, charge, ship: all of it, or none."""
    async with outlive.saga() as saga:
        shelf = await reserve(order)
        saga.add(unreserve, shelf)
        receipt = await charge(order)
        saga.add(refund, receipt)
        return await ship(order)


async def main(url: str) -> None:
    """Run one order that goes through, and one that does not."""
    async with outlive.connect(url, app=app, name="shop-1") as host, host.running():
        for order in (Order("o-1", 500, "Norway"), Order("o-2", 70, "Atlantis")):
            handle = await host.flows.start(checkout, order, id=order.id)
            try:
                print(await handle.result(timeout=30))
            except FlowFailed as failed:
                print(f"{order.id} failed: {failed.message}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python examples/flows/order_saga.py URL, such as memory://")
    asyncio.run(main(sys.argv[1]))
