"""Flows on a real PostgreSQL: through the host, with two of them, and inside its transactions."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import outlive
from outlive import App, Retry
from outlive.drivers.postgres.connections import Connections
from outlive.errors import StepFailed
from outlive.model.flow_options import FlowOptions
from tests.unit.work.conftest import until

pytestmark = [pytest.mark.service, pytest.mark.whitebox]


async def test_flows_and_transactional_steps_run_on_two_hosts(postgres_url):
    app, tries = App("a"), []

    @app.step(transactional=True, retry=Retry(max_attempts=3, first=0.01))
    async def pay(amount: int) -> int:
        tx = outlive.current().tx
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
        return await double(paid) + await outlive.wait_signal("more", int)

    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE paid (amount INTEGER)")
    async with (
        outlive.connect(postgres_url, app=app, name="one") as one,
        outlive.connect(postgres_url, app=app, name="two") as two,
    ):
        running = [asyncio.create_task(host.run()) for host in (one, two)]
        handles = await one.flows.start_many(flow, range(1, 9))
        handles.append(await two.flows.start(flow, 9))
        for handle in handles:
            await two.flows.get(handle.id).signal("more", 1)
        found = [await handle.result(timeout=30) for handle in handles]
        assert found == [2 * n + 1 for n in range(1, 10)]
        for host, task in zip((one, two), running, strict=True):
            host.stop()
            await task
    paid = await connection.fetch("SELECT amount FROM paid ORDER BY amount")
    await connection.close()
    assert [row["amount"] for row in paid] == list(range(1, 10))


async def test_time_and_middleware_hold_for_a_transaction_as_well(postgres_url):
    app, seen = App("a"), []

    @app.middleware
    async def around(current, call):
        # Inside of the transaction: what it raises rolls back.
        seen.append((current.step, await current.tx.fetchval("SELECT count(*) FROM kept")))
        await asyncio.sleep(0)
        return await call()

    @app.step(transactional=True, timeout=0.2)
    async def keep(n: int) -> int:
        tx = outlive.current().tx
        await tx.execute("INSERT INTO kept (n) VALUES ($1)", n)
        await tx.execute("SELECT pg_sleep($1)", 30.0 * n)
        return n

    @app.flow
    async def flow() -> str:
        await keep(0)
        try:
            await keep(1)
        except StepFailed as error:
            return f"{error.type}: {error.message}"
        return "no"

    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE kept (n INTEGER)")
    async with outlive.connect(postgres_url, app=app, name="one") as host:
        running = asyncio.create_task(host.run())
        handle = await host.flows.start(flow)
        said = await handle.result(timeout=30)
        host.stop()
        await running
    kept = await connection.fetch("SELECT n FROM kept")
    await connection.close()
    assert said == "TimeoutError: the step did not end within 0.2 s"
    assert [row["n"] for row in kept] == [0]
    assert seen == [("keep#0", 0), ("keep#1", 1)]


async def test_a_ring_that_was_lost_with_its_connection_is_made_up_for(postgres_url):
    app = App("a")

    @app.flow
    async def flow() -> str:
        return "ran"

    connection = await asyncpg.connect(postgres_url)
    async with (
        outlive.connect(postgres_url, app=app, name="runs") as host,
        outlive.connect(postgres_url, app=app, name="asks") as guest,
        host.running(),
    ):
        first = await guest.flows.start(flow)
        assert await first.result(timeout=30) == "ran"
        # Both listen; neither has done anything on that connection since it proved that it hears.
        lost = await connection.fetch(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'NOTIFY %'"
        )
        assert len(lost) == 2
        second = await guest.flows.start(flow)
        assert await second.result(timeout=30) == "ran"
    await connection.close()


@pytest.mark.timeout(90)
async def test_a_host_whose_flows_all_sleep_sends_less_than_one_statement_a_second(
    postgres_url, monkeypatch
):
    app, sent = App("a"), []

    @app.flow
    async def sleeper() -> None:
        await asyncio.sleep(3600)

    connect = Connections._connect

    async def counted(self, dsn):
        connection = await connect(self, dsn)
        # Who only begins or ends a transaction belongs to the statement inside.
        connection.add_query_logger(
            lambda record: (
                sent.append(" ".join(record.query.split())[:60])
                if not record.query.startswith(("BEGIN", "COMMIT"))
                else None
            )
        )
        return connection

    monkeypatch.setattr(Connections, "_connect", counted)
    options = FlowOptions(park_grace=0.1)
    async with outlive.connect(postgres_url, app=app, flows=options) as host:
        running = asyncio.create_task(host.run())
        await host.flows.start_many(sleeper, [() for _ in range(500)])
        await until(lambda: len(sent) > 10 and not host._desk.host.home.lives, 20)
        await asyncio.sleep(2)
        # As long as its slowest regular look takes to come round.
        sent.clear()
        await asyncio.sleep(30)
        count = len(sent)
        host.stop()
        await running
    print(f"{count / 30:.2f} statements a second: {Counter(sent).most_common()}")
    assert count < 30
    # The counting works: it renews its session every third of its ttl.
    assert sum("UPDATE" in text and ".host" in text for text in sent[:count]) >= 8


@pytest.mark.parametrize("in_tx", [False, True])
async def test_a_delayed_start_is_heard_of_by_a_host_that_has_nothing_to_do(postgres_url, in_tx):
    app = App("a")

    @app.flow
    async def late() -> bool:
        return True

    connection = await asyncpg.connect(postgres_url)
    async with outlive.connect(postgres_url, app=app) as host, host.running():
        # It has looked, and looks again in a minute.
        await until(lambda: host._desk.host._lookout.at > host._desk.host._clock.monotonic() + 50)
        if in_tx:
            async with connection.transaction():
                handle = await host.flows.start(late, delay=0.5, tx=connection)
        else:
            at = datetime.now(UTC) + timedelta(seconds=0.5)
            handle = await host.flows.start(late, at=at)
        assert await handle.result(timeout=20)
        info = await handle.status()
        assert (info.ended_at - info.created_at).total_seconds() > 0.4
    await connection.close()
