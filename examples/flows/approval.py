"""A purchase that waits for a person, and not forever.

python examples/flows/approval.py memory://

One purchase is approved by a signal; nobody answers for the other, and its deadline passes. While
they wait, the flows are rows in the store and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import outlive

app = outlive.App("office")


@dataclass
class Purchase:
    """What somebody wants to buy."""

    what: str
    price: int


@dataclass
class Approval:
    """The word of who may decide."""

    by: str
    granted: bool


@app.step
async def ask(purchase: Purchase) -> None:
    """Stand for the mail that asks for a decision."""
    print(f"may we buy {purchase.what} for {purchase.price}?")


@app.flow
async def buy(purchase: Purchase, patience: float) -> str:
    """Ask, then wait for the answer or for the deadline."""
    await ask(purchase)
    outlive.set_status("waiting for approval")
    try:
        async with asyncio.timeout(patience):
            answer = await outlive.wait_signal("decided", Approval)
    except TimeoutError:
        return f"{purchase.what}: nobody decided in time"
    word = "approved" if answer.granted else "refused"
    return f"{purchase.what}: {word} by {answer.by}"


async def main(url: str) -> None:
    """Answer one of two."""
    async with outlive.connect(url, app=app, name="office-1") as host, host.running():
        ship = await host.flows.start(buy, Purchase("a ship", 9_000_000), 3600, id="ship")
        pens = await host.flows.start(buy, Purchase("pens", 12), 0.3, id="pens")
        await ship.signal("decided", Approval(by="Ann", granted=True))
        print(await ship.result(timeout=30))
        print(await pens.result(timeout=30))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python examples/flows/approval.py URL, such as memory://")
    asyncio.run(main(sys.argv[1]))
