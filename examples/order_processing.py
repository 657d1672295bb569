"""An order as a machine, paid by a service: ``python examples/order_processing.py``."""

from __future__ import annotations

import asyncio

import outlive
from outlive.charts import assign

app = outlive.App("shop")
CARD_LIMIT = 1000


async def charge(input: int) -> str:  # noqa: A002 - the name of what it is given
    """Stand for the call of a payment provider."""
    if input > CARD_LIMIT:
        raise ValueError("the card has a limit")
    return f"receipt-{input}"


payment = {
    "src": "charge",
    "input": lambda context: context["amount"],
    "onDone": {"target": "paid", "actions": "keep"},
    "onError": "open",
}
order = app.chart(
    {
        "id": "order",
        "context": {"amount": 0, "output": None},
        "initial": "open",
        "states": {
            "open": {
                "on": {"PAY": {"target": "paying", "guard": "positive", "actions": "keep"}},
                "after": {"60000": "expired"},
            },
            "paying": {"invoke": payment},
            "paid": {},
            "expired": {},
        },
    },
    guards={"positive": lambda event: event["amount"] > 0},
    actions={"keep": assign(lambda event: event.data)},
    services={"charge": charge},
)


async def main() -> None:
    """Pay too little, too much, and right."""
    async with outlive.orchestrator().group("orders") as group:
        machine = await group.start(order)
        for amount in (0, 5000, 50):
            await machine.request("PAY", amount=amount)
            seen = await machine.wait_for(lambda now: not now.matches("paying"), timeout=5)
            print(amount, seen.value, seen.context["output"])


if __name__ == "__main__":
    asyncio.run(main())
