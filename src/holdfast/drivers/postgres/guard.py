"""Proves a grant inside the caller's own transaction, whatever library it came from.

Owns the two statements of a guard and the ways to run them. Recognises kinds of transaction by
the module of their class and imports none of those libraries. Never ends, begins or aborts the
caller's transaction: what could fail is asked first in a form that cannot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, TypeVar

from holdfast.drivers.postgres.settings import PostgresSettings
from holdfast.errors import (
    ConfigurationError,
    Fenced,
    HoldfastError,
    StoreUnavailable,
    UsageError,
)
from holdfast.model.lease import Grant

# Whether this database has our tables, and when the transaction began. A plain SELECT on a missing
# table would abort the caller's transaction.
_THERE = """
SELECT to_regclass({1}) IS NOT NULL AND to_regclass({2}) IS NOT NULL, now()::text
"""

# FOR KEY SHARE holds a takeover up until the caller commits, because a takeover changes the token,
# a key column; renewals of the owner pass. The beginning of the transaction is the same as a
# statement before only inside a transaction block, whatever the library believes.
_LOCK = """
WITH ours AS MATERIALIZED (
    SELECT l.token FROM {s}.lease l
    WHERE l.namespace = {1} AND l.key = {2} AND l.slot = {3} AND l.token = {4} AND l.owner = {5}
    FOR KEY SHARE
)
SELECT s.id::text, now()::text, EXISTS (SELECT FROM ours) FROM {s}.store s
"""

_THERE_PARAMETERS = 2
_LOCK_PARAMETERS = 5

_Row = Sequence[Any]
_Result = TypeVar("_Result")
Run = Callable[[str, Sequence[Any]], Awaitable[_Row]]

# psycopg's TransactionStatus.INTRANS: a transaction block is open and healthy.
_IN_TRANSACTION = 2

_ACCEPTED = (
    "an asyncpg connection, a psycopg Connection or AsyncConnection, a SQLAlchemy Connection, "
    "Session, AsyncConnection or AsyncSession, or a Django database connection"
)


class Guard:
    """Guards of one store. ``identity`` is the store's own id."""

    def __init__(self, settings: PostgresSettings, namespace: str, identity: str) -> None:
        self._namespace = namespace
        self._identity = identity
        self._tables = (f"{settings.quoted_schema}.lease", f"{settings.quoted_schema}.store")
        lock = settings.sql(_LOCK)
        self._there = {style: _styled(_THERE, style, _THERE_PARAMETERS) for style in ("$", "%")}
        self._lock = {style: _styled(lock, style, _LOCK_PARAMETERS) for style in ("$", "%")}

    async def check(self, grant: Grant, tx: object) -> None:
        """Prove ``grant`` inside ``tx``; see the port."""
        style, run = await _runner(tx)
        try:
            there = await run(self._there[style], self._tables)
            if not there[0]:
                _foreign()
            row = await run(
                self._lock[style],
                (self._namespace, grant.key, grant.slot, grant.token, grant.owner),
            )
        except HoldfastError:
            raise
        except Exception as error:
            raise _refusal(error) from error
        identity, began, ours = row[0], row[1], row[2]
        if identity != self._identity:
            _foreign()
        if began != there[1]:
            _not_open()
        if not ours:
            raise Fenced(grant.key)


def _styled(text: str, style: str, count: int) -> str:
    """``text`` with its numbered parameters written as the driver wants them, in order."""
    for number in range(1, count + 1):
        cast = "::int" if text is not _THERE and number == 3 else ""  # noqa: PLR2004
        cast = "::bigint" if text is not _THERE and number == 4 else cast  # noqa: PLR2004
        mark = f"${number}" if style == "$" else "%s"
        text = text.replace(f"{{{number}}}", f"{mark}{cast or '::text'}")
    return text


async def _runner(tx: Any) -> tuple[str, Run]:
    """The parameter style of ``tx`` and the function that runs a statement in it."""
    modules = [kind.__module__ for kind in type(tx).__mro__]
    if _from(modules, "asyncpg"):
        return _asyncpg(tx)
    if _from(modules, "psycopg"):
        return _psycopg(tx)
    if _from(modules, "sqlalchemy"):
        return await _sqlalchemy(tx)
    if _from(modules, "django"):
        return _django(tx)
    raise UsageError(f"guard takes {_ACCEPTED}, not {type(tx).__module__}.{type(tx).__name__}")


def _from(modules: Sequence[str], library: str) -> bool:
    return any(name == library or name.startswith(f"{library}.") for name in modules)


