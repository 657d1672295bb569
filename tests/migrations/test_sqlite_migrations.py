"""The SQLite schema: created, migrated, refused, and never half changed."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlive.clock import SystemClock
from outlive.drivers.sqlite import SqliteFactory, schema
from outlive.errors import SchemaMismatch, StoreUnavailable
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.model.schema_version import SchemaVersion
from outlive.names import HostId, Owner
from outlive.ports.driver import DriverContext, Migration

# Both files of a store: what the path ends with, a table of it, and its schema.
FILES = [("", "outlive_lease", "schema"), ("-hosts", "outlive_session", "schema_hosts")]
NEWEST = schema.migrations()[-1][0]

# The migration that only these tests have.
NEXT = """-- compatible_with: 1
-- One more; with a semicolon.
ALTER TABLE {table} ADD COLUMN colour TEXT NOT NULL DEFAULT 'red';
CREATE INDEX colour ON {table} (namespace, colour);
CREATE TRIGGER coloured AFTER UPDATE OF colour ON {table}
BEGIN
    UPDATE {table} SET metadata = '{{}}' WHERE namespace = NEW.namespace;
END;
"""
LONGER = {
    name: (*schema.migrations(name), (NEWEST + 1, NEXT.format(table=table)))
    for _, table, name in FILES
}


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that has one migration more, of both files."""
    monkeypatch.setattr(schema, "migrations", lambda name="schema": LONGER[name])


def context(*, migrate: bool | None = None) -> DriverContext:
    return DriverContext(
        clock=SystemClock(),
        random=random.Random(1),
        namespace="default",
        host=HostId("host-1"),
        migrate=migrate,
    )


async def create(path: Path, *, migrate: bool | None = None) -> None:
    driver = await SqliteFactory().open(parse_url(f"sqlite:///{path}"), context(migrate=migrate))
    await driver.close()


def shape(path: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall()


def stamp(path: Path, version: int, oldest: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        changed = "UPDATE outlive_schema SET version = ?, compatible_with = ?"
        connection.execute(changed, (version, oldest))
        connection.commit()


async def test_migrating_an_empty_store_is_the_same_as_creating_it(tmp_path: Path) -> None:
    fresh, migrated = tmp_path / "fresh.db", tmp_path / "migrated.db"
    await create(fresh)
    location = parse_url(f"sqlite:///{migrated}")
    done = await SqliteFactory().migrate(location, context())
    assert (done.before, done.after) == (0, NEWEST)
    done = await SqliteFactory().migrate(location, context())
    assert (done.before, done.after) == (NEWEST, NEWEST)
    assert shape(fresh) == shape(migrated)


async def test_a_file_of_the_user_gets_the_tables_beside_its_own(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE mine (x); PRAGMA user_version=41;")
    await create(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (41,)
        assert connection.execute("SELECT count(*) FROM mine").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM outlive_store").fetchone() == (1,)


@pytest.mark.parametrize("end", ["", "-hosts"])
async def test_a_newer_store_is_refused_and_says_what_to_do(tmp_path: Path, end: str) -> None:
    path = tmp_path / "store.db"
    await create(path)
    stamp(tmp_path / f"store.db{end}", NEWEST + 7, NEWEST + 1)
    with pytest.raises(SchemaMismatch, match="upgrade Outlive on this host") as caught:
        await create(path)
    assert (caught.value.found, caught.value.expected) == (NEWEST + 7, NEWEST)
    with pytest.raises(SchemaMismatch):
        await SqliteFactory().migrate(parse_url(f"sqlite:///{path}"), context())


@pytest.mark.parametrize("end", ["", "-hosts"])
async def test_a_newer_store_that_serves_this_release_is_used_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    path = tmp_path / "store.db"
    await create(path)
    stamp(tmp_path / f"store.db{end}", NEWEST + 7, NEWEST)
    before = shape(path)
    with caplog.at_level("INFO", logger="outlive"):
        await create(path)
        await SqliteFactory().migrate(parse_url(f"sqlite:///{path}"), context())
    assert [f"version {NEWEST + 7}" in line for line in caplog.messages] == [True]
    assert shape(path) == before
    with closing(sqlite3.connect(tmp_path / f"store.db{end}")) as connection:
        assert schema.current(connection) == SchemaVersion(NEWEST + 7, NEWEST)


@pytest.mark.usefixtures("next_release")
@pytest.mark.parametrize(("end", "table", "name"), FILES)
async def test_fresh_equals_migrated(tmp_path: Path, end: str, table: str, name: str) -> None:
    old = tmp_path / f"old.db{end}"
    with closing(sqlite3.connect(old, isolation_level=None)) as connection:
        schema.bring_up(connection, LONGER[name][:1])
        assert schema.current(connection) == SchemaVersion(NEWEST, NEWEST)
    await create(tmp_path / "old.db")
    await create(tmp_path / "fresh.db")
    fresh = tmp_path / f"fresh.db{end}"
    assert shape(old) == shape(fresh)
    for path in (old, fresh):
        with closing(sqlite3.connect(path)) as connection:
            assert schema.current(connection) == SchemaVersion(NEWEST + 1, 1)
            assert connection.execute(f"SELECT colour FROM {table}").fetchall() == []


async def test_an_older_store_migrates_itself_beside_one_that_works_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    url = parse_url(f"sqlite:///{path}")
    older = await SqliteFactory().open(url, context())
    asked = AcquireRequest("k", Owner("a/1"), 60_000_000, "{}", HostId("host-1"))
    granted = await older.leases.acquire(asked)
    assert isinstance(granted, Grant)
    monkeypatch.setattr(schema, "migrations", lambda name="schema": LONGER[name])
    with pytest.raises(SchemaMismatch, match="outlive migrate"):
        await create(path, migrate=False)
    newer = await SqliteFactory().open(url, context())
    for driver in (newer, older):
        granted = await driver.leases.renew(granted, 60_000_000)
        (found,) = await driver.leases.get("k")
        assert (found.owner, found.token) == ("a/1", 1)
    await older.close()
    await newer.close()
    done = await SqliteFactory().migrate(url, context())
    assert done == Migration(before=NEWEST + 1, after=NEWEST + 1)


def test_what_a_migration_does_not_say_is_not_inherited(tmp_path: Path) -> None:
    silent = (NEWEST + 2, "CREATE TABLE outlive_more (x);\n")
    with closing(sqlite3.connect(tmp_path / "s", isolation_level=None)) as connection:
        schema.bring_up(connection, LONGER["schema"])
        assert schema.current(connection) == SchemaVersion(NEWEST + 1, 1)
        schema.bring_up(connection, (*LONGER["schema"], silent))
        assert schema.current(connection) == SchemaVersion(NEWEST + 2, NEWEST + 2)


async def test_a_failed_migration_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    await create(path)
    before = shape(path)
    broken = (NEWEST + 2, "CREATE TABLE outlive_more (x);\nINSERT INTO nowhere VALUES (1);\n")
    steps = (*LONGER["schema"], broken)
    monkeypatch.setattr(schema, "migrations", lambda _="": steps)
    with pytest.raises(StoreUnavailable):
        await create(path)
    assert shape(path) == before
    with closing(sqlite3.connect(path)) as connection:
        assert schema.current(connection) == SchemaVersion(NEWEST, NEWEST)
