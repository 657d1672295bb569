"""The writer's own connection, lent to a function of the user's inside one transaction.

Owns what such a function may do with it: read and write, for a limited time. It must never end the
transaction it runs in, which others share, nor go on writing when that is gone.
"""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Callable
from typing import Any

from outlive.clock import Clock
from outlive.drivers.sqlite.translate import code_of, translate
from outlive.errors import UsageError

# Instructions of SQLite's virtual machine between two looks at the clock: some 50 µs.
_LOOK_EVERY = 5_000

_REFUSED = frozenset(
    {
        sqlite3.SQLITE_TRANSACTION,
        sqlite3.SQLITE_SAVEPOINT,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
    }
)
# Pragmas that only tell something; any other might change how the writer works.
_PRAGMAS = frozenset(
    {
        *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
        *("foreign_key_list", "foreign_key_check", "user_version", "data_version"),
    }
)

# The store's own troubles, not those of what was written.
_TROUBLES = frozenset(
    {
        *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED),
        *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN),
    }
)


class BodyRaised(Exception):
    """A lent connection's borrower raised ``error``. Never leaves the driver."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


class WriterConnection(sqlite3.Connection):
    """A connection that can be lent; while it is, each use of it is looked at."""

    lent = False

    def cursor(self, factory: Any = None) -> Any:
        """A cursor, one that is looked after while the connection is lent."""
        return super().cursor(factory or (_LentCursor if self.lent else sqlite3.Cursor))

    def execute(self, *arguments: Any) -> Any:
        """Run one statement on a new cursor."""
        return self.cursor().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        """Run one statement several times on a new cursor."""
        return self.cursor().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        """Run several statements on a new cursor."""
        return self.cursor().executescript(*arguments)

    def close(self) -> None:
        """Close it, unless it is lent."""
        if self.lent:
            raise UsageError("a transactional step must not close its connection")
        super().close()

    def __setattr__(self, name: str, value: object) -> None:
        # To set one of these is to commit.
        if self.lent and name in ("isolation_level", "autocommit"):
            raise UsageError(f"a transactional step must not set {name} of its connection")
        super().__setattr__(name, value)


class _LentCursor(sqlite3.Cursor):
    """A cursor that writes nothing once the transaction it was lent in is over."""

    def _check(self) -> None:
        connection = self.connection
        if not (isinstance(connection, WriterConnection) and connection.lent):
            raise UsageError("the connection of a transactional step cannot be used after the step")
        if not connection.in_transaction:
            # A full disk or an interrupt took it along; what is written now would stand alone.
            raise sqlite3.OperationalError("the transaction of this step was rolled back")

    def execute(self, *arguments: Any) -> Any:
        self._check()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        self._check()
        return super().executemany(*arguments)

    def executescript(self, *arguments: Any) -> Any:
        self._check()
        return super().executescript(*arguments)


class Loan:
    """One loan of a connection, for at most ``limit_s`` seconds."""

    def __init__(self, connection: WriterConnection, clock: Clock, limit_s: float) -> None:
        self._connection = connection
        self._clock = clock
        self._limit_s = limit_s
        self._until = clock.monotonic() + limit_s
        self._refused = ""

    def run(self, body: Callable[[Any], Any]) -> Any:
        """What ``body`` returns, given the connection inside its open transaction.

        Raises:
            BodyRaised: With what it raised, or with the ``UsageError`` of what it did wrong.
        """
        connection = self._connection
        kept = (connection.row_factory, connection.text_factory)
        connection.lent = True
        # This makes SQLite look again at statements that were prepared before.
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._late, _LOOK_EVERY)
        try:
            result = body(connection)
        except BaseException as error:
            raise BodyRaised(self._judged(error)) from error
        finally:
            connection.set_progress_handler(None, 0)
            connection.set_authorizer(None)
            connection.lent = False
            connection.row_factory, connection.text_factory = kept
        self._check(result)
        return result

    def _authorize(self, action: int, first: str | None, *_: str | None) -> int:
        if action in _REFUSED:
            self._refused = "SAVEPOINT" if action == sqlite3.SQLITE_SAVEPOINT else f"{first}"
            return sqlite3.SQLITE_DENY
        if action == sqlite3.SQLITE_PRAGMA and first is not None and first not in _PRAGMAS:
            self._refused = f"PRAGMA {first}"
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _late(self) -> int:
        return int(self._clock.monotonic() > self._until)

    def _check(self, result: Any) -> None:
        if inspect.iscoroutine(result):
            result.close()
            raise BodyRaised(
                UsageError(
                    "a transactional step on SQLite runs in the writer thread: write it with "
                    "`def`, not `async def`"
                )
            )
        if self._late():
            raise BodyRaised(self._too_late())
        if not self._connection.in_transaction:
            # It went on after an error that had ended the transaction.
            gone = sqlite3.OperationalError("the transaction of this step was rolled back")
            raise BodyRaised(translate(gone))

    def _judged(self, error: BaseException) -> BaseException:
        """What the caller is to see of an error of the body."""
        if self._late():
            return self._too_late()
        if isinstance(error, sqlite3.Error):
            if code_of(error) == sqlite3.SQLITE_AUTH and self._refused:
                return UsageError(
                    f"a transactional step must not run {self._refused}: Outlive begins and ends "
                    "the transaction of the step"
                )
            if code_of(error) in _TROUBLES:
                return translate(error)
        return error

    def _too_late(self) -> UsageError:
        return UsageError(
            "a transactional step held the only writer of the file for more than "
            f"{self._limit_s:g} s; do the slow part in a step before it, or raise the option "
            "transact_limit"
        )