def _asyncpg(tx: Any) -> tuple[str, Run]:
    if not callable(getattr(tx, "is_in_transaction", None)):
        raise UsageError(f"guard takes {_ACCEPTED}, not asyncpg's {type(tx).__name__}")
    if tx.is_closed() or not tx.is_in_transaction():
        _not_open()

    async def run(text: str, args: Sequence[Any]) -> _Row:
        return await tx.fetchrow(text, *args)

    return "$", run


def _psycopg(tx: Any) -> tuple[str, Run]:
    if not hasattr(tx, "info") or not callable(getattr(tx, "cursor", None)):
        raise UsageError(f"guard takes {_ACCEPTED}, not psycopg's {type(tx).__name__}")
    # Without autocommit psycopg begins by itself at the first statement; a guard that was the
    # first is as good, since the block stays open after it.
    opens_itself = not tx.autocommit and int(tx.info.transaction_status) == 0
    if tx.closed or not (opens_itself or int(tx.info.transaction_status) == _IN_TRANSACTION):
        _not_open()
    if "Async" not in type(tx).__name__:
        return "%", _in_thread(tx)

    async def run(text: str, args: Sequence[Any]) -> _Row:
        # A cursor of the base kind: the connection's own row factory may give dictionaries.
        async with tx.cursor(row_factory=_tuples) as cursor:
            await cursor.execute(text, tuple(args))
            return await cursor.fetchone()

    return "%", run


def _tuples(_cursor: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    return tuple


def _in_thread(connection: Any) -> Run:
    """Runs statements of a blocking connection beside the event loop.

    The statement may wait for a lock that a task of this very loop must give up first.
    """

    def work(text: str, args: Sequence[Any]) -> _Row:
        options = (
            {"row_factory": _tuples} if _from([type(connection).__module__], "psycopg") else {}
        )
        with connection.cursor(**options) as cursor:
            cursor.execute(text, tuple(args))
            return cursor.fetchone()

    async def run(text: str, args: Sequence[Any]) -> _Row:
        return await _beside(lambda: work(text, args))

    return run


async def _beside(work: Callable[[], _Result]) -> _Result:
    """Run ``work`` in a thread beside the loop; without a loop, right here and without waiting.

    The second is the façade's case: it drives the guard on the thread the connection belongs to.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    return await asyncio.to_thread(work)


async def _sqlalchemy(tx: Any) -> tuple[str, Run]:
    awaits = _from([kind.__module__ for kind in type(tx).__mro__], "sqlalchemy.ext.asyncio")
    if not callable(getattr(tx, "in_transaction", None)):
        raise UsageError(f"guard takes {_ACCEPTED}, not SQLAlchemy's {type(tx).__name__}")
    if not tx.in_transaction():
        _not_open()
    connection = tx
    if callable(getattr(tx, "get_bind", None)):
        connection = await tx.connection() if awaits else await _beside(tx.connection)
    if connection.dialect.name != "postgresql":
        _foreign()
    style = "$" if connection.dialect.paramstyle == "numeric_dollar" else "%"

    async def run(text: str, args: Sequence[Any]) -> _Row:
        if awaits:
            return (await connection.exec_driver_sql(text, tuple(args))).one()
        return await _beside(lambda: connection.exec_driver_sql(text, tuple(args)).one())

    return style, run


def _django(tx: Any) -> tuple[str, Run]:
    if not hasattr(tx, "in_atomic_block") or not hasattr(tx, "vendor"):
        raise UsageError(f"guard takes {_ACCEPTED}, not Django's {type(tx).__name__}")
    if tx.vendor != "postgresql":
        _foreign()
    if not tx.in_atomic_block or tx.needs_rollback or tx.connection is None:
        _not_open()
    # The connection beneath: Django's own wrapper refuses to be used from another thread.
    return "%", _in_thread(tx.connection)


def _foreign() -> NoReturn:
    raise UsageError(
        "the transaction belongs to another database than the lease: guard needs one on the "
        "database (and with access to the schema) that Holdfast is connected to"
    )


def _not_open() -> NoReturn:
    raise UsageError(
        "the connection is not inside an open transaction, so a guard would hold nothing: begin "
        "one first, and guard inside it"
    )


def _refusal(error: Exception) -> HoldfastError:
    """What an error of the caller's library means."""
    origin: Any = getattr(error, "orig", None) or error
    code = getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None)
    name = type(origin).__name__
    if code == "25006":
        return UsageError("a read-only transaction cannot guard: it may not lock a row")
    if code == "25P02":
        return UsageError("the transaction has already failed: roll it back")
    if code == "42501":
        return ConfigurationError(
            "the transaction's user may not lock lease rows: grant SELECT and UPDATE on the tables "
            "of Holdfast"
        )
    return StoreUnavailable(f"the guard could not be proven ({name}, {code}): roll back and retry")
