"""The schema of PostgreSQL: created once, refused when it does not fit, never half changed."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import pytest

from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory, schema
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.drivers.postgres.settings import read_settings
from outlive.errors import ConfigurationError, SchemaMismatch, StoreError, StoreUnavailable
from outlive.model.instance import NewInstance
from outlive.model.job import (
    Completion,
    JobFilter,
    JobState,
    LimitsBy,
    QueuePart,
    QueueSettings,
    Settled,
)
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.names import HostId, InstanceId, JobId, Owner, Token
from outlive.ports.driver import DriverContext, Migration
from tests.migrations.declared import check_declared

pytestmark = pytest.mark.service

SHAPE = """
SELECT 'column', table_name, column_name, data_type, is_nullable, collation_name, column_default
FROM information_schema.columns WHERE table_schema = 'outlive'
UNION ALL
SELECT 'index', tablename, indexname, indexdef, '', '', '' FROM pg_indexes
WHERE schemaname = 'outlive'
ORDER BY 1, 2, 3
"""


def context(**more) -> DriverContext:
    return DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="n", host=HostId("h"), **more
    )


async def open_driver(url: str, **more) -> PostgresDriver:
    return await PostgresFactory().open(parse_url(url), context(**more))


async def run(url: str, script: str) -> list[tuple]:
    connection = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connection.fetch(script)]
    finally:
        await connection.close()


async def test_an_empty_database_gets_its_schema(postgres_url) -> None:
    driver = await open_driver(postgres_url)
    asked = AcquireRequest("k", Owner("a/1"), 1_000_000, "{}", HostId("h"))
    assert isinstance(await driver.leases.acquire(asked), Grant)
    await driver.close()


async def test_migrate_says_what_it_did(postgres_url) -> None:
    newest = schema.migrations()[-1][0]
    migrated = await PostgresFactory().migrate(parse_url(postgres_url), context())
    assert migrated == Migration(before=0, after=newest)
    again = await PostgresFactory().migrate(parse_url(postgres_url), context())
    assert again == Migration(before=newest, after=newest)


async def test_fresh_equals_migrated(postgres_server, postgres_url) -> None:
    await (await open_driver(postgres_url)).close()
    fresh = await run(postgres_url, SHAPE)
    other = postgres_server.create_database()
    steps = schema.migrations()
    for count in range(1, len(steps) + 1):
        connections = Connections(settings_of(other), context())
        await schema.prepare(connections, settings_of(other), migrate=True, steps=steps[:count])
        await connections.close()
    assert await run(other, SHAPE) == fresh
    assert fresh
    postgres_server.drop_database(other)


def settings_of(url: str):
    return read_settings(parse_url(url), {}, role="host")


async def test_five_clients_create_it_once(postgres_url) -> None:
    drivers = await asyncio.gather(*(open_driver(postgres_url) for _ in range(5)))
    assert len(await run(postgres_url, "SELECT id FROM outlive.store")) == 1
    for driver in drivers:
        await driver.close()


async def test_an_older_schema_is_refused_unless_asked(postgres_url) -> None:
    await (await open_driver(postgres_url)).close()
    newest = schema.migrations()[-1][0]
    steps = [*schema.migrations(), (newest + 1, "CREATE TABLE {s}.later (x integer);")]
    connections = Connections(settings_of(postgres_url), context())
    with pytest.raises(SchemaMismatch, match="outlive migrate") as raised:
        await schema.prepare(connections, settings_of(postgres_url), migrate=False, steps=steps)
    assert (raised.value.found, raised.value.expected) == (newest, newest + 1)
    done = await schema.prepare(connections, settings_of(postgres_url), migrate=True, steps=steps)
    assert done == Migration(before=newest, after=newest + 1)
    await connections.close()


async def test_a_store_of_leases_alone_gets_the_tables_of_work_and_keeps_its_leases(
    postgres_url,
) -> None:
    settings = settings_of(postgres_url)
    connections = Connections(settings, context())
    await schema.prepare(connections, settings, migrate=False, steps=schema.migrations()[:1])
    await connections.close()
    await run(
        postgres_url,
        "INSERT INTO outlive.lease (namespace, key, slot, limit_, token, version, owner, host, "
        "expires_at, ttl_us, acquired_at, renewed_at, metadata) SELECT 'n', 'k', 0, 1, 41, 7, "
        "'a/1', 'h', now() + interval '1 hour', 1, now(), now(), '{}'",
    )
    store = await run(postgres_url, "SELECT id FROM outlive.store")
    with pytest.raises(SchemaMismatch, match="outlive migrate") as raised:
        await open_driver(postgres_url)
    assert (raised.value.found, raised.value.expected) == (1, schema.migrations()[-1][0])
    driver = await open_driver(postgres_url, migrate=True)
    (record,) = await driver.leases.get("k")
    assert (record.owner, record.token, record.version) == ("a/1", 41, 7)
    assert await run(postgres_url, "SELECT id FROM outlive.store") == store
    assert await driver.jobs.queues() == []
    await driver.close()


async def schema_four(postgres_url: str) -> None:
    """A store as the release before flows wrote it, with a job under way."""
    settings = settings_of(postgres_url)
    connections = Connections(settings, context())
    await schema.prepare(connections, settings, migrate=False, steps=schema.migrations()[:4])
    await connections.close()
    await run(
        postgres_url,
        "INSERT INTO outlive.job (namespace, id, queue, token, state, blocked, priority, "
        "max_attempts, max_losses, retention_us, enqueued_at, due_at, session, retry, headers, "
        "payload) SELECT 'n', 'j' || n, 'q', n, CASE n WHEN 1 THEN 'claimed' ELSE 'ready' END, "
        "false, 0, 25, 10, 86400000000, now(), now(), CASE n WHEN 1 THEN 'h' END, '{}', '{}', "
        "n::text FROM generate_series(1, 3) n",
    )


async def test_a_store_of_work_gets_the_tables_of_flows_and_keeps_its_jobs(postgres_url) -> None:
    await schema_four(postgres_url)
    jobs = "SELECT id, queue, token, state, payload, session FROM outlive.job ORDER BY id"
    before = await run(postgres_url, jobs)
    with pytest.raises(SchemaMismatch, match="outlive migrate"):
        await open_driver(postgres_url)
    driver = await open_driver(postgres_url, migrate=True)
    assert await run(postgres_url, jobs) == before
    assert await driver.jobs.complete([Completion(JobId("j1"), Token(1), "7")]) == [Settled.OK]
    (started,) = await driver.instances.start(
        [NewInstance(id=InstanceId("i"), kind="flow", name="f", input="1", request="r")]
    )
    assert started.entry == "created"
    await driver.close()


async def test_a_host_of_the_release_before_flows_goes_on_with_its_jobs(postgres_url) -> None:
    """Its statements name no column that is new, and the trigger leaves its jobs alone."""
    await schema_four(postgres_url)
    await (await open_driver(postgres_url, migrate=True)).close()
    await run(
        postgres_url,
        "UPDATE outlive.job SET state = 'done', settled = 'done', ended_at = now() WHERE id = 'j1'",
    )
    assert await run(postgres_url, "SELECT count(*) FROM outlive.letter") == [(0,)]


async def test_a_migration_to_flows_that_fails_changes_nothing(postgres_url) -> None:
    await schema_four(postgres_url)
    before = await run(postgres_url, SHAPE)
    # A function of that name stands in the way of the last statements.
    await run(
        postgres_url,
        "CREATE FUNCTION outlive.job_answers() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    )
    with pytest.raises(StoreError):
        await open_driver(postgres_url, migrate=True)
    assert await run(postgres_url, SHAPE) == before
    assert await run(postgres_url, "SELECT max(version) FROM outlive.schema_version") == [(4,)]


@pytest.mark.parametrize("oldest", ["NULL", "99"])
async def test_a_newer_schema_is_refused_even_when_asked(postgres_url, oldest) -> None:
    await (await open_driver(postgres_url)).close()
    await run(
        postgres_url,
        "INSERT INTO outlive.schema_version (version, compatible_with) "
        f"VALUES (98, 1), (99, {oldest})",
    )
    for migrate in (None, True):
        with pytest.raises(SchemaMismatch, match="install the release here") as raised:
            await open_driver(postgres_url, migrate=migrate)
        assert raised.value.found == 99


async def test_a_newer_schema_that_serves_this_release_is_used_as_it_is(
    postgres_url, caplog
) -> None:
    await (await open_driver(postgres_url)).close()
    newest = schema.migrations()[-1][0]
    await run(
        postgres_url,
        "INSERT INTO outlive.schema_version (version, compatible_with) "
        f"VALUES (98, 1), (99, {newest})",
    )
    before = await run(postgres_url, SHAPE)
    with caplog.at_level("INFO", logger="outlive"):
        for migrate in (None, True):
            driver = await open_driver(postgres_url, migrate=migrate)
            asked = AcquireRequest(f"k{migrate}", Owner("a/1"), 1_000_000, "{}", HostId("h"))
            assert isinstance(await driver.leases.acquire(asked), Grant)
            await driver.close()
        await (await open_driver(postgres_url, role="keeper")).close()
    told = [line for line in caplog.messages if "number 99" in line]
    assert len(told) == 2
    done = await PostgresFactory().migrate(parse_url(postgres_url), context())
    assert done == Migration(before=99, after=99)
    assert await run(postgres_url, SHAPE) == before


def test_every_migration_says_which_releases_it_serves() -> None:
    check_declared(schema.migrations(), first=6)


async def test_a_migration_gives_way_to_who_holds_a_table_and_changes_nothing(postgres_url) -> None:
    """Hosts that only want to renew would have to wait behind it."""
    settings = settings_of(postgres_url)
    connections = Connections(settings, context())
    await schema.prepare(connections, settings, migrate=False, steps=schema.migrations()[:5])
    before = await run(postgres_url, SHAPE)
    busy = await asyncpg.connect(postgres_url)
    async with busy.transaction():
        await busy.execute("SELECT FROM outlive.schema_version")
        with pytest.raises(StoreUnavailable):
            await schema.prepare(connections, settings, migrate=True)
        assert await run(postgres_url, SHAPE) == before
    await busy.close()
    done = await schema.prepare(connections, settings, migrate=True)
    assert done == Migration(before=5, after=schema.migrations()[-1][0])
    await connections.close()


async def test_a_migration_may_take_longer_than_other_statements(postgres_url) -> None:
    """An index of a large table is not built within the limit of a claim."""
    await (await open_driver(postgres_url)).close()
    newest = schema.migrations()[-1][0]
    slow = (newest + 1, "-- compatible_with: 1\nSELECT pg_sleep(1.6);")
    settings = settings_of(f"{postgres_url}?command_timeout=0.5")
    connections = Connections(settings, context())
    with pytest.raises(StoreError):
        await connections.fetch("SELECT pg_sleep(1.6)", write=False)
    done = await schema.prepare(
        connections, settings, migrate=True, steps=[*schema.migrations(), slow]
    )
    assert done == Migration(before=newest, after=newest + 1)
    await connections.close()


# How the release of schema 6 asks for a page and for the names of queues.
PAGE_6 = """
SELECT id FROM outlive.job WHERE namespace = 'n' AND queue = 'q' AND number > 0
ORDER BY number LIMIT 10
"""
NAMES_6 = "SELECT queue FROM outlive.job WHERE namespace = 'n' AND queue > '' ORDER BY 1 LIMIT 1"


async def test_claimed_jobs_are_listed_before_and_after_they_leave_the_index_of_pages(
    postgres_url,
) -> None:
    """By this release and by the one before it, which goes on beside it."""
    await schema_four(postgres_url)
    names = ["j1", "j2", "j3"]
    assert await run(postgres_url, PAGE_6) == [(name,) for name in names]
    driver = await open_driver(postgres_url, migrate=True)
    found = await driver.jobs.list(JobFilter(), after=None, limit=10)
    assert [(each.id, each.state) for each in found] == list(
        zip(names, (JobState.CLAIMED, JobState.READY, JobState.READY), strict=True)
    )
    (queue,) = await driver.jobs.queues()
    assert queue.counts == {JobState.CLAIMED: 1, JobState.READY: 2}
    await driver.close()
    assert await run(postgres_url, PAGE_6) == [(name,) for name in names]
    assert await run(postgres_url, NAMES_6) == [("q",)]


# How the releases up to schema 7 put the settings of a queue.
PUT_QUEUE_7 = """
INSERT INTO outlive.queue (namespace, name, mode, concurrency, rate, rate_period_us)
VALUES ('n', '{}', '{}', {}, {}, 1000000)
ON CONFLICT (namespace, name) DO UPDATE SET
    mode = excluded.mode, concurrency = excluded.concurrency, rate = excluded.rate,
    rate_period_us = excluded.rate_period_us
