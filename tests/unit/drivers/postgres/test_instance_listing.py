"""Pages and counts on PostgreSQL: no statement reads more than its window, no row is skipped."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from outlive.drivers.postgres import instance_record_sql
from outlive.drivers.postgres.driver import PostgresDriver
from outlive.drivers.postgres.lease_sql import PLANNER
from outlive.model.instance import InstanceFilter, InstanceStatus
from outlive.names import InstanceId
from tests.unit.drivers.postgres.instances import new
from tests.unit.drivers.postgres.jobs import open_host
from tests.unit.drivers.postgres.test_job_plans import plan

pytestmark = [pytest.mark.service, pytest.mark.whitebox]

ENDED = InstanceFilter(statuses=(InstanceStatus.TERMINATED,))
WINDOW = 4


@pytest.fixture
async def driver(postgres_url: str) -> AsyncIterator[PostgresDriver]:
    opened = await open_host(postgres_url)
    opened.instances._reader.window_rows = WINDOW
    yield opened
    await opened.close()


@pytest.fixture
def asked(driver: PostgresDriver) -> list[tuple[Any, ...]]:
    """The statements that were sent, with their parameters."""
    sent: list[tuple[Any, ...]] = []
    fetch = driver._connections.fetch

    async def noting(*args: Any, **more: Any) -> list[Any]:
        sent.append(args)
        return await fetch(*args, **more)

    driver._connections.fetch = noting
    return sent


async def names(
    driver: PostgresDriver, wanted: InstanceFilter, *, limit: int, after: str | None = None
) -> list[str]:
    return [each.id for each in await driver.instances.list(wanted, after=after, limit=limit)]


async def fill(driver: PostgresDriver, count: int, *ended: int) -> None:
    await driver.instances.start([new(f"i{number}") for number in range(count)])
    for number in ended:
        await driver.instances.terminate(InstanceId(f"i{number}"), outcome="1")


# As in a store of a size that is worth it to share the rows out among processes.
EAGER_TO_SHARE = {
    "parallel_setup_cost": "0",
    "parallel_tuple_cost": "0",
    "min_parallel_table_scan_size": "0",
    "min_parallel_index_scan_size": "0",
}


def rows_read(node: dict[str, Any]) -> Iterator[int]:
    """How many rows each scan of a table brought, in a plan that was carried out."""
    if "Relation Name" in node:
        once = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        yield once * node["Actual Loops"]
    for below in node.get("Plans", ()):
        yield from rows_read(below)


@pytest.mark.parametrize("count", [0, 3, 4, 5, 8, 21])
async def test_windows_skip_nothing_and_end_where_the_table_does(
    driver: PostgresDriver, count: int
) -> None:
    ended = [number for number in (0, 3, 4, 5, 7, 16, 20) if number < count]
    await fill(driver, count, *ended)
    expected = [f"i{number}" for number in ended]
    assert await names(driver, ENDED, limit=100) == expected
    assert await names(driver, ENDED, limit=0) == []
    assert await names(driver, InstanceFilter(), limit=100) == [f"i{n}" for n in range(count)]
    for limit in (1, 2, 3):
        seen: list[str] = []
        after = None
        while page := await driver.instances.list(ENDED, after=after, limit=limit):
            seen += [each.id for each in page]
            after = page[-1].cursor
        assert seen == expected


async def test_no_statement_reads_more_than_its_window(
    driver: PostgresDriver, asked: list[tuple[Any, ...]], postgres_url: str
) -> None:
    await fill(driver, 30, 29)
    asked.clear()
    assert await names(driver, ENDED, limit=5) == ["i29"]
    connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
    for text, *values in asked:
        (told,) = await connection.fetchrow(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *values)
        read = list(rows_read(json.loads(told)[0]["Plan"]))
        assert len(read) == 2
        assert max(read) <= WINDOW
    assert len(asked) == 8
    await connection.close()


async def test_a_page_that_is_full_takes_one_statement_that_ends_with_it(
    driver: PostgresDriver, asked: list[tuple[Any, ...]], postgres_url: str
) -> None:
    driver.instances._reader.window_rows = 1000
    await fill(driver, 30, *range(20))
    asked.clear()
    assert await names(driver, ENDED, limit=3) == ["i0", "i1", "i2"]
    ((text, *values),) = asked
    connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
    (told,) = await connection.fetchrow(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *values)
    # The end of the window is not looked for.
    assert sorted(rows_read(json.loads(told)[0]["Plan"])) == [0, 3]
    await connection.close()


async def plans(driver: PostgresDriver, url: str, statement: Any) -> list[str]:
    """How it is carried out, before and after the server has looked at what is there."""
    connection = await asyncpg.connect(url, server_settings=PLANNER)
    tables = driver.jobs._claimer._tables
    first = "\n".join(await plan(connection, tables, statement))
    await connection.execute("ANALYZE")
    second = "\n".join(await plan(connection, tables, statement))
    await connection.close()
    return [first, second]


@pytest.mark.parametrize("count", [0, 1, 5_000])
async def test_a_page_is_read_by_its_index_whatever_is_there(
    driver: PostgresDriver, postgres_url: str, count: int
) -> None:
    await fill(driver, count)
    for text in await plans(driver, postgres_url, instance_record_sql.LIST):
        assert "Seq Scan" not in text, text
        assert re.findall(r"using (\w+) on instance", text) == ["instance_page"] * 2, text
        # Only the page that was found is sorted, which is in order already.
        assert re.findall("Sort Key: (.+)", text) == ["p.number"], text


async def test_children_are_found_by_their_index_in_one_statement(
    driver: PostgresDriver, postgres_url: str, asked: list[tuple[Any, ...]]
) -> None:
    await fill(driver, 200)
    parent = InstanceId("i0")
    await driver.instances.start([new(f"c{number}", parent=parent) for number in range(6)])
    asked.clear()
    children = InstanceFilter(parent=parent)
    assert await names(driver, children, limit=4) == ["c0", "c1", "c2", "c3"]
    assert len(asked) == 1
    (third,) = [
        each.cursor
        for each in await driver.instances.list(children, after=None, limit=3)
        if each.id == "c2"
    ]
    assert await names(driver, children, limit=10, after=third) == ["c3", "c4", "c5"]
    connection = await asyncpg.connect(postgres_url, server_settings=PLANNER)
    for analysed in (False, True):
        if analysed:
            await connection.execute("ANALYZE")
        tables = driver.jobs._claimer._tables
        text = "\n".join(await plan(connection, tables, instance_record_sql.LIST_CHILDREN))
        assert re.findall(r"(?:using|on) (instance_\w+)", text) == ["instance_parent"], text
    await connection.close()


# -- counts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 3, 4, 5, 8, 21])
async def test_windows_of_a_count_skip_nothing_and_count_nothing_twice(
    driver: PostgresDriver, count: int
) -> None:
    ended = [number for number in (0, 3, 4, 5, 7, 16, 20) if number < count]
    await fill(driver, count, *ended)
    if count > 1:
        await driver.instances.suspend(InstanceId("i1"))
    everything = {
        InstanceStatus.TERMINATED: len(ended),
        InstanceStatus.SUSPENDED: min(count, 2) // 2,
        InstanceStatus.PENDING: count - len(ended) - min(count, 2) // 2,
    }
    found = {status: number for status, number in everything.items() if number}
    assert await driver.instances.count(InstanceFilter()) == found
    only = {status: number for status, number in found.items() if status in ENDED.statuses}
    assert await driver.instances.count(ENDED) == only
    assert await driver.instances.count(InstanceFilter(names=("nobody",))) == {}


async def test_no_statement_of_a_count_reads_more_than_its_window(
    driver: PostgresDriver, asked: list[tuple[Any, ...]], postgres_url: str
) -> None:
    await fill(driver, 30, 29)
    asked.clear()
    assert await driver.instances.count(ENDED) == {InstanceStatus.TERMINATED: 1}
    connection = await asyncpg.connect(postgres_url, server_settings=PLANNER | EAGER_TO_SHARE)
    await connection.execute("ANALYZE")
    for text, *values in asked:
        (told,) = await connection.fetchrow(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", *values)
        (read,) = rows_read(json.loads(told)[0]["Plan"])
        assert read <= WINDOW
        assert "Gather" not in told
    assert len(asked) == 8
    await connection.close()


async def test_children_are_counted_by_their_index_in_one_statement(
    driver: PostgresDriver, postgres_url: str, asked: list[tuple[Any, ...]]
) -> None:
    await fill(driver, 200)
    parent = InstanceId("i0")
    await driver.instances.start([new(f"c{number}", parent=parent) for number in range(6)])
    await driver.instances.terminate(InstanceId("c3"), outcome="1")
    asked.clear()
    found = await driver.instances.count(InstanceFilter(parent=parent))
    assert found == {InstanceStatus.PENDING: 5, InstanceStatus.TERMINATED: 1}
    ended = InstanceFilter(parent=parent, statuses=ENDED.statuses)
    assert await driver.instances.count(ended) == {InstanceStatus.TERMINATED: 1}
    assert len(asked) == 2
    for text in await plans(driver, postgres_url, instance_record_sql.COUNT_CHILDREN):
        assert re.findall(r"(?:using|on) (instance_\w+)", text) == ["instance_parent"], text


@pytest.mark.parametrize("count", [0, 1, 5_000])
async def test_a_count_is_read_by_the_index_of_pages_whatever_is_there(
    driver: PostgresDriver, postgres_url: str, count: int
) -> None:
    await fill(driver, count)
    for text in await plans(driver, postgres_url, instance_record_sql.COUNT):
        assert "Seq Scan" not in text, text
        assert re.findall(r"using (\w+) on instance", text) == ["instance_page"], text
