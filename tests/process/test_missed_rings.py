"""PostgreSQL, where a statement rings whom it saw when it began: who came later looks again soon.

Polls are so rare here that only such a look can end a test in time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import asyncpg
import pytest

import outlive
from outlive import duties
from outlive.flows import desk
from tests.process.stores import create_schema

pytestmark = [pytest.mark.service, pytest.mark.process]

# A whole test is over within this; no poll comes before.
PATIENCE_S = 30
NEVER_S = 600.0


@pytest.fixture
def url(postgres_url):
    create_schema(postgres_url)
    return postgres_url


@asynccontextmanager
async def connected(url):
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def until(connection, statement, *arguments) -> None:
    """Ask until the answer is true."""
    answer = False
    while not answer:
        await asyncio.sleep(0.01)
        answer = await connection.fetchval(statement, *arguments)


async def test_an_end_that_began_before_somebody_waited_is_noticed(url, monkeypatch) -> None:
    monkeypatch.setattr(desk, "POLL_S", NEVER_S)
    # The second comes after the end, on a slow machine too.
    monkeypatch.setattr(desk, "_DOUBTS_S", (0.02, 5.0))
    app, go = outlive.App("ends"), asyncio.Event()

    @app.step
    async def work() -> None:
        await go.wait()

    @app.flow
    async def short() -> int:
        await work()
        return 1

    async with (
        asyncio.timeout(PATIENCE_S),
        connected(url) as other,
        outlive.connect(url, app=app, name="a") as host,
        host.running(),
        outlive.connect(url, name="b") as guest,
    ):
        handle = await host.flows.start(short, id="f")
        async with other.transaction():
            await other.execute("SELECT FROM outlive.instance WHERE id = 'f' FOR UPDATE")
            go.set()
            # Its end has begun, saw no note, and waits for us.
            async with connected(url) as look:
                await until(look, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
                waiting = asyncio.ensure_future(guest.flows.get("f").result())
                await until(look, "SELECT count(*) > 0 FROM outlive.watch WHERE topic LIKE '%/f'")
                # It has looked, in vain, and sleeps.
                await asyncio.sleep(0.5)
        assert await waiting == 1
        assert await handle.result() == 1


async def test_a_flow_of_an_older_snapshot_begins_soon(url) -> None:
    app = outlive.App("starts")

    @app.flow
    async def short() -> int:
        return 1

    options = outlive.FlowOptions(poll=NEVER_S)
    async with (
        asyncio.timeout(PATIENCE_S),
        connected(url) as other,
        outlive.connect(url, app=app, name="guest") as guest,
    ):
        theirs = other.transaction(isolation="repeatable_read")
        await theirs.start()
        await other.execute("SELECT FROM outlive.instance")
        async with outlive.connect(url, app=app, name="b", flows=options) as host, host.running():
            async with connected(url) as look:
                await until(look, "SELECT count(*) > 0 FROM outlive.watch")
            # Time enough to look for what was on its way.
            await asyncio.sleep(0.1)
            handle = await guest.flows.start(short, id="f", tx=other)
            await theirs.commit()
            assert await handle.result() == 1


async def test_a_job_of_an_older_snapshot_is_claimed_soon(url, monkeypatch) -> None:
    monkeypatch.setattr(duties, "poll_of", lambda *_: NEVER_S)
    app, done = outlive.App("jobs"), asyncio.Event()

    @app.handler("q")
    async def handle(payload: int) -> None:
        del payload
        done.set()

    async with (
        asyncio.timeout(PATIENCE_S),
        connected(url) as other,
        outlive.connect(url, name="guest") as guest,
    ):
        theirs = other.transaction(isolation="repeatable_read")
        await theirs.start()
        await other.execute("SELECT FROM outlive.job")
        async with outlive.connect(url, app=app, name="b") as host, host.running():
            async with connected(url) as look:
                await until(look, "SELECT count(*) > 0 FROM outlive.waiting")
            await asyncio.sleep(0.1)
            await guest.work.enqueue("q", 1, tx=other)
            await theirs.commit()
            await done.wait()
