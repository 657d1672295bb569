"""A traffic light whose pedestrians have a region of their own, beside that of the cars.

python examples/traffic_light.py
"""

from __future__ import annotations

import asyncio

import outlive
from outlive.charts import Chart

light = Chart.load(
    {
        "id": "light",
        "type": "parallel",
        "states": {
            "cars": {
                "initial": "green",
                "states": {
                    "green": {"after": {"40": "yellow"}},
                    "yellow": {"after": {"20": "red"}},
                    "red": {"after": {"60": "green"}},
                },
            },
            "pedestrians": {
                "initial": "wait",
                "states": {
                    "wait": {"on": {"PUSH": "asked"}},
                    # Walks as soon as the cars stand, and stops before they drive again.
                    "asked": {"always": {"target": "walk", "guard": "cars_stand"}},
                    "walk": {"after": {"30": "wait"}},
                },
            },
        },
    },
    guards={"cars_stand": outlive.charts.state_in({"cars": "red"})},
)


async def main() -> None:
    """Push the button while the cars drive, and see what lights up."""
    async with outlive.orchestrator().group("crossing") as group:
        machine = await group.start(light)
        unsubscribe = machine.subscribe(lambda seen: print(*seen.value.values()))
        await machine.send("PUSH")
        await machine.wait_for(lambda seen: seen.matches("pedestrians.walk"), timeout=5)
        await machine.wait_for(lambda seen: seen.matches("cars.green"), timeout=5)
        unsubscribe()


if __name__ == "__main__":
    asyncio.run(main())
