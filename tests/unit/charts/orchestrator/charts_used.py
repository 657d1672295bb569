"""Charts that the tests of the orchestrator share."""

from __future__ import annotations

import asyncio
from typing import Any

from outlive.charts import Chart, assign

TOGGLE = Chart.load(
    {
        "id": "toggle",
        "initial": "off",
        "states": {"off": {"on": {"FLIP": "on"}}, "on": {"on": {"FLIP": "off"}}},
    }
)


def _appended(context: Any, event: Any) -> list[Any]:
    return [*context["seen"], event.get("n")]


# Remembers the ``n`` of every event, in the order of their handling.
RECORDER = Chart.load(
    {
        "id": "recorder",
        "context": {"seen": []},
        "on": {"NOTE": {"actions": "note"}, "END": ".over"},
        "initial": "open",
        "states": {"open": {}, "over": {"type": "final"}},
    },
    actions={"note": assign(seen=_appended)},
)


def gated(gate: asyncio.Event, log: list[str] | None = None) -> Chart:
    """A chart whose action for SLOW awaits ``gate``, and that counts PINGs."""

    async def wait(actor: Any, event: Any) -> None:
        if log is not None:
            log.append(f"begin {event.get('n')}")
        await gate.wait()
        if log is not None:
            log.append(f"end {event.get('n')}")

    return Chart.load(
        {
            "id": "gated",
            "context": {"pings": 0},
            "on": {"SLOW": {"actions": "wait"}, "PING": {"actions": "count"}},
        },
        actions={"wait": wait, "count": assign(pings=lambda context: context["pings"] + 1)},
    )
