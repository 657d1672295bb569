"""The schema of both files: numbered, forward only, applied under the write lock.

Owns the migrations. All of them run in one transaction, so that a failure changes nothing. The
number is kept in a table of our own: the file may be the user's too, and so may its
``user_version``.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from holdfast.errors import SchemaMismatch
from holdfast.ports.driver import Migration

_NAME = re.compile(r"(\d{4})_\w+\.sql")

_EXISTS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_schema'"
_VERSION = "SELECT version FROM holdfast_schema WHERE one = 1"
_CREATE = """
CREATE TABLE IF NOT EXISTS holdfast_schema (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
)
"""
_STAMP = """
INSERT INTO holdfast_schema (one, version) VALUES (1, ?)
ON CONFLICT (one) DO UPDATE SET version = excluded.version
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One migration: the number it leads to, and its statements."""

    number: int
    script: str


@cache
def steps(folder: str = "") -> tuple[Step, ...]:
    """The migrations of the main file, or of the sidecar (``hosts``), in order."""
    root = resources.files("holdfast.drivers.sqlite").joinpath("migrations")
    if folder:
        root = root.joinpath(folder)
    found: list[Step] = []
    for entry in root.iterdir():
        match = _NAME.fullmatch(entry.name)
        if match is not None:
            found.append(Step(int(match.group(1)), entry.read_text(encoding="utf-8")))
    found.sort(key=lambda step: step.number)
    return tuple(found)


def current(connection: sqlite3.Connection) -> int:
    """The schema's number in the file; 0 where there is none."""
    if connection.execute(_EXISTS).fetchone() is None:
        return 0
    row = connection.execute(_VERSION).fetchone()
    return 0 if row is None else int(row[0])


def bring_up(
    connection: sqlite3.Connection, ladder: Sequence[Step], *, may_migrate: bool = True
) -> Migration:
    """Bring the file to the newest schema of ``ladder``, or change nothing.

    Raises:
        SchemaMismatch: The file was written by a newer release, or is older and
            ``may_migrate`` is false.
        sqlite3.Error: The file is locked or a statement failed; nothing was changed.
    """
    newest = ladder[-1].number
    # Nearly every open finds the schema as it should be; it must not wait for the write lock.
    found = current(connection)
    if found == newest:
        return Migration(before=found, after=newest)
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = current(connection)
        _check(found, newest, may_migrate=may_migrate)
        connection.execute(_CREATE)
        for step in ladder:
            if step.number > found:
                for statement in statements(step.script):
                    connection.execute(statement)
        connection.execute(_STAMP, (newest,))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return Migration(before=found, after=newest)


def nothing_there(what: str, newest: int) -> SchemaMismatch:
    """The error of a path that holds no store, met by those who may not make one."""
    return SchemaMismatch(
        f"{what}: is the URL right? The first program that acquires a lease makes the store, and "
        "so does `holdfast migrate`",
        found=0,
        expected=newest,
    )


def _check(found: int, newest: int, *, may_migrate: bool) -> None:
    if found > newest:
        raise SchemaMismatch(
            f"the store has schema {found}, this release knows {newest}: install the newer "
            "release of holdfast that wrote it (pip install --upgrade holdfast)",
            found=found,
            expected=newest,
        )
    if 0 < found < newest and not may_migrate:
        raise SchemaMismatch(
            f"the store has schema {found}, this release needs {newest}: run `holdfast migrate`",
            found=found,
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
