"""Joins the caller's own open transaction, whatever library it came from.

Owns recognising kinds of transaction and running statements in them. Knows them by the module of
their class and imports none of those libraries. Never ends, begins or aborts the caller's
transaction.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from outlive.errors import UsageError

_Result = TypeVar("_Result")
Row = Mapping[str, Any]
Run = Callable[..., Awaitable[Sequence[Row]]]
"""Runs a statement with its parameters, written ``$1``, ``$2``, …, and gives its rows."""

# psycopg's TransactionStatus.INTRANS: a transaction block is open and healthy.
_IN_TRANSACTION = 2

_ACCEPTED = (
    "an asyncpg connection, a psycopg Connection or AsyncConnection, a SQLAlchemy Connection, "
    "Session, AsyncConnection or AsyncSession, or a Django database connection"
)

_PARAMETER = re.compile(r"\$(\d+)")


async def join(tx: Any, purpose: str) -> Run:
    """The function that runs statements in ``tx``; ``purpose`` names the caller in errors.

    Raises:
        UsageError: ``tx`` is no supported transaction, or none that its library calls open.
    """
    modules = [kind.__module__ for kind in type(tx).__mro__]
    if _from(modules, "asyncpg"):
        return _asyncpg(tx, purpose)
    if _from(modules, "psycopg"):
        return _psycopg(tx, purpose)
    if _from(modules, "sqlalchemy"):
        return await _sqlalchemy(tx, purpose)
    if _from(modules, "django"):
        return _django(tx, purpose)
    return _refuse(purpose, f"{type(tx).__module__}.{type(tx).__name__}")


def foreign(purpose: str) -> NoReturn:
    """Refuse a transaction of another database."""
    raise UsageError(
        f"the transaction is on another database than Outlive's: {purpose} needs a transaction "
        "on the database that Outlive is connected to, with access to its schema"
    )


def not_open(purpose: str) -> NoReturn:
    """Refuse a connection that has no open transaction."""
    raise UsageError(
        f"the connection has no open transaction: begin one first, and {purpose} inside it"
    )


def _refuse(purpose: str, what: str) -> NoReturn:
    raise UsageError(f"{purpose} takes {_ACCEPTED}, not {what}")


def _from(modules: Sequence[str], library: str) -> bool:
    return any(name == library or name.startswith(f"{library}.") for name in modules)


def _asyncpg(tx: Any, purpose: str) -> Run:
    if not callable(getattr(tx, "is_in_transaction", None)):
        _refuse(purpose, f"asyncpg's {type(tx).__name__}")
    if tx.is_closed() or not tx.is_in_transaction():
        not_open(purpose)

    async def run(text: str, *args: Any) -> Sequence[Row]:
        return await tx.fetch(text, *args)

    return run


def _psycopg(tx: Any, purpose: str) -> Run:
    if not hasattr(tx, "info") or not callable(getattr(tx, "cursor", None)):
        _refuse(purpose, f"psycopg's {type(tx).__name__}")
    # Without autocommit psycopg begins by itself at the first statement; one of ours that was the
    # first is as good, since the block stays open after it.
    opens_itself = not tx.autocommit and int(tx.info.transaction_status) == 0
    if tx.closed or not (opens_itself or int(tx.info.transaction_status) == _IN_TRANSACTION):
        not_open(purpose)
    if "Async" not in type(tx).__name__:
        return _in_thread(tx)

    async def run(text: str, *args: Any) -> Sequence[Row]:
        # A cursor of the base kind: the connection's own row factory may give anything.
        async with tx.cursor(row_factory=_tuples) as cursor:
            await cursor.execute(*_in_order(text, args))
            return _named(cursor, await cursor.fetchall())

    return run


def _tuples(_cursor: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    return tuple


def _in_order(text: str, args: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The statement with a ``%s`` for each parameter, and the values in that order."""
    numbers = [int(number) - 1 for number in _PARAMETER.findall(text)]
    return _PARAMETER.sub("%s", text), tuple(args[number] for number in numbers)


def _named(cursor: Any, rows: Sequence[Sequence[Any]]) -> list[Row]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _in_thread(connection: Any) -> Run:
    """Runs statements of a blocking connection beside the event loop.

    The statement may wait for a lock that a task of this very loop must give up first.
    """

    def work(text: str, args: Sequence[Any]) -> Sequence[Row]:
        options = (
            {"row_factory": _tuples} if _from([type(connection).__module__], "psycopg") else {}
        )
        with connection.cursor(**options) as cursor:
            cursor.execute(*_in_order(text, args))
            return _named(cursor, cursor.fetchall())

    async def run(text: str, *args: Any) -> Sequence[Row]:
        return await _beside(lambda: work(text, args))

    return run


async def _beside(work: Callable[[], _Result]) -> _Result:
    """Run ``work`` in a thread beside the loop; without a loop, right here and without waiting.

    The second is the façade's case: it drives the call on the thread the connection belongs to.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    return await asyncio.to_thread(work)


async def _sqlalchemy(tx: Any, purpose: str) -> Run:
    awaits = _from([kind.__module__ for kind in type(tx).__mro__], "sqlalchemy.ext.asyncio")
    if not callable(getattr(tx, "in_transaction", None)):
        _refuse(purpose, f"SQLAlchemy's {type(tx).__name__}")
    if not tx.in_transaction():
        not_open(purpose)
    connection = tx
    if callable(getattr(tx, "get_bind", None)):
        connection = await tx.connection() if awaits else await _beside(tx.connection)
    if connection.dialect.name != "postgresql":
        foreign(purpose)
    numbered = connection.dialect.paramstyle == "numeric_dollar"

    async def run(text: str, *args: Any) -> Sequence[Row]:
        statement = (text, tuple(args)) if numbered else _in_order(text, args)
        if awaits:
            return (await connection.exec_driver_sql(*statement)).mappings().all()
        return await _beside(lambda: connection.exec_driver_sql(*statement).mappings().all())

    return run


def _django(tx: Any, purpose: str) -> Run:
    if not hasattr(tx, "in_atomic_block") or not hasattr(tx, "vendor"):
        _refuse(purpose, f"Django's {type(tx).__name__}")
    if tx.vendor != "postgresql":
        foreign(purpose)
    if not tx.in_atomic_block or tx.needs_rollback or tx.connection is None:
        not_open(purpose)
    # The connection beneath: Django's own wrapper refuses to be used from another thread.
    return _in_thread(tx.connection)
