"""Two connected hosts do nothing: one owns a lease, the other waits for it.

What they send to the store meanwhile is counted at the store's own door: every statement that reads
or writes, and every transaction. BEGIN and COMMIT are not statements of their own here.
"""

from __future__ import annotations

import asyncio

import outlive
from benchmarks.leases.backend import TTL_S, Backend, Effort
from benchmarks.report import Row

NAME = "idle"
_HOSTS = 2
_KEY = "idle"

# What connecting, acquiring and taking a place in the queue cost is over after this.
_SETTLE_S = 1.0


async def measure(backend: Backend, effort: Effort) -> list[Row]:
    """Statements and transactions per second and host."""
    url = backend.new_store()
    async with (
        backend.counting(url) as count,
        outlive.connect(url, name="bench-owner") as owner,
        outlive.connect(url, name="bench-waiter") as waiter,
    ):
        lease = await owner.leases.acquire(_KEY, ttl=TTL_S)
        waiting = asyncio.create_task(waiter.leases.acquire(_KEY, ttl=TTL_S))
        await asyncio.sleep(_SETTLE_S)
        before = count()
        await asyncio.sleep(effort.idle_s)
        after = count()
        if waiting.done() or not lease.is_held:
            raise RuntimeError("the lease changed hands: this was not idle")
        await lease.release()
        await (await waiting).release()
    per = effort.idle_s * _HOSTS
    bar = backend.bars.get(NAME)
    statements = (after.statements - before.statements) / per
    transactions = (after.transactions - before.transactions) / per
    name = f"{backend.name}/{NAME}"
    return [
        Row(name=f"{name}-statements", unit="/s/host", ours=statements, bar=bar, at_most=True),
        Row(name=f"{name}-transactions", unit="/s/host", ours=transactions, at_most=True),
    ]
