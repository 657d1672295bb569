"""The SQLite schema: created, migrated, refused, and never half changed."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from outlive.clock import SystemClock
from outlive.drivers.sqlite import SqliteFactory, schema
from outlive.drivers.sqlite.domain import clock_domain
from outlive.errors import SchemaMismatch, StoreUnavailable
from outlive.model.instance import NewInstance
from outlive.model.job import (
    ClaimRequest,
    Completion,
    Enqueued,
    Entry,
    JobFilter,
    JobState,
    LimitsBy,
    NewJob,
    QueuePart,
    QueueSettings,
    Settled,
    Want,
)
from outlive.model.lease import AcquireRequest, Grant
from outlive.model.location import parse_url
from outlive.model.schema_version import SchemaVersion
from outlive.model.session import HostSession
from outlive.names import HostId, InstanceId, JobId, Owner
from outlive.ports.driver import DriverContext
from tests.migrations.declared import check_declared

NEWEST = schema.steps()[-1].number


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


def stamp(path: Path, version: int, oldest: int | None = None) -> None:
    with closing(sqlite3.connect(path)) as connection:
        changed = "UPDATE outlive_schema SET version = ?, compatible_with = ?"
        connection.execute(changed, (version, oldest))
        connection.commit()


@pytest.mark.parametrize("folder", ["", "hosts"])
def test_numbers_have_no_gaps(folder: str) -> None:
    numbers = [step.number for step in schema.steps(folder)]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_migrating_an_empty_store_is_the_same_as_creating_it(tmp_path: Path) -> None:
    fresh, migrated = tmp_path / "fresh.db", tmp_path / "migrated.db"
    await create(fresh)
    location = parse_url(f"sqlite:///{migrated}")
    done = await SqliteFactory().migrate(location, context())
    assert (done.before, done.after) == (0, NEWEST)
    done = await SqliteFactory().migrate(location, context())
    assert (done.before, done.after) == (NEWEST, NEWEST)
    assert shape(fresh) == shape(migrated)


@pytest.mark.parametrize("folder", ["", "hosts"])
def test_step_by_step_is_the_same_as_all_at_once(tmp_path: Path, folder: str) -> None:
    ladder = schema.steps(folder)
    for name, rounds in (
        ("once", [ladder]),
        ("steps", [ladder[: n + 1] for n in range(len(ladder))]),
    ):
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as connection:
            for part in rounds:
                schema.bring_up(connection, part)
    assert shape(tmp_path / "once") == shape(tmp_path / "steps")


async def test_a_file_of_the_user_gets_the_tables_beside_its_own(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("CREATE TABLE mine (x); PRAGMA user_version=41;")
    await create(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (41,)
        assert connection.execute("SELECT count(*) FROM mine").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM outlive_store").fetchone() == (1,)


@pytest.mark.parametrize(("name", "folder"), [("store.db", ""), ("store.db-hosts", "hosts")])
@pytest.mark.parametrize("raised_to", [None, 1])
async def test_a_newer_store_is_refused_and_says_what_to_do(
    tmp_path: Path, name: str, folder: str, raised_to: int | None
) -> None:
    path = tmp_path / "store.db"
    newest = schema.steps(folder)[-1].number
    await create(path)
    stamp(tmp_path / name, newest + 1, raised_to and newest + raised_to)
    with pytest.raises(SchemaMismatch, match="install the release here") as caught:
        await create(path)
    assert (caught.value.found, caught.value.expected) == (newest + 1, newest)
    with pytest.raises(SchemaMismatch):
        await SqliteFactory().migrate(parse_url(f"sqlite:///{path}"), context())


@pytest.mark.parametrize(("name", "folder"), [("store.db", ""), ("store.db-hosts", "hosts")])
async def test_a_newer_store_that_serves_this_release_is_used_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, folder: str
) -> None:
    path = tmp_path / "store.db"
    newest = schema.steps(folder)[-1].number
    await create(path)
    stamp(tmp_path / name, newest + 7, newest)
    before = shape(path)
    with caplog.at_level("INFO", logger="outlive"):
        await create(path)
        await SqliteFactory().migrate(parse_url(f"sqlite:///{path}"), context())
    assert [f"number {newest + 7}" in line for line in caplog.messages] == [True]
    assert shape(path) == before
    with closing(sqlite3.connect(tmp_path / name)) as connection:
        said = connection.execute("SELECT version, compatible_with FROM outlive_schema").fetchone()
    assert said == (newest + 7, newest)


@pytest.mark.parametrize("folder", ["", "hosts"])
def test_every_migration_says_which_releases_it_serves(folder: str) -> None:
    steps = [(step.number, step.script) for step in schema.steps(folder)]
    check_declared(steps, first=2 if folder else 6)


def longer_ladder(script: str) -> tuple[schema.Step, ...]:
    return (*schema.steps(), schema.Step(NEWEST + 1, script))


async def test_an_older_store_migrates_itself_unless_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    await create(path)
    ladder = longer_ladder("-- One more; with a semicolon.\nCREATE TABLE outlive_more (x);\n")
    hosts = schema.steps("hosts")
    monkeypatch.setattr(schema, "steps", lambda folder="": hosts if folder else ladder)
    with pytest.raises(SchemaMismatch, match="outlive migrate"):
        await create(path, migrate=False)
    await create(path)
    assert any(name == "outlive_more" for _, name, _ in shape(path))


def test_what_a_migration_does_not_say_is_not_inherited(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "s", isolation_level=None)) as connection:
        schema.bring_up(connection, schema.steps())
        assert schema.current(connection).compatible_with is not None
        schema.bring_up(connection, longer_ladder("CREATE TABLE outlive_more (x);\n"))
        assert schema.current(connection) == SchemaVersion(NEWEST + 1, None)


async def test_a_failed_migration_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    await create(path)
    before = shape(path)
    ladder = longer_ladder(
        "CREATE TABLE outlive_more (x);\nINSERT INTO no_such_table VALUES (1);\n"
    )
    monkeypatch.setattr(schema, "steps", lambda _="": ladder)
    with pytest.raises(StoreUnavailable):
        await create(path)
    assert shape(path) == before
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM outlive_schema").fetchone() == (NEWEST,)


async def test_a_store_of_leases_alone_learns_to_keep_jobs_and_loses_nothing(
    tmp_path: Path,
) -> None:
    """Written by schema 1, opened by this release while its lease is held."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.bring_up(connection, schema.steps()[:1])
        store = connection.execute("SELECT id FROM outlive_store").fetchone()
        now = int(SystemClock().monotonic() * 1e6)
        for key, owner in (("held", "web/1"), ("freed", None)):
            connection.execute(
                "INSERT INTO outlive_lease (namespace, key, slot, limit_, token, version, owner, "
                "host, domain, expires_us, free_us, ttl_us, acquired_at_us, renewed_at_us, "
                "metadata) VALUES ('default', ?, 0, 1, 7, 9, ?, 'h', ?, ?, ?, ?, 1, 1, '{}')",
                (key, owner, clock_domain(), now + 60_000_000, now, 60_000_000),
            )
    driver = await SqliteFactory().open(parse_url(f"sqlite:///{path}"), context())
    (held,) = await driver.leases.get("held")
    assert (held.token, held.owner, held.active) == (7, "web/1", True)
    asked = AcquireRequest("freed", Owner("web/2"), 1_000_000, "{}", HostId("host-1"))
    granted = await driver.leases.acquire(asked)
    assert isinstance(granted, Grant)
    assert granted.token == 8
    added = NewJob(id=JobId("first"), queue="mail", payload="{}")
    assert await driver.jobs.enqueue([added]) == [Enqueued(JobId("first"), Entry.CREATED)]
    await driver.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM outlive_store").fetchone() == store
        assert connection.execute("SELECT version FROM outlive_schema").fetchone() == (NEWEST,)


