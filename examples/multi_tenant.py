"""One group for each tenant: the same names in each, nothing reaches across, all ends together.

python examples/multi_tenant.py
"""

from __future__ import annotations

import asyncio

import outlive
from outlive.charts import Chart, assign, send_to
from outlive.charts.orchestrator import Group

counter = Chart.load(
    {"id": "counter", "context": {"count": 0}, "on": {"ADD": {"actions": "add"}}},
    actions={"add": assign(count=lambda context: context["count"] + 1)},
)
worker = Chart.load(
    {"id": "worker", "on": {"WORK": {"actions": "report"}}},
    actions={"report": send_to("counter", "ADD", scope="machine")},
)


class Tenants:
    """The tenants of this process, each with its own machines."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    async def add(self, name: str) -> Group:
        """Let a tenant in."""
        group = self._groups[name] = outlive.orchestrator().group(name)
        await group.start(counter)
        await group.start(worker)
        return group

    async def remove(self, name: str) -> None:
        """Let a tenant go, with everything that it runs."""
        await self._groups.pop(name).release()


async def main() -> None:
    """Let two tenants work, and one go."""
    tenants = Tenants()
    acme, bolt = await tenants.add("acme"), await tenants.add("bolt")
    for _ in range(3):
        await acme.request("worker", "WORK")
    for group in (acme, bolt):
        print(group.name, (await group.request("counter", "LOOK")).context["count"])
    await tenants.remove("acme")
    try:
        await acme.send("worker", "WORK")
    except outlive.GroupReleased as error:
        print(error)
    await tenants.remove("bolt")


if __name__ == "__main__":
    asyncio.run(main())
