"""Guarding the user's own transaction: the fence and the user's writes commit together or not.

Owns which kinds of transaction are accepted. All of them come down to one SQLite connection, on
which one row is written without changing it; holding that write keeps everybody else out until
the transaction ends. It must never begin, commit or roll back anything: the transaction is the
user's. SQLAlchemy, Django and aiosqlite are recognised by name and never imported.

For connections that do not await, ``Guard.write`` never suspends, so that a caller without an
event loop may drive it on the thread the connection belongs to.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.drivers.sqlite import lease_sql as sql
from holdfast.drivers.sqlite.translate import translate
from holdfast.errors import UsageError
from holdfast.model.lease import Grant

_DATABASES = "PRAGMA database_list"

# Long enough for somebody else's transaction to end, short enough to be called at once.
_OWN_LOCK_WAIT_S = 0.25

_Result = TypeVar("_Result")

_NOT_OPEN = (
    "guard needs an open transaction, and this connection has none: begin one first (BEGIN "
    "IMMEDIATE is best), and keep autocommit off"
)


class Guard:
    """Checks grants of one namespace inside transactions on the store's own file."""

    def __init__(self, path: Path, namespace: str) -> None:
        self._path = path
        self._namespace = namespace
        # Which task guarded which connection last. While that transaction is open, the task must
        # not wait for a write of ours: the file's one write lock is in its own hands.
        self._guarded: WeakKeyDictionary[asyncio.Task[Any], Any] = WeakKeyDictionary()
        # Whether this was ever used; until then, nobody needs to wait carefully.
        self.used = False

    async def wait_carefully(self, writing: asyncio.Future[_Result]) -> _Result:
        """Wait for a write of ours, but not for the transaction that this very task has open.

        A connection that went back to a pool may by now be in the hands of another task, whose
        transaction ends by itself; one's own does not end while one waits. Hence the moment.

        Raises:
            UsageError: The running task has guarded a transaction that is still open.
        """
        task = asyncio.current_task()
        connection = None if task is None else self._guarded.get(task)
        if task is None or connection is None:
            return await writing
        if _is_open(connection):
            await asyncio.wait([writing], timeout=_OWN_LOCK_WAIT_S)
            if not writing.done() and _is_open(connection):
                writing.cancel()
                raise UsageError(
                    "this task holds the file's write lock in the transaction it guarded, and "
                    "would wait for itself: commit or roll back first"
                )
        # It was not held up, so the guarded transaction is over.
        self._guarded.pop(task, None)
        return await writing

    async def write(self, grant: Grant, tx: object) -> bool:
        """Whether ``grant`` is the newest; if so, it stays so until ``tx`` ends.

        Raises:
            UsageError: ``tx`` is no supported transaction, is not open, or is on another file.
            StoreUnavailable: The write lock could not be had in the connection's own time.
        """
        try:
            connection = await _driver_connection(tx)
            if isinstance(connection, sqlite3.Connection):
                newest = self._write_now(grant, connection)
            else:
                newest = await self._write_awaiting(grant, connection)
        except sqlite3.ProgrammingError as error:
            # Closed, or used on a thread that it does not belong to.
            raise UsageError(f"guard cannot use this connection: {error}") from error
        except sqlite3.Error as error:
            raise translate(error) from error
        task = _running_task()
        if task is not None:
            # A connection is in one pair of hands: whoever guarded it before has given it up.
            for other in [t for t, held in self._guarded.items() if held is connection]:
                del self._guarded[other]
            self._guarded[task] = connection
            self.used = True
        return newest

    def _values(self, grant: Grant) -> tuple[str, str, int, int, str]:
        return (self._namespace, grant.key, grant.slot, grant.token, grant.owner)

    def _write_now(self, grant: Grant, connection: sqlite3.Connection) -> bool:
        cursor = connection.cursor()
        # The user's own row factory may build anything from a row.
        cursor.row_factory = None
        try:
            self._check_file(cursor.execute(_DATABASES).fetchall())
            cursor.execute(sql.GUARD, self._values(grant))
            count = cursor.rowcount
        finally:
            cursor.close()
        # With autocommit the write has already ended, and protects nothing.
        if not connection.in_transaction:
            raise UsageError(_NOT_OPEN)
        return count == 1

    async def _write_awaiting(self, grant: Grant, connection: Any) -> bool:
        async with connection.execute(_DATABASES) as cursor:
            rows: list[Any] = list(await cursor.fetchall())
        self._check_file([tuple(row) for row in rows])
        async with connection.execute(sql.GUARD, self._values(grant)) as cursor:
            count: int = cursor.rowcount
        if not connection.in_transaction:
            raise UsageError(_NOT_OPEN)
        return count == 1

    def _check_file(self, databases: list[Any]) -> None:
        for _, name, path in databases:
            if _text(name) != "main":
                continue
            try:
                if path and os.path.samefile(_text(path), self._path):  # noqa: PTH121
                    return
            except OSError:
                break
        raise UsageError(
            f"guard works inside a transaction on the store's own file {self._path}; this "
            "connection is to another database"
        )


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # Driven by hand from a thread without an event loop.
        return None


