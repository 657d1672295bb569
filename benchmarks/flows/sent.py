"""Statements of a flow of one step that runs where it was started, and of a host without flows."""

from __future__ import annotations

from benchmarks import sent
from benchmarks.flows.effort import Effort
from benchmarks.flows.shapes import open_host
from benchmarks.report import Row

NAME = sent.NAME


async def measure(backend: sent.Backend, effort: Effort) -> list[Row]:
    """What one host sends for each."""
    sent.check(backend)
    url = backend.new_store()
    async with backend.counting(url) as count, open_host(url) as host:
        flow = await sent.of_act(backend, "one-step", count, lambda: host.one(1))
        return [flow, await sent.of_idle(backend, count, effort.idle_s)]