"""


async def test_limits_of_older_releases_count_as_declared(postgres_url) -> None:
    """Those of before, and those that a host of an older release sets beside this one."""
    settings = settings_of(postgres_url)
    connections = Connections(settings, context())
    await schema.prepare(connections, settings, migrate=False, steps=schema.migrations()[:7])
    await connections.close()
    await run(postgres_url, PUT_QUEUE_7.format("before", "paused", 5, "NULL"))
    driver = await open_driver(postgres_url, migrate=True)
    await run(postgres_url, PUT_QUEUE_7.format("beside", "open", "NULL", 3))
    found = {queue.settings.name: queue.settings for queue in await driver.jobs.queues()}
    assert {each.limited_by for each in found.values()} == {LimitsBy.HANDLER}
    assert (found["before"].mode, found["before"].concurrency) == ("paused", 5)
    limits = (QueuePart.LIMITS,)
    for name in ("before", "beside"):
        await driver.jobs.put_queue(QueueSettings(name=name, concurrency=2), parts=limits)
        operators = QueueSettings(name=name, concurrency=1, limits_by=LimitsBy.OPERATOR)
        await driver.jobs.put_queue(operators, parts=limits)
    # One that lifts them does not know whose they are.
    await run(postgres_url, PUT_QUEUE_7.format("before", "open", "NULL", "NULL"))
    for name in ("before", "beside"):
        await driver.jobs.put_queue(QueueSettings(name=name, concurrency=4), parts=limits)
    found = {queue.settings.name: queue.settings for queue in await driver.jobs.queues()}
    assert found["before"] == QueueSettings(name="before", concurrency=4)
    assert found["beside"] == operators
    await driver.close()


async def test_a_failing_migration_changes_nothing(postgres_url) -> None:
    await (await open_driver(postgres_url)).close()
    before = await run(postgres_url, SHAPE)
    newest = schema.migrations()[-1][0]
    broken = (newest + 1, "CREATE TABLE {s}.half (x integer); SELECT 1 / 0;")
    steps = [*schema.migrations(), broken]
    connections = Connections(settings_of(postgres_url), context())
    with pytest.raises(StoreError):
        await schema.prepare(connections, settings_of(postgres_url), migrate=True, steps=steps)
    await connections.close()
    assert await run(postgres_url, SHAPE) == before
    await (await open_driver(postgres_url)).close()


async def test_two_schemas_in_one_database_are_two_stores(postgres_url) -> None:
    one = await open_driver(postgres_url)
    two = await open_driver(postgres_url + "?schema=other")
    asked = AcquireRequest("k", Owner("a/1"), 1_000_000, "{}", HostId("h"))
    assert isinstance(await one.leases.acquire(asked), Grant)
    assert await two.leases.get("k") == []
    await one.close()
    await two.close()


@pytest.mark.parametrize("name", ["", "A", "x y", 'x"', "1x", "pg_x", "x;y", "é", "x" * 49])
async def test_a_strange_schema_name_is_refused(postgres_url, name) -> None:
    with pytest.raises(ConfigurationError):
        await open_driver(postgres_url, options={"schema": name})
