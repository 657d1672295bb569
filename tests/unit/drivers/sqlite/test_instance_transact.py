"""Transactional steps: the user's writes and the step's record become durable together, or not."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from outlive.drivers.sqlite.driver import SqliteDriver
from outlive.errors import StoreUnavailable, UsageError
from outlive.model.instance import Commit
from outlive.names import HostId, InstanceId
from tests.unit.drivers.sqlite.openers import store_with_work
from tests.unit.drivers.sqlite.support import open_session, open_store, owned, step

pytestmark = pytest.mark.whitebox

F = InstanceId("f")


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncGenerator[SqliteDriver, None]:
    async with store_with_work(tmp_path) as opened:
        await open_session(opened)
        await opened.instances.start([owned("f")])
        yield opened


def written(driver: SqliteDriver) -> list[str]:
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM work").fetchall()]


async def versions(driver: SqliteDriver) -> list[int]:
    return [row.version for row in await driver.instances.history(F, after=0, limit=99)]


def body(text: str, commit: Commit) -> Callable[[Any], Commit]:
    def run(connection: Any) -> Commit:
        connection.execute("INSERT INTO work VALUES (?)", (text,))
        return commit

    return run


async def test_what_the_body_wrote_commits_with_its_record(driver: SqliteDriver) -> None:
    answer = await driver.instances.transact(F, body("paid", step("f", 1)))
    assert answer.ok
    assert (written(driver), await versions(driver)) == (["paid"], [1])


async def test_what_the_body_raises_reaches_the_caller_and_nothing_is_written(
    driver: SqliteDriver,
) -> None:
    class CardDeclined(Exception):
        pass

    def declines(connection: Any) -> Commit:
        connection.execute("INSERT INTO work VALUES ('x')")
        raise CardDeclined

    with pytest.raises(CardDeclined):
        await driver.instances.transact(F, declines)
    for error in (StopIteration, KeyboardInterrupt, SystemExit, asyncio.CancelledError):

        def breaks(connection: Any, error: type[BaseException] = error) -> Commit:
            connection.execute("INSERT INTO work VALUES ('x')")
            raise error

        # Even what would stop a thread does not stop the writer.
        caught = await raised_by(driver, breaks)
        assert isinstance(caught, (error, RuntimeError))
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        await driver.instances.transact(F, lambda c: c.execute("INSERT INTO nowhere VALUES (1)"))
    assert (written(driver), await versions(driver)) == ([], [])
    assert (await driver.instances.commit([step("f", 1)]))[0].ok


async def raised_by(driver: SqliteDriver, body: Callable[[Any], Commit]) -> BaseException | None:
    try:
        await driver.instances.transact(F, body)
    except BaseException as error:
        return error
    return None


async def test_a_fenced_commit_undoes_what_the_body_wrote(driver: SqliteDriver) -> None:
    for wrong in (step("f", 1, token=2), step("f", 2)):
        answer = await driver.instances.transact(F, body("x", wrong))
        assert not answer.ok
    await driver.hosts.close(HostId("host-1"))
    await driver.instances.reclaim(limit=1)
    ran: list[int] = []
    answer = await driver.instances.transact(F, lambda _: (ran.append(1), step("f", 1))[1])
    assert not answer.ok
    # Nobody owned it, so the body did not even run.
    assert ran == []
    assert written(driver) == []
    assert not (await driver.instances.transact(InstanceId("nobody"), body("x", step("g", 1)))).ok


async def test_a_repeated_step_is_recognised_and_its_writes_are_made_once(
    driver: SqliteDriver,
) -> None:
    for _ in range(3):
        assert (await driver.instances.transact(F, body("paid", step("f", 1)))).ok
    assert (written(driver), await versions(driver)) == (["paid"], [1])


@pytest.mark.parametrize(
    "statement",
    [
        "COMMIT",
        "ROLLBACK",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "SAVEPOINT mine",
        "SAVEPOINT operation",
        "RELEASE operation",
        "ROLLBACK TO operation",
        "ATTACH ':memory:' AS other",
        "PRAGMA synchronous = OFF",
        "PRAGMA journal_mode = DELETE",
    ],
)
async def test_the_body_may_not_end_the_transaction(driver: SqliteDriver, statement: str) -> None:
    def ends(connection: Any) -> Commit:
        connection.execute("INSERT INTO work VALUES ('x')")
        connection.execute(statement)
        return step("f", 1)

    # The writer has run some of these before, and has them prepared.
    await driver.instances.commit([step("f", 9)])
    with pytest.raises(UsageError, match="must not run"):
        await driver.instances.transact(F, ends)
    assert (written(driver), await versions(driver)) == ([], [])


@pytest.mark.parametrize(
    "end",
    [
        lambda c: c.commit(),
        lambda c: c.rollback(),
        lambda c: c.executescript("SELECT 1"),
        lambda c: c.close(),
        lambda c: c.__exit__(None, None, None),
        lambda c: setattr(c, "isolation_level", None),
        lambda c: setattr(c, "isolation_level", "DEFERRED"),
    ],
    ids=["commit", "rollback", "executescript", "close", "with", "level", "deferred"],
)
async def test_nor_by_a_method(driver: SqliteDriver, end: Callable[[Any], object]) -> None:
    def ends(connection: Any) -> Commit:
        connection.execute("INSERT INTO work VALUES ('x')")
        end(connection)
        return step("f", 1)

    with pytest.raises(UsageError, match="must not"):
        await driver.instances.transact(F, ends)
    assert (written(driver), await versions(driver)) == ([], [])


async def test_one_that_swallows_the_refusal_stays_in_its_transaction(
    driver: SqliteDriver,
) -> None:
    def tries(connection: Any) -> Commit:
        connection.execute("INSERT INTO work VALUES ('x')")
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            connection.execute("COMMIT")
        return step("f", 7)

    assert not (await driver.instances.transact(F, tries)).ok
    assert (written(driver), await versions(driver)) == ([], [])


async def test_settings_of_the_connection_are_put_back(driver: SqliteDriver) -> None:
    def changes(connection: Any) -> Commit:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        row = connection.execute("SELECT 'x' AS text").fetchone()
        assert row["text"] == b"x"
        return step("f", 1)

    assert (await driver.instances.transact(F, changes)).ok
    assert (await driver.instances.commit([step("f", 2)]))[0].ok
    found = await driver.instances.get(F, wait_us=1)
    assert found is not None
    assert found.name == "order"


async def test_the_connection_is_of_no_use_afterwards(driver: SqliteDriver) -> None:
    kept: list[Any] = []

    def keeps(connection: Any) -> Commit:
        kept.append(connection.execute("SELECT 1"))
        return step("f", 1)

    await driver.instances.transact(F, keeps)
    with pytest.raises(UsageError, match="cannot be used after the step"):
        kept[0].execute("INSERT INTO work VALUES ('x')")


async def test_a_coroutine_is_refused(driver: SqliteDriver) -> None:
    async def waits(connection: Any) -> Commit:
        connection.execute("INSERT INTO work VALUES ('x')")
        return step("f", 1)

    with pytest.raises(UsageError, match="write it with `def`, not `async def`"):
        await driver.instances.transact(F, waits)
    with pytest.raises(UsageError, match="must return a Commit of f"):
        await driver.instances.transact(F, body("x", step("g", 1)))
    assert (written(driver), await versions(driver)) == ([], [])


_FOREVER = """
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) INSERT INTO work SELECT x FROM n
"""


@pytest.mark.parametrize("swallows", [False, True])
async def test_one_that_holds_the_writer_too_long_fails_alone(
    tmp_path: Path, swallows: bool
) -> None:
    driver = await open_store(tmp_path, transact_limit=0.1)
    await open_session(driver)
    with closing(sqlite3.connect(driver.paths.main)) as connection:
        connection.execute("CREATE TABLE work (text)")
    await driver.instances.start([owned(f"f{n}") for n in range(4)] + [owned("f")])

    def never_ends(connection: Any) -> Commit:
        try:
            connection.execute(_FOREVER)
        except sqlite3.OperationalError:
            if not swallows:
                raise
        # The interrupt took the transaction along; this would stand alone.
        connection.execute("INSERT INTO work VALUES ('alone')")
        return step("f", 1)

    late, *others = await asyncio.gather(
        driver.instances.transact(F, never_ends),
        *(driver.instances.commit([step(f"f{n}", 1)]) for n in range(4)),
        return_exceptions=True,
    )
    assert isinstance(late, UsageError)
    assert "transact_limit" in str(late)
    # Those who shared the transaction, before it or behind it, ran again.
    assert [answer[0].ok for answer in others] == [True] * 4
    assert (written(driver), await versions(driver)) == ([], [])
    slow = driver.instances.transact(F, lambda _: (time.sleep(0.2), step("f", 1))[1])
    with pytest.raises(UsageError, match="transact_limit"):
        await slow
    assert await versions(driver) == []
    await driver.close()


async def test_a_full_disk_inside_a_body_is_the_stores_trouble(driver: SqliteDriver) -> None:
    connection = driver.writer._transactions.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count={pages + 2}")
    await driver.instances.start([owned(f"f{n}") for n in range(3)])

    def fills(connection: Any, *, swallows: bool) -> Commit:
        try:
            connection.executemany("INSERT INTO work VALUES (?)", [("x" * 5000,)] * 99)
        except sqlite3.OperationalError:
            if not swallows:
                raise
        return step("f", 1)

    for swallows in (False, True):
        full, *others = await asyncio.gather(
            driver.instances.transact(F, lambda c, s=swallows: fills(c, swallows=s)),
            *(driver.instances.commit([step(f"f{n}", 1 + swallows)]) for n in range(3)),
            return_exceptions=True,
        )
        assert isinstance(full, StoreUnavailable)
        assert [answer[0].ok for answer in others] == [True] * 3
    assert (written(driver), await versions(driver)) == ([], [])
