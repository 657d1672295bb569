"""An operation as a series of statements, whoever runs them.

Owns the seam between what is to be written and the connection it is written on: the writer's own
cursor, or a connection of the user's, which may have to be awaited. An operation is a generator
that yields statements and is sent the rows of each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

_Result = TypeVar("_Result")

_encode = msgspec.json.Encoder().encode


def as_json(values: object) -> str:
    """A batch as the statements take it."""
    return _encode(values).decode()


def text(value: str | bytes) -> str:
    """Text of a connection whose owner may have chosen to read it as bytes."""
    return value.decode() if isinstance(value, bytes) else value


class Statement(NamedTuple):
    """One statement and its parameters.

    With ``many``, a list of them; what comes back is the number of rows that were changed.
    """

    sql: str
    values: Sequence[Any]
    many: bool = False


class Lookup(NamedTuple):
    """One question about one key, and about a JSON list of keys.

    To open a list costs as much as to find a row, and most batches are of one.
    """

    one: str
    many: str

    def of(self, keys: Sequence[str | int]) -> tuple[str, str | int]:
        """The statement, and its first parameter."""
        return (self.one, keys[0]) if len(keys) == 1 else (self.many, as_json(keys))


Operation = Generator[Statement, list[tuple[Any, ...]], _Result]


def run(
    operation: Operation[_Result],
    cursor: sqlite3.Cursor,
    after_first: Callable[[], None] | None = None,
) -> _Result:
    """Run an operation to its end on a cursor that gives plain rows.

    ``after_first`` is called after its first statement. An operation is thrown the errors of its
    statements, and may put things right before it raises them.
    """
    check = after_first
    try:
        statement = next(operation)
        while True:
            try:
                rows = _execute(statement, cursor)
            except sqlite3.Error as error:
                statement = operation.throw(error)
                continue
            if check is not None:
                check()
                check = None
            statement = operation.send(rows)
    except StopIteration as end:
        return end.value


def _execute(statement: Statement, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    sql, values, many = statement
    if many:
        cursor.executemany(sql, values)
        return [(cursor.rowcount,)]
    return cursor.execute(sql, values).fetchall()


async def run_awaiting(
    operation: Operation[_Result], cursor: Any, after_first: Callable[[], None]
) -> _Result:
    """The same on a cursor whose calls are awaited, as those of aiosqlite are."""
    check: Callable[[], None] | None = after_first
    try:
        statement = next(operation)
        while True:
            sql, values, many = statement
            try:
                await (cursor.executemany if many else cursor.execute)(sql, values)
                rows = [(cursor.rowcount,)] if many else list(await cursor.fetchall())
            except sqlite3.Error as error:
                statement = operation.throw(error)
                continue
            if check is not None:
                check()
                check = None
            statement = operation.send(rows)
    except StopIteration as end:
        return end.value


def atomically(operation: Operation[_Result]) -> Operation[_Result]:
    """``operation``, all of it or nothing, inside a transaction that goes on.

    Its first statement runs outside the savepoint and must change nothing that matters: it is the
    one that makes a lazy connection begin its transaction, which a savepoint would not.
    """
    rows = yield next(operation)
    yield Statement("SAVEPOINT outlive", ())
    try:
        statement = operation.send(rows)
        while True:
            rows = yield statement
            statement = operation.send(rows)
    except StopIteration as end:
        yield Statement("RELEASE outlive", ())
        return end.value
    except sqlite3.Error:
        # A full disk took the whole transaction along, and the savepoint with it.
        with suppress(sqlite3.OperationalError):
            yield Statement("ROLLBACK TO outlive", ())
            yield Statement("RELEASE outlive", ())
        raise
