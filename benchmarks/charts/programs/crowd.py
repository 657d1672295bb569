"""Starts machines under the orchestrator and tells how much memory each took, after gc."""

from __future__ import annotations

import asyncio
import gc
import json
import sys

from benchmarks.charts.programs.machines import resident
from benchmarks.charts.shapes import FLAT
from outlive.charts import Chart
from outlive.charts.orchestrator import Machine, Orchestrator


async def grown(count: int) -> float:
    """Bytes for each of ``count`` started machines."""
    group = Orchestrator().group("crowd")
    chart = Chart.load(FLAT)
    kept: list[Machine | None] = [None] * count
    await (await group.start(chart)).request("TOGGLE")
    gc.collect()
    before = resident()
    for number in range(count):
        kept[number] = await group.start(chart)
    gc.collect()
    return (resident() - before) / count


def main() -> None:
    """Start as many as the first line says, and answer the bytes per machine."""
    count = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(grown(count))), flush=True)


if __name__ == "__main__":
    main()
