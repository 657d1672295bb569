"""Statements of one acquire and release of a free key."""

from __future__ import annotations

import outlive
from benchmarks import sent
from benchmarks.leases.backend import Effort
from benchmarks.report import Row

NAME = f"{sent.NAME}-lease-pair"


async def measure(backend: sent.Backend, effort: Effort) -> list[Row]:
    """Of a pair."""
    del effort
    url = backend.new_store()
    async with sent.counting(backend, url) as count, outlive.connect(url, name="bench") as host:

        async def pair() -> None:
            lease = await host.leases.acquire(NAME)
            await lease.release()

        return [await sent.of_act(f"{backend.name}/{NAME}", count, pair)]