async def test_a_store_of_jobs_learns_to_keep_flows_and_loses_nothing(tmp_path: Path) -> None:
    """Written by schema 4, opened by this release while its jobs wait."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.bring_up(connection, schema.steps()[:4])
        for number, state in ((1, "ready"), (2, "scheduled"), (3, "done")):
            connection.execute(
                "INSERT INTO outlive_job (number, namespace, id, queue, state, priority, seq, "
                "due_at_us, token, max_attempts, max_losses, enqueued_at_us, retention_us, retry, "
                "headers, payload) VALUES (?1, 'default', 'j' || ?1, 'mail', ?2, 0, ?1, 1, ?1, 5, "
                "5, 1, 1, '{}', '{}', '{\"n\":1}')",
                (number, state),
            )
        connection.execute("UPDATE outlive_job_counter SET last = 3")
    driver = await SqliteFactory().open(parse_url(f"sqlite:///{path}"), context())
    session = HostSession(id=HostId("host-1"), name="h", ttl_us=60_000_000, metadata="{}")
    await driver.hosts.open(session)
    found = await driver.jobs.list(JobFilter(), after=None, limit=9)
    assert [(one.id, one.state, one.payload) for one in found] == [
        ("j1", JobState.READY, '{"n":1}'),
        ("j2", JobState.SCHEDULED, '{"n":1}'),
        ("j3", JobState.DONE, '{"n":1}'),
    ]
    asked = ClaimRequest(
        session=HostId("host-1"), worker="h", request="r", wants=(Want("mail", 5),), limit=5
    )
    claimed = (await driver.jobs.claim(asked)).jobs
    # What was written before answers nobody, and ends as it always did.
    ended = await driver.jobs.complete([Completion(one.id, one.token) for one in claimed])
    assert ended == [Settled.OK] * 2
    new = NewInstance(
        id=InstanceId("f"), kind="flow", name="order", input="1", request="r", session=session.id
    )
    (started,) = await driver.instances.start([new])
    assert started.token == 1
    await driver.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM outlive_schema").fetchone() == (NEWEST,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# How the releases up to schema 6 put the settings of a queue.
PUT_QUEUE_6 = """
INSERT INTO outlive_queue (namespace, name, mode, concurrency, rate, rate_period_us)
VALUES ('default', ?, ?, ?, ?, ?)
ON CONFLICT (namespace, name) DO UPDATE SET
    mode = excluded.mode, concurrency = excluded.concurrency, rate = excluded.rate,
    rate_period_us = excluded.rate_period_us
