"""Statements of a flow of one step that runs where it was started, and of a host without flows."""

from __future__ import annotations

from benchmarks import sent
from benchmarks.flows.effort import Effort
from benchmarks.flows.shapes import open_host
from benchmarks.report import Row

FLOW_NAME = f"{sent.NAME}-one-step"
IDLE_NAME = f"{sent.NAME}-idle"


async def measure_flow(backend: sent.Backend, effort: Effort) -> list[Row]:
    """Of a flow from its start to its result."""
    del effort
    url = backend.new_store()
    async with sent.counting(backend, url) as count, open_host(url) as host:
        return [
            await sent.of_act(f"{backend.name}/{FLOW_NAME}", count, lambda: host.one(1)),
        ]


async def measure_idle(backend: sent.Backend, effort: Effort) -> list[Row]:
    """Of a host that is alone."""
    url = backend.new_store()
    async with sent.counting(backend, url) as count, open_host(url):
        return [await sent.of_idle(f"{backend.name}/{IDLE_NAME}", count, effort.idle_s)]
