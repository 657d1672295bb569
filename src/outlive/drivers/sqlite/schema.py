"""The schema of both files: numbered, forward only, applied under the write lock.

Owns the migrations. All that a file needs run in one transaction, so that a failure changes
nothing. An older file is migrated when it is opened. A newer one is used as it is, if the migration
that made it says so.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources

from outlive.errors import SchemaMismatch
from outlive.model.schema_version import SchemaVersion, too_new, too_old, version_of
from outlive.ports.driver import Migration

_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'outlive_schema'"
_VERSION = "SELECT version, compatible_with FROM outlive_schema"
_STAMP = """
INSERT INTO outlive_schema (one, version, compatible_with) VALUES (1, ?, ?)
ON CONFLICT (one) DO UPDATE
SET version = excluded.version, compatible_with = excluded.compatible_with
"""

# How errors and the log call the store.
STORE = "this SQLite store"


@cache
def migrations(schema: str = "schema") -> tuple[tuple[int, str], ...]:
    """Number and script of each migration of the main file, or of the sidecar (``schema_hosts``).

    The schema is number 1. A later migration is a script of its own behind it.
    """
    script = resources.files("outlive.drivers.sqlite").joinpath(f"{schema}.sql")
    return ((1, script.read_text(encoding="utf-8")),)


def current(connection: sqlite3.Connection) -> SchemaVersion | None:
    """The schema of the file, or ``None`` where there is none."""
    if connection.execute(_EXISTS).fetchone() is None:
        return None
    return SchemaVersion(*connection.execute(_VERSION).fetchone())


def bring_up(
    connection: sqlite3.Connection, steps: Sequence[tuple[int, str]], *, may_migrate: bool = True
) -> Migration:
    """Bring the file to the newest schema of ``steps``, or change nothing.

    A newer one that still serves this release is left as it is.

    Raises:
        SchemaMismatch: The file was written by a newer release and does not serve this one, or is
            older and ``may_migrate`` is false.
        sqlite3.Error: The file is locked or a statement failed; nothing was changed.
    """
    newest = steps[-1][0]
    # Nearly every open finds the schema as it should be; it must not wait for the write lock.
    found = current(connection)
    if found is not None and found.serves(newest):
        return Migration(before=found.number, after=found.number)
    connection.execute("BEGIN IMMEDIATE")
    try:
        done = _bring_up(connection, steps, may_migrate=may_migrate)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done


def _bring_up(
    connection: sqlite3.Connection, steps: Sequence[tuple[int, str]], *, may_migrate: bool
) -> Migration:
    newest = steps[-1][0]
    # Read again: another process may have done it while this one waited for the lock.
    found = current(connection)
    if found is not None:
        if found.serves(newest):
            return Migration(before=found.number, after=found.number)
        if found.number > newest:
            raise too_new(STORE, found, newest)
        if not may_migrate:
            raise too_old(STORE, found.number, newest)
    before = 0 if found is None else found.number
    for number, script in steps:
        if number > before:
            for statement in statements(script):
                connection.execute(statement)
            version = version_of(number, script)
            connection.execute(_STAMP, (version.number, version.compatible_with))
    return Migration(before=before, after=newest)


def nothing_there(what: str, newest: int) -> SchemaMismatch:
    """The error of a path that holds no store, met by those who may not make one."""
    return SchemaMismatch(
        f"{what}: is the URL right? `outlive migrate` creates a store, and so does any program "
        "that connects, such as `outlive worker`",
        found=0,
        expected=newest,
    )


def statements(script: str) -> Iterator[str]:
    """The statements of ``script``. ``executescript`` would commit before it begins."""
    pending = ""
    for line in script.splitlines(keepends=True):
        pending += line
        # A trigger's body holds semicolons; SQLite knows where it ends.
        if line.rstrip().endswith(";") and sqlite3.complete_statement(pending):
            yield pending
            pending = ""
    if pending.strip():
        yield pending
