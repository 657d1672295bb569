"""Stores that the release before flows wrote, full of leases and work: nothing of it is lost.

The tables are made by the migrations of that release, and the rows are as it wrote them.
"""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from outlive.clock import SystemClock
from outlive.drivers.postgres import PostgresFactory
from outlive.drivers.postgres import schema as postgres
from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import read_settings
from outlive.drivers.sqlite import SqliteFactory
from outlive.drivers.sqlite import schema as sqlite
from outlive.drivers.sqlite.domain import clock_domain
from outlive.model.job import ClaimRequest, Completion, Settled, Want
from outlive.model.lease import Grant
from outlive.model.location import parse_url
from outlive.names import HostId, JobId, Owner, Token
from outlive.ports.driver import DriverContext

TTL_US = 60_000_000

POSTGRES = """
INSERT INTO outlive.host (namespace, id, name, ttl_us, metadata, started_at, expires_at, ended_at)
VALUES ('n', 'old-1', 'web', 60000000, '{"a":1}', now(), now() + interval '1 minute', NULL),
    ('n', 'dead', 'web', 60000000, '{}', now(), now(), now());
INSERT INTO outlive.lease (namespace, key, slot, limit_, token, version, owner, host, expires_at,
    free_at, ttl_us, acquired_at, renewed_at, metadata, state)
VALUES ('n', 'held', 0, 1, 41, 7, 'web/1', 'old-1', now() + interval '1 minute', NULL, 60000000,
        now(), now(), '{}', 'tick-9'),
    ('n', 'free', 0, 1, 12, 3, NULL, NULL, NULL, now(), 60000000, now(), now(), '{}', NULL);
INSERT INTO outlive.lease_history
VALUES ('n', 'held', 40, 0, 'web/0', now(), now(), 'released', NULL);
INSERT INTO outlive.waiter (namespace, key, owner, host, expires_at)
VALUES ('n', 'held', 'web/2', 'old-2', now() + interval '1 minute');
INSERT INTO outlive.job (namespace, id, queue, token, state, blocked, priority, attempts, losses,
    max_attempts, max_losses, retention_us, enqueued_at, due_at, ended_at, kept_until, session,
    unique_key, ordering_key, retry, headers, payload, result)
SELECT 'n', state || '-' || n, 'q', n * 10 + i, state, false, n, n, 0, 25, 10, 86400000000, now(),
    now() + CASE state WHEN 'scheduled' THEN interval '1 hour' ELSE interval '0' END,
    CASE WHEN state IN ('done', 'dead') THEN now() END,
    CASE WHEN state IN ('done', 'dead') THEN now() + interval '1 day' END,
    CASE state WHEN 'claimed' THEN 'old-1' END, state || n, CASE WHEN i = 2 THEN 'order-' || n END,
    '{}', '{"trace":"t"}', n::text, CASE state WHEN 'done' THEN '7' END
FROM unnest(ARRAY['ready', 'scheduled', 'claimed', 'done', 'dead']) WITH ORDINALITY s(state, i)
CROSS JOIN generate_series(1, 3) n;
INSERT INTO outlive.job_attempt (namespace, job, token, outcome, ended_at)
VALUES ('n', 'dead-1', 15, 'failed', now());
INSERT INTO outlive.queue VALUES ('n', 'q', 'open', 5, NULL, 1000000);
INSERT INTO outlive.bearer VALUES ('n', 'b', 'ci', 'digest', '{read}', now(), NULL, NULL);
INSERT INTO outlive.act (namespace, at, actor, action, subject) VALUES ('n', now(), 'x', 'y', 'z');
INSERT INTO outlive.schedule
VALUES ('n', 'nightly', 1, false, 4102444800000000, NULL, 0, 1, 1, '{}');
"""

SQLITE = """
INSERT INTO outlive_lease (namespace, key, slot, limit_, token, version, owner, host, domain,
    expires_us, free_us, ttl_us, acquired_at_us, renewed_at_us, metadata, state)
VALUES ('n', 'held', 0, 1, 41, 7, 'web/1', 'old-1', :domain, :soon, 0, 60000000, 1, 1, '{}', 's'),
    ('n', 'free', 0, 1, 12, 3, NULL, NULL, :domain, 0, 0, 60000000, 1, 1, '{}', NULL);
INSERT INTO outlive_lease_history (namespace, key, token, slot, owner, acquired_at_us,
    ended_at_us, ended) VALUES ('n', 'held', 40, 0, 'web/0', 1, 2, 'released');
INSERT INTO outlive_waiter (namespace, key, owner, host, domain, expires_us, seen_at_us)
VALUES ('n', 'held', 'web/2', 'old-2', :domain, :soon, 1);
INSERT INTO outlive_job (number, namespace, id, queue, state, priority, seq, due_at_us, token,
    attempts, max_attempts, max_losses, session, enqueued_at_us, ended_at_us, prune_at_us,
    retention_us, unique_key, ordering_key, retry, headers, payload, result)
SELECT s.column1 * 10 + n.column1, 'n', s.column2 || '-' || n.column1, 'q', s.column2, n.column1, 1,
    CASE s.column2 WHEN 'scheduled' THEN 4102444800000000 ELSE 1 END, n.column1 * 10 + s.column1,
    n.column1, 25, 10, CASE s.column2 WHEN 'claimed' THEN 'old-1' END, 1,
    CASE WHEN s.column1 > 3 THEN 1 END, CASE WHEN s.column1 > 3 THEN 4102444800000000 END,
    1, s.column2 || n.column1, CASE WHEN s.column1 = 2 THEN 'order-' || n.column1 END, '{}',
    '{"trace":"t"}', n.column1, CASE s.column2 WHEN 'done' THEN '7' END
FROM (VALUES (1, 'ready'), (2, 'scheduled'), (3, 'claimed'), (4, 'done'), (5, 'dead')) s
CROSS JOIN (VALUES (1), (2), (3)) n;
INSERT INTO outlive_job_attempt (job, token, outcome, ended_at_us) VALUES (51, 15, 'failed', 1);
UPDATE outlive_job_counter SET last = 100;
INSERT INTO outlive_queue VALUES ('n', 'q', 'open', 5, NULL, 1000000);
INSERT INTO outlive_bearer VALUES ('n', 'b', 'ci', 'digest', 'read', 1, NULL, NULL);
INSERT INTO outlive_act (namespace, at_us, actor, action, subject) VALUES ('n', 1, 'x', 'y', 'z');
INSERT INTO outlive_schedule (namespace, name, version, next_at_us, created_at_us, changed_at_us,
    definition) VALUES ('n', 'nightly', 1, 4102444800000000, 1, 1, '{}');
"""

