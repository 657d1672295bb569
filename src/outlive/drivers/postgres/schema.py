"""Brings the schema to this release, or says why it may not.

Owns the migrations: numbered, forward only, run under an advisory lock in one transaction, so
that five clients that start at once on an empty database create it once, and a migration that
fails changes nothing. An older schema is changed only on request, because other hosts may still use
it. A newer one is used as it is, if the migration that made it says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.errors import SchemaMismatch
from outlive.model.schema_version import SchemaVersion, too_new, too_old, version_of
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
_VERSION = """
SELECT version, compatible_with FROM {s}.schema_version ORDER BY version DESC LIMIT 1
"""
_RECORD = "INSERT INTO {s}.schema_version (version, compatible_with) VALUES ($1, $2)"
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


def migrations() -> tuple[tuple[int, str], ...]:
    """Number and script of each migration, in order.

    The schema is number 1. A later migration is a script of its own behind it.
    """
    script = resources.files("outlive.drivers.postgres").joinpath("schema.sql")
    return ((1, script.read_text(encoding="utf-8")),)


async def prepare(
    connections: Connections,
    settings: PostgresSettings,
    *,
    migrate: bool,
    create: bool = True,
    steps: Sequence[tuple[int, str]] | None = None,
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
            f"the database has no Outlive schema {settings.schema!r}: is the URL right? "
            "`outlive migrate` creates the schema, and so does any program that connects, such as "
            "`outlive worker`",
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
    return SchemaVersion(*await tx.one(settings.sql(_VERSION)))


async def _run(
    connections: Connections,
    settings: PostgresSettings,
    steps: Sequence[tuple[int, str]],
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
        for number, script in steps:
            if number > before:
                await tx.run(settings.sql(script), timeout_s=_STEP_MAX_S)
                version = version_of(number, script)
                await tx.fetch(settings.sql(_RECORD), version.number, version.compatible_with)
        return Migration(before=before, after=expected)

    # Hosts that work meanwhile lock the same tables in orders of their own.
    return await connections.transact(body)


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
        raise too_old(STORE, found.number, expected)
    raise too_new(STORE, found, expected)
