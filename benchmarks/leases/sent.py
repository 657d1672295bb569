"""Statements of one acquire and release of a key that nobody else wants."""

from __future__ import annotations

import outlive
from benchmarks import sent
from benchmarks.leases.backend import Effort
from benchmarks.report import Row

NAME = sent.NAME


async def measure(backend: sent.Backend, effort: Effort) -> list[Row]:
    """What the owner sends for a pair."""
    del effort
    sent.check(backend)
    url = backend.new_store()
    async with backend.counting(url) as count, outlive.connect(url, name="bench") as host:

        async def pair() -> None:
            lease = await host.leases.acquire(NAME)
            await lease.release()

        return [await sent.of_act(backend, "lease-pair", count, pair)]
