"""Writing inside the user's own transaction: our rows and the user's commit together or not.

Owns which kinds of transaction are accepted. All of them come down to one SQLite connection on the
store's own file. It must never begin, commit or roll back the transaction: that is the user's.
SQLAlchemy, Django and aiosqlite are recognised by name and never imported.

For connections that do not await, ``UserTransactions.run`` never suspends, so that a caller without
an event loop may drive it on the thread the connection belongs to.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from outlive.drivers.sqlite import statements
from outlive.drivers.sqlite.statements import Operation
from outlive.drivers.sqlite.translate import translate
from outlive.errors import UsageError

if TYPE_CHECKING:
    from outlive.drivers.sqlite.transaction import Call
    from outlive.drivers.sqlite.writer import Writer

_DATABASES = "PRAGMA database_list"

# Long enough for somebody else's transaction to end, short enough to be called at once.
_OWN_LOCK_WAIT_S = 0.25

_Result = TypeVar("_Result")

_NOT_OPEN = (
    "{doing} needs an open transaction, and this connection has none: begin one first (BEGIN "
    "IMMEDIATE is best), and keep autocommit off"
)


class UserTransactions:
    """Runs operations inside transactions of the user's on the store's own file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Which task wrote into which connection last. While that transaction is open, the task
        # must not wait for a write of ours: the file's one write lock is in its own hands.
        self._joined: WeakKeyDictionary[asyncio.Task[Any], Any] = WeakKeyDictionary()
        # Whether this was ever used; until then, nobody needs to wait carefully.
        self.used = False

    def write(
        self, writer: Writer, call: Call, argument: object, *, large: bool = False
    ) -> Awaitable[Any]:
        """Have ``writer`` run an operation for a caller that awaits the result at once."""
        if self.used:
            return self.wait_carefully(writer.submit(call, argument, large=large))
        return writer.perform(call, argument, large=large)

    async def wait_carefully(self, writing: asyncio.Future[_Result]) -> _Result:
        """Wait for a write of ours, but not for the transaction that this very task has open.

        A connection that went back to a pool may by now be in the hands of another task, whose
        transaction ends by itself; one's own does not end while one waits. Hence the moment.

        Raises:
            UsageError: The running task has joined a transaction that is still open.
        """
        task = asyncio.current_task()
        connection = None if task is None else self._joined.get(task)
        if task is None or connection is None:
            return await writing
        if _is_open(connection):
            await asyncio.wait([writing], timeout=_OWN_LOCK_WAIT_S)
            if not writing.done() and _is_open(connection):
                writing.cancel()
                raise UsageError(
                    "this task holds the write lock of the file in its own open transaction and "
                    "would wait for itself: commit or roll back that transaction first"
                )
        # It was not held up, so the transaction it joined is over.
        self._joined.pop(task, None)
        return await writing

    async def run(self, doing: str, operation: Operation[_Result], tx: object) -> _Result:
        """Run ``operation``, whose first statement writes, inside ``tx``.

        ``doing`` names it in errors. The write keeps everybody else out until ``tx`` ends.

        Raises:
            UsageError: ``tx`` is no supported transaction, is not open, or is on another file.
            StoreUnavailable: The write lock could not be had in the connection's own time.
        """
        try:
            connection = await _driver_connection(doing, tx)
            if isinstance(connection, sqlite3.Connection):
                result = self._run_now(doing, operation, connection)
            else:
                result = await self._run_awaiting(doing, operation, connection)
        except sqlite3.ProgrammingError as error:
            # Closed, or used on a thread that it does not belong to.
            raise UsageError(f"{doing} cannot use this connection: {error}") from error
        except sqlite3.Error as error:
            raise translate(error) from error
        task = _running_task()
        if task is not None:
            # A connection is in one pair of hands: whoever joined it before has given it up.
            for other in [t for t, held in self._joined.items() if held is connection]:
                del self._joined[other]
            self._joined[task] = connection
            self.used = True
        return result

    def _run_now(
        self, doing: str, operation: Operation[_Result], connection: sqlite3.Connection
    ) -> _Result:
        cursor = connection.cursor()
        # The user's own row factory may build anything from a row.
        cursor.row_factory = None
        try:
            self._check_file(doing, cursor.execute(_DATABASES).fetchall())
            return statements.run(operation, cursor, lambda: _still_open(doing, connection))
        finally:
            cursor.close()

    async def _run_awaiting(
        self, doing: str, operation: Operation[_Result], connection: Any
    ) -> _Result:
        async with connection.cursor() as cursor:
            cursor.row_factory = None
            await cursor.execute(_DATABASES)
            self._check_file(doing, list(await cursor.fetchall()))
            return await statements.run_awaiting(
                operation, cursor, lambda: _still_open(doing, connection)
            )

    def _check_file(self, doing: str, databases: list[Any]) -> None:
        for _, name, path in databases:
            if _text(name) != "main":
                continue
            try:
                if path and os.path.samefile(_text(path), self._path):  # noqa: PTH121
                    return
            except OSError:
                break
        raise UsageError(
            f"{doing} needs a transaction on the file of the store, {self._path}; this "
            "connection is to another database"
        )


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        # Driven by hand from a thread without an event loop.
        return None