def _is_open(connection: Any) -> bool:
    try:
        return bool(connection.in_transaction)
    except (sqlite3.ProgrammingError, ValueError):
        # Closed since: its transaction ended with it.
        return False


def _text(value: str | bytes) -> str:
    return os.fsdecode(value)


def _kinds(tx: object) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(tx).__mro__}


async def _driver_connection(tx: Any) -> Any:
    """The connection under ``tx``, after checking that ``tx`` believes in an open transaction."""
    if isinstance(tx, sqlite3.Connection):
        return _open_one(tx, is_open=tx.in_transaction)
    kinds = _kinds(tx)
    if "aiosqlite.core.Connection" in kinds:
        return _open_one(tx, is_open=tx.in_transaction)
    # ``django.db.connection`` is a proxy that stands for the wrapper of this thread.
    if any(kind.startswith("django.") for kind in kinds):
        return _django(tx)
    if "sqlalchemy.ext.asyncio.session.AsyncSession" in kinds:
        _open_one(tx, is_open=tx.in_transaction())
        tx = await tx.connection()
        kinds = _kinds(tx)
    elif "sqlalchemy.orm.session.Session" in kinds:
        _open_one(tx, is_open=tx.in_transaction())
        tx = tx.connection()
        kinds = _kinds(tx)
    if "sqlalchemy.ext.asyncio.engine.AsyncConnection" in kinds:
        _sqlalchemy(tx)
        return (await tx.get_raw_connection()).driver_connection
    if "sqlalchemy.engine.base.Connection" in kinds:
        _sqlalchemy(tx)
        return tx.connection.driver_connection
    raise UsageError(
        f"guard cannot use a {type(tx).__module__}.{type(tx).__qualname__}; give it a sqlite3 "
        "connection, a SQLAlchemy connection or session, or a Django connection"
    )


def _open_one(tx: Any, *, is_open: bool) -> Any:
    if not is_open:
        raise UsageError(_NOT_OPEN)
    return tx


def _sqlalchemy(tx: Any) -> None:
    if tx.dialect.name != "sqlite":
        raise UsageError(f"this transaction is on {tx.dialect.name}, the store is an SQLite file")
    _open_one(tx, is_open=tx.in_transaction())


def _django(tx: Any) -> Any:
    vendor = getattr(tx, "vendor", None)
    if vendor != "sqlite":
        raise UsageError(f"this is no Django connection to SQLite (its vendor is {vendor!r})")
    if not tx.in_atomic_block or tx.connection is None:
        raise UsageError("guard needs an open transaction: call it inside transaction.atomic()")
    return tx.connection