HOSTS = """
INSERT INTO outlive_session (namespace, id, name, domain, ttl_us, expires_us, version, metadata,
    started_at_us) VALUES ('n', 'old-1', 'web', :domain, 60000000, :soon, 1, '{}', 1);
"""


def context(**more) -> DriverContext:
    return DriverContext(
        clock=SystemClock(), random=random.Random(1), namespace="n", host=HostId("old-1"), **more
    )


async def check_goes_on(driver) -> None:
    """The host of the old release, upgraded in place, goes on with what it owns."""
    grant = Grant("held", 0, Owner("web/1"), Token(41), 7, TTL_US)
    assert (await driver.leases.renew(grant, TTL_US)).token == 41
    (held,) = await driver.leases.get("held")
    assert (held.owner, held.token) == ("web/1", 41)
    done = [Completion(JobId(f"claimed-{n}"), Token(n * 10 + 3)) for n in (1, 2, 3)]
    assert await driver.jobs.complete(done) == [Settled.OK] * 3
    await driver.hosts.renew(HostId("old-1"), TTL_US)
    asked = ClaimRequest(
        session=HostId("old-1"), worker="web", request="r", wants=(Want("q", 9),), limit=9
    )
    claimed = (await driver.jobs.claim(asked)).jobs
    assert {(job.id, job.payload) for job in claimed} == {(f"ready-{n}", str(n)) for n in (1, 2, 3)}
    (nightly,) = await driver.schedules.list(after=None, limit=9)
    assert nightly.name == "nightly"


@pytest.mark.service
async def test_a_database_of_schema_4_full_of_work_migrates_without_loss(postgres_url) -> None:
    settings = read_settings(parse_url(postgres_url), {}, role="host")
    connections = Connections(settings, context())
    await postgres.prepare(connections, settings, migrate=False, steps=postgres.migrations()[:4])
    await connections.close()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(POSTGRES)
    tables = await connection.fetch(
        "SELECT table_name, string_agg(format('%I', column_name), ', ') AS columns "
        "FROM information_schema.columns WHERE table_schema = 'outlive' "
        "AND table_name <> 'schema_version' GROUP BY 1"
    )
    reads = [f"SELECT {columns} FROM outlive.{table} ORDER BY 1, 2" for table, columns in tables]
    before = [sorted(map(str, await connection.fetch(read))) for read in reads]
    empty = {table for (table, _), rows in zip(tables, before, strict=True) if not rows}
    assert empty == {"queue_pace", "waiting"}
    driver = await PostgresFactory().open(parse_url(postgres_url), context(migrate=True))
    after = [sorted(map(str, await connection.fetch(read))) for read in reads]
    assert after == before
    await connection.close()
    await check_goes_on(driver)
    await driver.close()


async def test_a_file_of_schema_4_full_of_work_migrates_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    soon = int(SystemClock().monotonic() * 1e6) + TTL_US
    for file, ladder, rows in (
        (path, sqlite.steps()[:4], SQLITE),
        (tmp_path / "store.db-hosts", sqlite.steps("hosts")[:1], HOSTS),
    ):
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            sqlite.bring_up(connection, ladder)
            for statement in sqlite.statements(rows):
                connection.execute(statement, {"domain": clock_domain(), "soon": soon})
    before = dump(path)
    empty = {table for table, (_, rows) in before.items() if not rows}
    assert empty == {f"outlive_{name}" for name in ("observation", "queue_claims", "job_waiter")}
    driver = await SqliteFactory().open(parse_url(f"sqlite:///{path}"), context())
    after = dump(path, {table: columns for table, (columns, _) in before.items()})
    assert after == before
    await check_goes_on(driver)
    await driver.close()


def dump(path: Path, wanted: dict[str, list[str]] | None = None) -> dict:
    """All rows of all tables but the one that numbers the schema, or of some columns of some."""
    found: dict[str, tuple[list[str], list]] = {}
    with closing(sqlite3.connect(path)) as connection:
        named = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'outlive_schema'"
        for table in wanted or [name for (name,) in connection.execute(named).fetchall()]:
            info = connection.execute(f"SELECT name FROM pragma_table_info('{table}')").fetchall()
            columns = wanted[table] if wanted else [name for (name,) in info]
            read = f"SELECT {', '.join(columns)} FROM {table}"
            found[table] = columns, sorted(map(str, connection.execute(read).fetchall()))
    return found