def _still_open(doing: str, connection: Any) -> None:
    """Refuse a connection with autocommit, on which the first write has already ended."""
    if not connection.in_transaction:
        raise UsageError(_NOT_OPEN.format(doing=doing))


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


async def _driver_connection(doing: str, tx: Any) -> Any:
    """The connection under ``tx``, after checking that ``tx`` believes in an open transaction."""
    if isinstance(tx, sqlite3.Connection):
        return _open_one(doing, tx, is_open=tx.in_transaction)
    kinds = _kinds(tx)
    if "aiosqlite.core.Connection" in kinds:
        return _open_one(doing, tx, is_open=tx.in_transaction)
    # ``django.db.connection`` is a proxy that stands for the wrapper of this thread.
    if any(kind.startswith("django.") for kind in kinds):
        return _django(doing, tx)
    if "sqlalchemy.ext.asyncio.session.AsyncSession" in kinds:
        _open_one(doing, tx, is_open=tx.in_transaction())
        tx = await tx.connection()
        kinds = _kinds(tx)
    elif "sqlalchemy.orm.session.Session" in kinds:
        _open_one(doing, tx, is_open=tx.in_transaction())
        tx = tx.connection()
        kinds = _kinds(tx)
    if "sqlalchemy.ext.asyncio.engine.AsyncConnection" in kinds:
        _sqlalchemy(doing, tx)
        return (await tx.get_raw_connection()).driver_connection
    if "sqlalchemy.engine.base.Connection" in kinds:
        _sqlalchemy(doing, tx)
        return tx.connection.driver_connection
    raise UsageError(
        f"{doing} cannot use a {type(tx).__module__}.{type(tx).__qualname__}; give it a sqlite3 "
        "connection, a SQLAlchemy connection or session, or a Django connection"
    )


def _open_one(doing: str, tx: Any, *, is_open: bool) -> Any:
    if not is_open:
        raise UsageError(_NOT_OPEN.format(doing=doing))
    return tx


def _sqlalchemy(doing: str, tx: Any) -> None:
    if tx.dialect.name != "sqlite":
        raise UsageError(
            f"this transaction is on {tx.dialect.name}, but the store is an SQLite file"
        )
    _open_one(doing, tx, is_open=tx.in_transaction())


def _django(doing: str, tx: Any) -> Any:
    vendor = getattr(tx, "vendor", None)
    if vendor != "sqlite":
        raise UsageError(f"this is not a Django connection to SQLite (its vendor is {vendor!r})")
    if not tx.in_atomic_block or tx.connection is None:
        raise UsageError(f"{doing} needs an open transaction: call it inside transaction.atomic()")
    return tx.connection
