"""Reads that may take a while: on a connection and a thread of their own.

Owns the read connection behind listings and histories. The write-ahead log lets its reads pass
beside any writer; the event loop never waits for them. One read at a time.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from outlive.drivers.sqlite.translate import UNSTORABLE, translate
from outlive.errors import StoreUnavailable, UsageError
from outlive.process import current

_Result = TypeVar("_Result")
Row = tuple[Any, ...]


class LongReads:
    """One read connection, used by several readers in turn."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._one_at_a_time = asyncio.Lock()
        self._pid = current.pid
        self._closed = False

    async def close(self) -> None:
        """Wait for the read under way, and close the connection unless it is another process's."""
        self._closed = True
        if current.pid == self._pid:
            async with self._one_at_a_time:
                self.connection.close()

    async def rows(self, statement: str, values: Any) -> list[Row]:
        """The rows of one statement, which sees one snapshot."""
        return await self.run(lambda: self.connection.execute(statement, values).fetchall())

    async def run(self, read: Callable[[], _Result]) -> _Result:
        """Run ``read``, which uses the connection, on a thread.

        Raises:
            UsageError: The process was forked since the driver was opened.
            StoreUnavailable: The driver is closed, or SQLite refused the work.
        """
        if current.pid != self._pid:
            raise UsageError("this driver was opened before the process was forked; connect again")
        async with self._one_at_a_time:
            if self._closed:
                raise StoreUnavailable("the SQLite driver is closed")
            reading = asyncio.ensure_future(asyncio.to_thread(read))
            try:
                # Not by `shield`: from Python 3.14 on that tells of an error which comes when
                # nobody waits, as the one of an interrupt does.
                await asyncio.wait((reading,))
                return reading.result()
            except asyncio.CancelledError:
                # Nobody else may use the connection before the thread has let go of it.
                self.connection.interrupt()
                await asyncio.gather(reading, return_exceptions=True)
                raise
            except (sqlite3.Error, *UNSTORABLE) as error:
                raise translate(error) from error


def place_of(cursor: str | None) -> int:
    """The number behind which a page begins.

    Raises:
        UsageError: The cursor is of no record of this store.
    """
    if cursor is None:
        return 0
    try:
        return int(cursor)
    except ValueError:
        raise UsageError(
            f"{cursor!r} is not a cursor of this store; use the cursor of a record"
        ) from None