"""


async def test_limits_of_older_releases_count_as_declared(tmp_path: Path) -> None:
    """Those of before, and those that a process of an older release sets beside this one."""
    path = tmp_path / "store.db"
    limits = (QueuePart.LIMITS,)
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        schema.bring_up(older, schema.steps()[:6])
        older.execute(PUT_QUEUE_6, ("before", "paused", 5, None, 1_000_000))
        driver = await SqliteFactory().open(parse_url(f"sqlite:///{path}"), context())
        older.execute(PUT_QUEUE_6, ("beside", "open", None, 3, 1_000_000))
        found = {queue.settings.name: queue.settings for queue in await driver.jobs.queues()}
        assert {each.limited_by for each in found.values()} == {LimitsBy.HANDLER}
        assert (found["before"].mode, found["before"].concurrency) == ("paused", 5)
        for name in ("before", "beside"):
            await driver.jobs.put_queue(QueueSettings(name=name, concurrency=2), parts=limits)
            operators = QueueSettings(name=name, concurrency=1, limits_by=LimitsBy.OPERATOR)
            await driver.jobs.put_queue(operators, parts=limits)
        # One that lifts them does not know whose they are.
        older.execute(PUT_QUEUE_6, ("before", "open", None, None, 1_000_000))
        for name in ("before", "beside"):
            await driver.jobs.put_queue(QueueSettings(name=name, concurrency=4), parts=limits)
        found = {queue.settings.name: queue.settings for queue in await driver.jobs.queues()}
        assert found["before"] == QueueSettings(name="before", concurrency=4)
        assert found["beside"] == operators
        await driver.close()
