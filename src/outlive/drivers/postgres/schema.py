"""Brings the schema to this release, or says why it may not.

Owns the migrations: numbered, forward only, run under an advisory lock in one transaction, so
that five clients that start at once on an empty database create it once, and a migration that
fails changes nothing. An older schema is changed only on request, because other hosts may still
run the older release. A newer one is used as it is, if the migration that made it says so.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.errors import SchemaMismatch, UsageError
from outlive.model.schema_version import SchemaVersion, compatible_with, too_new, too_old
from outlive.ports.driver import Migration

# How errors and the log call the store.
STORE = "this PostgreSQL database"

# Read from the catalogue itself: to_regclass answers from a cache that, within a transaction, may
# not yet know what another client created while we waited for the lock.
_TABLE_THERE = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = 'schema_version'
) AS there
"""
_SCHEMA_THERE = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1) AS there"
# The newest migration speaks for all before it. Read through JSON, because schemas before number 6
# have no such column.
_VERSION = """
SELECT v.version, (to_jsonb(v) ->> 'compatible_with')::integer AS compatible_with
FROM {s}.schema_version v ORDER BY v.version DESC LIMIT 1
"""
_RECORD = "INSERT INTO {s}.schema_version (version) VALUES ($1)"
_DECLARE = "UPDATE {s}.schema_version SET compatible_with = $2 WHERE version = $1"
_STORE = "SELECT id::text AS id FROM {s}.store"
_LOCK = "SELECT pg_advisory_xact_lock($1)"
# A migration that waits for a table makes everybody behind it wait as well, also hosts that renew.
# So it gives way long before a session could end, and is run again when the table is free. Once it
# has the table it may take longer than any other statement: an index of a million jobs is built in
# some seconds, for which hosts wait as for a server that is away.
_STEP_MAX_S = 900.0
_PATIENCE = (
    f"SET LOCAL lock_timeout = 2000; SET LOCAL statement_timeout = {int(_STEP_MAX_S * 1000)}"
)


def migrations() -> list[tuple[int, str]]:
    """Number and text of every migration, in order.

    Raises:
        UsageError: The package was installed without its SQL files.
    """
    folder = resources.files("outlive.drivers.postgres") / "migrations"
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    steps = [(int(name[:4]), (folder / name).read_text(encoding="utf-8")) for name in found]
    if [number for number, _ in steps] != list(range(1, len(steps) + 1)) or not steps:
        raise UsageError("the migrations of the PostgreSQL driver are incomplete; reinstall it")
    return steps


async def prepare(
    connections: Connections,
    settings: PostgresSettings,
    *,
    migrate: bool,
    create: bool = True,
    steps: list[tuple[int, str]] | None = None,
) -> Migration:
    """Check the schema; create it in an empty database; with ``migrate``, bring it up to date.

    Raises:
        SchemaMismatch: It is older and ``migrate`` is false, or it is newer and does not serve this
            release, or there is none and ``create`` is false.
        StoreUnavailable: Somebody kept a table locked; nothing was changed.
    """
    steps = migrations() if steps is None else steps
    expected = steps[-1][0]
    found = await _found(connections, settings)
    if found is None and not create:
        raise SchemaMismatch(
            f"the database has no schema {settings.schema!r} of Outlive: is the URL right? It "
            "is made by `outlive migrate`, and by any program that connects, such as `outlive "
            "worker`",
            found=0,
            expected=expected,
        )
    if found is None or (migrate and found.number < expected):
        return await _run(connections, settings, steps, migrate=migrate)
    return _judge(found, expected)


async def store_id(connections: Connections, settings: PostgresSettings) -> str:
    """The identity of the store, which guards compare."""
    (row,) = await connections.fetch(settings.sql(_STORE), write=False)
    return row["id"]


async def _found(connections: Connections, settings: PostgresSettings) -> SchemaVersion | None:
    """The version of the schema, or ``None`` in an empty database."""
    async with connections.transaction() as tx:
        return await _version_in(tx, settings)


async def _version_in(tx: Any, settings: PostgresSettings) -> SchemaVersion | None:
    there = await tx.one(_TABLE_THERE, settings.schema)
    if not there["there"]:
        return None
    row = await tx.one(settings.sql(_VERSION))
    return SchemaVersion(0) if row is None else SchemaVersion(*row)


async def _run(
    connections: Connections,
    settings: PostgresSettings,
    steps: list[tuple[int, str]],
    *,
    migrate: bool,
) -> Migration:
    expected = steps[-1][0]
    digest = hashlib.sha256(f"outlive/{settings.schema}".encode()).digest()

    async def body(tx: Any) -> Migration:
        await tx.fetch(_LOCK, int.from_bytes(digest[:8], "big", signed=True))
        # Read again: somebody else may have done it while we waited for the lock.
        found = await _version_in(tx, settings)
        if found is None:
            await _create_schema(tx, settings)
        elif not migrate or found.number > expected:
            return _judge(found, expected)
        await tx.run(_PATIENCE)
        before = 0 if found is None else found.number
        for number, text in steps:
            if number > before:
                await _apply(tx, settings, number, text)
        return Migration(before=before, after=expected)

    # Hosts that work meanwhile lock the same tables in orders of their own.
    return await connections.transact(body)


async def _apply(tx: Any, settings: PostgresSettings, number: int, text: str) -> None:
    await tx.run(settings.sql(text), timeout_s=_STEP_MAX_S)
    await tx.fetch(settings.sql(_RECORD), number)
    oldest = compatible_with(text)
    if oldest is not None:
        await tx.fetch(settings.sql(_DECLARE), number, oldest)


async def _create_schema(tx: Any, settings: PostgresSettings) -> None:
    # Asked for only where it is missing: CREATE SCHEMA wants a privilege on the database even
    # when there is nothing to create, and administrators like to create it themselves.
    there = await tx.one(_SCHEMA_THERE, settings.schema)
    if not there["there"]:
        await tx.run(f"CREATE SCHEMA {settings.quoted_schema}")


def _judge(found: SchemaVersion, expected: int) -> Migration:
    if found.serves(expected):
        return Migration(before=found.number, after=found.number)
    if found.number < expected:
        advice = (
            "run `outlive migrate`; hosts of older releases go on meanwhile, unless the changelog "
            "says that they are to be stopped"
        )
        raise too_old(STORE, found.number, expected, advice=advice)
    raise too_new(STORE, found, expected)
