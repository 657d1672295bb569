"""Flows on a real PostgreSQL: through the host, with two of them, and inside its transactions."""

from __future__ import annotations

import asyncio

import asyncpg
import pytest

import holdfast
from holdfast import App, Retry

pytestmark = pytest.mark.service


async def test_flows_and_transactional_steps_run_on_two_hosts(postgres_url):
    app, tries = App("a"), []

    @app.step(transactional=True, retry=Retry(max_attempts=3, first=0.01))
    async def pay(amount: int) -> int:
        tx = holdfast.current().tx
        await tx.execute("INSERT INTO paid (amount) VALUES ($1)", amount)
        tries.append(amount)
        if len(tries) == 1:
            raise ValueError("rolled back")
        return amount

    @app.step
    def double(n: int) -> int:
        return 2 * n

    @app.flow
    async def flow(n: int) -> int:
        paid = await pay(n)
        await asyncio.sleep(0.01)
        return await double(paid) + await holdfast.wait_signal("more", int)

    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE paid (amount INTEGER)")
    async with (
        holdfast.connect(postgres_url, app=app, host="one") as one,
        holdfast.connect(postgres_url, app=app, host="two") as two,
    ):
        running = [asyncio.create_task(hf.run()) for hf in (one, two)]
        handles = await one.flows.start_many(flow, range(1, 9))
        handles.append(await two.flows.start(flow, 9))
        for handle in handles:
            await two.flows.get(handle.id).signal("more", 1)
        found = [await handle.result(timeout=30) for handle in handles]
        assert found == [2 * n + 1 for n in range(1, 10)]
        for hf, task in zip((one, two), running, strict=True):
            hf.stop()
            await task
    paid = await connection.fetch("SELECT amount FROM paid ORDER BY amount")
    await connection.close()
    assert [row["amount"] for row in paid] == list(range(1, 10))
