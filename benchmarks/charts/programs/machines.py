"""Starts machines and tells how much memory each took: bytes of resident memory, after gc."""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from benchmarks.charts.shapes import FLAT
from outlive.charts import Actor, Chart


def resident() -> int:
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    """Start as many as the first line says, and answer the bytes per machine."""
    count = json.loads(sys.stdin.readline())
    chart = Chart.load(FLAT)
    kept: list[Actor | None] = [None] * count
    Actor(chart).start().send("TOGGLE")
    gc.collect()
    before = resident()
    for number in range(count):
        kept[number] = Actor(chart, id=f"toggle#1#{number:016x}").start()
    gc.collect()
    print(json.dumps((resident() - before) / count), flush=True)


if __name__ == "__main__":
    main()
