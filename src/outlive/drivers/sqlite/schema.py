"""The schema of both files: numbered, forward only, applied under the write lock.

Owns the migrations. All of them run in one transaction, so that a failure changes nothing. The
number is kept in a table of our own: the file may be the user's too, and so may its
``user_version``. A newer file is used as it is, if the migration that made it says so.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from outlive.errors import SchemaMismatch
from outlive.model.schema_version import SchemaVersion, compatible_with, too_new, too_old
from outlive.ports.driver import Migration

_NAME = re.compile(r"(\d{4})_\w+\.sql")

_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'outlive_schema'"
# All columns: schemas before number 6 do not say with which releases they are compatible.
_VERSION = "SELECT * FROM outlive_schema WHERE one = 1"
_CREATE = """
CREATE TABLE IF NOT EXISTS outlive_schema (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
)
"""
_STAMP = """
INSERT INTO outlive_schema (one, version) VALUES (1, ?)
ON CONFLICT (one) DO UPDATE SET version = excluded.version
"""
_DECLARE = "UPDATE outlive_schema SET compatible_with = ? WHERE one = 1"

# How errors and the log call the store.
STORE = "this SQLite store"


@dataclass(frozen=True, slots=True)
class Step:
    """One migration: the number it leads to, and its statements."""

    number: int
    script: str


@cache
def steps(folder: str = "") -> tuple[Step, ...]:
    """The migrations of the main file, or of the sidecar (``hosts``), in order."""
    root = resources.files("outlive.drivers.sqlite").joinpath("migrations")
    if folder:
        root = root.joinpath(folder)
    found: list[Step] = []
    for entry in root.iterdir():
        match = _NAME.fullmatch(entry.name)
        if match is not None:
            found.append(Step(int(match.group(1)), entry.read_text(encoding="utf-8")))
    found.sort(key=lambda step: step.number)
    return tuple(found)


def current(connection: sqlite3.Connection) -> SchemaVersion:
    """The schema of the file; number 0 where there is none."""
    if connection.execute(_EXISTS).fetchone() is None:
        return SchemaVersion(0)
    cursor = connection.execute(_VERSION)
    row = cursor.fetchone()
    if row is None:
        return SchemaVersion(0)
    said = dict(zip((column[0] for column in cursor.description), row, strict=True))
    return SchemaVersion(said["version"], said.get("compatible_with"))


def bring_up(
    connection: sqlite3.Connection, ladder: Sequence[Step], *, may_migrate: bool = True
) -> Migration:
    """Bring the file to the newest schema of ``ladder``, or change nothing.

    A newer one that still serves this release is left as it is.

    Raises:
        SchemaMismatch: The file was written by a newer release and does not serve this one, or is
            older and ``may_migrate`` is false.
        sqlite3.Error: The file is locked or a statement failed; nothing was changed.
    """
    newest = ladder[-1].number
    # Nearly every open finds the schema as it should be; it must not wait for the write lock.
    found = current(connection)
    if found.serves(newest):
        return Migration(before=found.number, after=found.number)
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = current(connection)
        _check(found, newest, may_migrate=may_migrate)
        connection.execute(_CREATE)
        for step in ladder:
            if step.number > found.number:
                for statement in statements(step.script):
                    connection.execute(statement)
        if found.number < newest:
            _stamp(connection, ladder[-1])
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return Migration(before=found.number, after=max(found.number, newest))


def _stamp(connection: sqlite3.Connection, step: Step) -> None:
    connection.execute(_STAMP, (step.number,))
    columns = connection.execute(_VERSION).description
    if any(column[0] == "compatible_with" for column in columns):
        # Also where it declares nothing: what an earlier one said does not hold for it.
        connection.execute(_DECLARE, (compatible_with(step.script),))


def nothing_there(what: str, newest: int) -> SchemaMismatch:
    """The error of a path that holds no store, met by those who may not make one."""
    return SchemaMismatch(
        f"{what}: is the URL right? The store is made by `outlive migrate`, and by any "
        "program that connects, such as `outlive worker`",
        found=0,
        expected=newest,
    )


def _check(found: SchemaVersion, newest: int, *, may_migrate: bool) -> None:
    if found.number > newest and not found.serves(newest):
        raise too_new(STORE, found, newest)
    if 0 < found.number < newest and not may_migrate:
        raise too_old(STORE, found.number, newest, advice="run `outlive migrate`")


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
