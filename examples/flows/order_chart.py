"""An order whose states are a chart, and whose life is a flow: it survives its host.

python examples/flows/order_chart.py memory://

The flow does what the chart asks for: a service is a step, a delay is a timer of the flow, events
come in as signals. When its host dies, another host replays it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import outlive
from outlive.charts import Chart, Event, assign
from outlive.charts.effects import StartChild, StartTimer, StopTimer
from outlive.charts.events import done_actor, error_actor

app = outlive.App("shop")
LIMIT = 1000
NEVER = None, Event("never")


@app.step
async def charge(amount: int) -> str:
    """Stand for the call of a payment provider."""
    if amount > LIMIT:
        raise ValueError("the card has a limit")
    return f"receipt-{amount}"


asked = {"target": "paying", "actions": "keep"}
payment = {
    "src": "charge",
    "input": lambda context: context["amount"],
    "onDone": {"target": "paid", "actions": "keep"},
    "onError": "open",
}
order = Chart.load(
    {
        "id": "order",
        "context": {"amount": 0, "output": None},
        "initial": "open",
        "states": {
            "open": {"on": {"PAY": asked}, "after": {"2000": "expired"}},
            "paying": {"invoke": payment},
            **{ended: {"type": "final"} for ended in ("paid", "expired")},
        },
    },
    actions={"keep": assign(lambda event: event.data)},
    services={"charge": charge},
)


@app.flow
async def sell() -> str:
    """Drive one order to its end."""
    clock, late = asyncio.get_running_loop(), NEVER
    snapshot, effects = order.begin()
    while snapshot.status == "active":
        event = None
        for effect in effects:
            if isinstance(effect, StartChild):
                try:
                    event = Event(done_actor(effect.id), {"output": await charge(effect.input)})
                except outlive.StepFailed as error:
                    event = Event(error_actor(effect.id), {"error": error})
            elif isinstance(effect, StartTimer):
                late = clock.time() + effect.delay_ms / 1000, effect.event
            elif isinstance(effect, StopTimer):
                late = NEVER
        snapshot, effects = order.step(snapshot, event or await arrival(*late))
    return f"{snapshot.value} {snapshot.context['output']}"


async def arrival(at: float | None, late: Event) -> Event:
    """Wait for an event from outside, or for the end of the delay."""
    try:
        async with asyncio.timeout_at(at):
            signal = await outlive.wait_signal("event", dict[str, Any])
    except TimeoutError:
        return late
    return Event(signal.pop("type"), signal)


async def main(url: str) -> None:
    """Pay one order, after a card was refused, and leave another alone."""
    async with outlive.connect(url, app=app, name="shop-1") as host, host.running():
        paid, left = [await host.flows.start(sell, id=name) for name in ("o-1", "o-2")]
        for amount in (5000, 50):
            await paid.signal("event", {"type": "PAY", "amount": amount})
        print("o-1:", await paid.result(timeout=30), "o-2:", await left.result(timeout=30))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("usage: python examples/flows/order_chart.py URL, such as memory://")
    asyncio.run(main(sys.argv[1]))
