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
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext, Migration

pytestmark = pytest.mark.service

SHAPE = """
SELECT 'column', table_name, column_name, data_type, is_nullable, collation_name, column_default
FROM information_schema.columns WHERE table_schema = 'outlive'
UNION ALL
SELECT 'index', tablename, indexname, indexdef, '', '', '' FROM pg_indexes
WHERE schemaname = 'outlive'
ORDER BY 1, 2, 3
"""

NEWEST = schema.migrations()[-1][0]

# The migration that only these tests have.
NEXT = """-- compatible_with: 1
ALTER TABLE {s}.lease ADD COLUMN colour text NOT NULL DEFAULT 'red';
CREATE INDEX lease_colour ON {s}.lease (namespace, colour);
"""
LONGER = (*schema.migrations(), (NEWEST + 1, NEXT))


async def prepare(url: str, steps=None, *, migrate: bool = False) -> Migration:
    connections = Connections(settings_of(url), context())
    try:
        return await schema.prepare(connections, settings_of(url), migrate=migrate, steps=steps)
    finally:
        await connections.close()


def settings_of(url: str):
    return read_settings(parse_url(url), {}, role="host")


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
    migrated = await PostgresFactory().migrate(parse_url(postgres_url), context())
    assert migrated == Migration(before=0, after=NEWEST)
    again = await PostgresFactory().migrate(parse_url(postgres_url), context())
    assert again == Migration(before=NEWEST, after=NEWEST)


async def test_fresh_equals_migrated_and_what_was_stored_stays(
    postgres_server, postgres_url
) -> None:
    driver = await open_driver(postgres_url)
    asked = AcquireRequest("k", Owner("a/1"), 60_000_000, "{}", HostId("h"))
    assert isinstance(await driver.leases.acquire(asked), Grant)
    before = await driver.leases.get("k")
    done = await prepare(postgres_url, LONGER, migrate=True)
    assert done == Migration(before=NEWEST, after=NEWEST + 1)
    (after,) = await driver.leases.get("k")
    assert [(one.owner, one.token, one.version) for one in before] == [("a/1", 1, 1)]
    assert (after.owner, after.token, after.version) == ("a/1", 1, 1)
    await driver.close()
    fresh = postgres_server.create_database()
    await prepare(fresh, LONGER)
    assert await run(fresh, SHAPE) == await run(postgres_url, SHAPE)
    postgres_server.drop_database(fresh)


async def test_five_clients_create_it_once(postgres_url) -> None:
    drivers = await asyncio.gather(*(open_driver(postgres_url) for _ in range(5)))
    assert len(await run(postgres_url, "SELECT id FROM outlive.store")) == 1
    for driver in drivers:
        await driver.close()


async def test_an_older_schema_is_refused_unless_asked(postgres_url) -> None:
    await (await open_driver(postgres_url)).close()
    with pytest.raises(SchemaMismatch, match="outlive migrate") as raised:
        await prepare(postgres_url, LONGER)
    assert (raised.value.found, raised.value.expected) == (NEWEST, NEWEST + 1)
    assert (await prepare(postgres_url, LONGER, migrate=True)).after == NEWEST + 1


async def test_a_newer_schema_is_refused_even_when_asked(postgres_url) -> None:
    await (await open_driver(postgres_url)).close()
    await run(
        postgres_url,
        "INSERT INTO outlive.schema_version (version, compatible_with) "
        f"VALUES (98, 1), (99, {NEWEST + 1})",
    )
    for migrate in (None, True):
        with pytest.raises(SchemaMismatch, match="upgrade Outlive on this host") as raised:
            await open_driver(postgres_url, migrate=migrate)
        assert raised.value.found == 99


async def test_a_newer_schema_that_serves_this_release_is_used_as_it_is(
    postgres_url, caplog
) -> None:
    await (await open_driver(postgres_url)).close()
    await run(
        postgres_url,
        "INSERT INTO outlive.schema_version (version, compatible_with) "
        f"VALUES (98, 1), (99, {NEWEST})",
    )
    before = await run(postgres_url, SHAPE)
    with caplog.at_level("INFO", logger="outlive"):
        for migrate in (None, True):
            driver = await open_driver(postgres_url, migrate=migrate)
            asked = AcquireRequest(f"k{migrate}", Owner("a/1"), 1_000_000, "{}", HostId("h"))
            assert isinstance(await driver.leases.acquire(asked), Grant)
            await driver.close()
        await (await open_driver(postgres_url, role="keeper")).close()
    told = [line for line in caplog.messages if "version 99" in line]
    assert len(told) == 2
    done = await PostgresFactory().migrate(parse_url(postgres_url), context())
    assert done == Migration(before=99, after=99)
    assert await run(postgres_url, SHAPE) == before


async def test_a_migration_says_which_releases_it_serves(postgres_url) -> None:
    read = "SELECT version, compatible_with FROM outlive.schema_version ORDER BY 1 DESC LIMIT 1"
    for number, script, oldest in (
        (2, "SELECT 1", 2),
        (3, "-- compatible_with: 1\nSELECT 1", 1),
    ):
        await prepare(postgres_url, (*schema.migrations(), (number, script)), migrate=True)
        assert await run(postgres_url, read) == [(number, oldest)]


async def test_a_migration_gives_way_to_who_holds_a_table_and_changes_nothing(postgres_url) -> None:
    """Hosts that only want to renew would have to wait behind it."""
    await prepare(postgres_url)
    before = await run(postgres_url, SHAPE)
    busy = await asyncpg.connect(postgres_url)
    async with busy.transaction():
        await busy.execute("SELECT FROM outlive.lease")
        with pytest.raises(StoreUnavailable):
            await prepare(postgres_url, LONGER, migrate=True)
        assert await run(postgres_url, SHAPE) == before
    await busy.close()
    done = await prepare(postgres_url, LONGER, migrate=True)
    assert done == Migration(before=NEWEST, after=NEWEST + 1)


async def test_a_migration_may_take_longer_than_other_statements(postgres_url) -> None:
    """An index of a large table is not built within the limit of a claim."""
    await prepare(postgres_url)
    settings = settings_of(f"{postgres_url}?command_timeout=0.5")
    connections = Connections(settings, context())
    with pytest.raises(StoreError):
        await connections.fetch("SELECT pg_sleep(1.6)", write=False)
    slow = (*schema.migrations(), (NEWEST + 1, "SELECT pg_sleep(1.6);"))
    done = await schema.prepare(connections, settings, migrate=True, steps=slow)
    assert done == Migration(before=NEWEST, after=NEWEST + 1)
    await connections.close()


async def test_a_failing_migration_changes_nothing(postgres_url) -> None:
    await prepare(postgres_url)
    before = await run(postgres_url, SHAPE)
    with pytest.raises(StoreError):
        await prepare(
            postgres_url,
            (*LONGER, (NEWEST + 2, "CREATE TABLE {s}.half (x integer); SELECT 1 / 0;")),
            migrate=True,
        )
    assert await run(postgres_url, SHAPE) == before
    assert await run(postgres_url, "SELECT version FROM outlive.schema_version") == [(NEWEST,)]
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
