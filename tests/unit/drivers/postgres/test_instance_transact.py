"""A user's writes and the record of the step commit together or not at all, on PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from outlive.drivers.postgres.driver import PostgresDriver
from outlive.errors import OutcomeUnknown, StoreUnavailable, UsageError
from outlive.model.instance import Commit, Committed
from outlive.names import InstanceId
from tests.services.proxy import FaultProxy
from tests.unit.drivers.postgres.instances import mine, step
from tests.unit.drivers.postgres.jobs import job, open_host

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

A = InstanceId("a")


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    opened = await open_host(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
async def user(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    """The user's own connection, and a table of theirs."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE account (id int PRIMARY KEY, amount int)")
    yield connection
    await connection.close()


async def begun(driver: PostgresDriver) -> Commit:
    (started,) = await driver.instances.start([mine("a")])
    return step(started)


async def pay(driver: PostgresDriver, commit: Commit, number: int = 1) -> Committed:
    async def body(connection: asyncpg.Connection) -> Commit:
        async with connection.transaction():
            await connection.execute("INSERT INTO account VALUES ($1, 5)", number)
        return commit

    return await driver.instances.transact(A, body)


async def accounts(user: asyncpg.Connection) -> list[int]:
    return [row["id"] for row in await user.fetch("SELECT id FROM account ORDER BY id")]


async def test_both_commit_together(driver, user) -> None:
    assert (await pay(driver, await begun(driver))).ok
    assert await accounts(user) == [1]
    assert len(await driver.instances.history(A, after=0, limit=9)) == 1


async def test_a_stale_record_takes_the_writes_with_it(driver, user) -> None:
    commit = await begun(driver)
    await driver.instances.terminate(A, outcome="1")
    ran = False

    async def body(connection: asyncpg.Connection) -> Commit:
        nonlocal ran
        ran = True
        return commit

    assert not (await driver.instances.transact(A, body)).ok
    assert not ran
    await driver.instances.start([mine("b")])
    assert await accounts(user) == []


async def test_who_is_fenced_meanwhile_writes_nothing(driver, user) -> None:
    commit = await begun(driver)

    async def body(connection: asyncpg.Connection) -> Commit:
        await connection.execute("INSERT INTO account VALUES (1, 5)")
        await driver.instances.terminate(A, outcome="1")
        return commit

    assert not (await driver.instances.transact(A, body)).ok
    assert await accounts(user) == []


async def test_a_repeat_writes_nothing_again(driver, user) -> None:
    commit = await begun(driver)
    assert (await pay(driver, commit)).ok
    assert (await pay(driver, commit, 2)).ok
    assert await accounts(user) == [1]


async def test_errors_of_the_body_are_its_own(driver, user) -> None:
    await user.execute("INSERT INTO account VALUES (1, 5)")
    commit = await begun(driver)
    with pytest.raises(asyncpg.UniqueViolationError):
        await pay(driver, commit)
    assert (await pay(driver, commit, 2)).ok


async def test_a_body_may_not_end_the_transaction(driver, user) -> None:
    commit = await begun(driver)

    async def body(connection: asyncpg.Connection) -> Commit:
        await connection.execute("COMMIT")
        return commit

    with pytest.raises(UsageError, match="ended the transaction"):
        await driver.instances.transact(A, body)
    (started,) = await driver.instances.start([mine("b")])
    other = step(started)
    with pytest.raises(UsageError, match="must return a commit of"):
        await driver.instances.transact(A, _says(other))
    assert (await pay(driver, commit)).ok


def _says(commit: Commit):
    async def body(connection: asyncpg.Connection) -> Commit:
        return commit

    return body


async def test_a_slow_body_stalls_no_batch_and_users_plans_are_their_own(driver, user) -> None:
    commit = await begun(driver)
    (other,) = await driver.instances.start([mine("b")])
    inside, go_on = asyncio.Event(), asyncio.Event()
    settings: list[str] = []

    async def body(connection: asyncpg.Connection) -> Commit:
        settings.append(await connection.fetchval("SHOW enable_seqscan"))
        inside.set()
        await go_on.wait()
        return commit

    task = asyncio.create_task(driver.instances.transact(A, body))
    await inside.wait()
    assert (await driver.instances.commit([step(other)]))[0].ok
    go_on.set()
    assert (await task).ok
    assert settings == ["on"]


async def test_a_cancelled_body_leaves_nothing(driver, user) -> None:
    commit = await begun(driver)
    inside = asyncio.Event()

    async def body(connection: asyncpg.Connection) -> Commit:
        await connection.execute("INSERT INTO account VALUES (1, 5)")
        inside.set()
        await asyncio.Event().wait()
        return commit

    task = asyncio.create_task(driver.instances.transact(A, body))
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The row that the body wrote is free again when the server has seen the connection end.
    assert (await pay(driver, commit)).ok
    assert await accounts(user) == [1]


async def test_jobs_with_keys_commit_too(driver, user) -> None:
    commit = await begun(driver)
    keyed = Commit(
        id=A,
        token=commit.token,
        version=1,
        commit="k",
        events="[]",
        jobs=(job(ordering_key="o"), job(unique_key="u")),
    )
    assert (await pay(driver, keyed)).ok
    (queue,) = await driver.jobs.queues()
    assert sum(queue.counts.values()) == 2


async def test_a_server_that_dies_in_the_body_is_no_record(driver, user) -> None:
    commit = await begun(driver)

    async def body(connection: asyncpg.Connection) -> Commit:
        await connection.execute("INSERT INTO account VALUES (1, 5)")
        await user.execute("SELECT pg_terminate_backend($1)", connection.get_server_pid())
        return commit

    with pytest.raises(StoreUnavailable):
        await driver.instances.transact(A, body)
    assert await accounts(user) == []
    assert (await pay(driver, commit)).ok


async def test_a_lost_reply_of_commit_is_unknown_and_history_tells(postgres_url, user) -> None:
    with FaultProxy.for_url(postgres_url) as proxy:
        driver = await open_host(proxy.url_of(postgres_url), command_timeout=2)
        commit = await begun(driver)

        async def body(connection: asyncpg.Connection) -> Commit:
            await connection.execute("INSERT INTO account VALUES (1, 5)")
            await asyncio.to_thread(proxy.drop_reply_after, b"COMMIT;")
            return commit

        with pytest.raises(OutcomeUnknown):
            await driver.instances.transact(A, body)
        assert proxy.counters.replies_dropped == 1
        await asyncio.to_thread(proxy.pass_through)
        (row,) = await driver.instances.history(A, after=0, limit=9)
        assert (row.version, row.events) == (commit.version, commit.events)
        assert await accounts(user) == [1]
        await driver.close()
