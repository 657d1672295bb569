"""The one writer of a file: operations of many tasks, few commits.

Owns the write connection, the writer thread, and the order in which operations run. Operations
submitted during one turn of the event loop, and all that queue up during a commit, share one
transaction. A lone operation on an idle writer runs on the event loop itself, because handing it
to a thread and back costs nearly as much as the commit. It must never wait for the write lock on
the event loop, and never resolve a future before COMMIT returned.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sized
from typing import Any

from outlive.drivers.sqlite.at_once import AtOnce
from outlive.drivers.sqlite.transaction import Bell, Busy, Call, Entry, Outcome, Transactions
from outlive.errors import StoreUnavailable, UsageError
from outlive.process import current

# A batch holds the write lock while it runs, about 15 µs for each operation: 512 of them keep
# other processes waiting for some 8 ms, and the commit's own cost has long been shared out.
_BATCH_MAX = 512

# An event loop tolerates a pause of this length; above it, commits go to the thread.
_INLINE_COMMIT_MAX_S = 0.002

# Timers, sockets and signals are looked at once in a turn: they wait for so many operations at
# most, where those follow each other and nobody else is ready to run. It is what three short flows
# write, and takes them a few milliseconds.
_UNTURNED_MAX = 6

# So many operations that nobody waits with are carried out at once, unless a turn was seen between
# them; more are company. To look for the turn costs as much as a tenth of the operation.
_AT_ONCE_MAX = 2

# The log is copied back into the file about every so many pages. SQLite's own default is the same;
# a longer log makes readers slower. A commit writes about this many pages besides one for each
# operation, and an operation on many rows shares a page among so many of them.
_CHECKPOINT_PAGES = 1000
_COMMIT_PAGES = 3
_ROWS_PER_PAGE = 4

_CLOSED = "the SQLite driver is closed"


class Writer:
    """Takes operations on the event loop that made it, and runs them in transactions."""

    def __init__(
        self,
        transactions: Transactions,
        *,
        name: str,
        logger: logging.Logger,
        after_commit: Callable[[sqlite3.Connection, list[str | Bell]], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._transactions = transactions
        self._name = name
        self._logger = logger
        self._after_commit = after_commit
        self._pid = current.pid
        self._pending: list[Entry] = []
        self._large = False
        # Operations handed to the thread and not yet resolved. Zero means that the thread does
        # not touch the connection; it is read and written on the event loop only.
        self._outstanding = 0
        # Whether the last turn of the loop had one operation only. The next one then need not
        # wait for company.
        self._alone = False
        # What wants to run in the next turn, as asyncio keeps it; other loops do not say. And how
        # many operations have gone without a turn of it.
        self._ready: Sized | None = getattr(self._loop, "_ready", None)
        self._unturned = 0
        self._at_once = 0
        self._pages = 0
        # Rows that the connection had changed when it was last looked at.
        self._changes = transactions.connection.total_changes
        self._thread: threading.Thread | None = None
        self._queue: queue.SimpleQueue[list[Entry] | None] = queue.SimpleQueue()
        self._closed = False

    def submit(self, call: Call, argument: Any, *, large: bool = False) -> asyncio.Future[Any]:
        """Have ``call(turn, argument)`` run in a write transaction; the future has its result.

        A ``large`` one takes longer than an event loop tolerates, and runs on the thread.

        Raises:
            UsageError: The process was forked since the driver was opened.
            StoreUnavailable: The driver is closed.
        """
        self._check()
        future: asyncio.Future[Any] = self._loop.create_future()
        pending = self._pending
        if not pending:
            self._loop.call_soon(self._flush)
        pending.append((future, call, argument))
        self._large |= large
        return future

    def perform(self, call: Call, argument: Any, *, large: bool = False) -> Awaitable[Any]:
        """``submit`` for a caller that awaits the result at once.

        Where operations come one by one, it runs before this returns: nobody would have joined it.
        Awaiting the result takes one turn of the event loop all the same, if anybody else is ready
        to run, and now and then if nobody is. Raises as ``submit``.
        """
        if not self._alone or self._pending or large or not self._is_idle():
            return self.submit(call, argument, large=large)
        self._check()
        # Others of this turn are company.
        self._alone = False
        try:
            value, error = self._transact_one(call, argument)
        except Busy:
            return self.submit(call, argument)
        if self._pages >= _CHECKPOINT_PAGES:
            self._hand_over([])
        if self._ready is not None and not self._ready and self._unturned < _UNTURNED_MAX:
            # A turn would be nobody's.
            self._unturned += 1
            # What follows is not company of what went before.
            self._at_once = 0
            self._turned()
            return AtOnce(None, value, error)
        self._unturned = 0
        return AtOnce(self._turned, value, error)

    def at_once(self, call: Call, argument: Any, *, awaited: bool = False) -> Any:
        """The result of an operation that nobody waits with, ``None`` where it would have to wait.

        It is carried out before this returns; nobody is given a turn in between, so that the caller
        owes one to everybody else, and that only a few are carried out in one turn. Where the
        caller can wait, ``awaited``, it is left to ``perform`` if a turn is owed already. Raises as
        the operation does, and as ``submit``.
        """
        if not self._alone or self._pending or self._outstanding:
            return None
        if self._transactions.commit_s >= _INLINE_COMMIT_MAX_S:
            return None
        if self._closed or current.pid != self._pid:
            self._check()
        if not awaited:
            self._at_once += 1
            if self._ready is None or self._ready or self._at_once > _AT_ONCE_MAX:
                self._alone = False
                self._loop.call_soon(self._in_next_turn)
        elif self._ready is None or self._ready or self._unturned >= _UNTURNED_MAX:
            return None
        else:
            # What follows is not company of what went before.
            self._at_once = 0
        self._unturned += 1
        try:
            value, error = self._transact_one(call, argument)
        except Busy:
            return None
        if self._pages >= _CHECKPOINT_PAGES:
            self._hand_over([])
        if error is not None:
            raise error
        return value

    def _in_next_turn(self) -> None:
        self._unturned = self._at_once = 0
        self._turned()

    def _turned(self) -> None:
        # Whatever was submitted meanwhile is still to be flushed, or at the thread.
        self._alone = not self._pending and self._outstanding == 0

    def _is_idle(self) -> bool:
        """Whether an operation may run on the event loop now."""
        return self._outstanding == 0 and self._transactions.commit_s < _INLINE_COMMIT_MAX_S

    def _check(self) -> None:
        if current.pid != self._pid:
            raise UsageError(
                "this driver was opened before the process was forked; SQLite connections do not "
                "survive a fork: connect again in the child"
            )
        if self._closed:
            raise StoreUnavailable(_CLOSED)

    async def close(self) -> None:
        """Finish what has begun, refuse the rest, and close the connection. Repeatable."""
        if self._closed:
            return
        self._closed = True
        # A child of a fork must leave the parent's connection alone.
        if current.pid != self._pid:
            return
        self._transactions.closing.set()
        self._resolve(_refused(self._pending))
        self._pending = []
        await asyncio.shield(asyncio.to_thread(self._finish))

    def _finish(self) -> None:
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
        # The last connection copies the log back into the file, which may take a while.
        self._transactions.connection.close()

    def _flush(self) -> None:
        entries = self._pending
        if not entries:
            return
        self._pending = []
        large, self._large = self._large, False
        self._alone = len(entries) == 1
        if self._alone and not large and self._is_idle():
            try:
                outcomes = self._transact(entries, wait=False)
            except Busy:
                # Waiting for the lock is the thread's work.
                self._hand_over(entries)
                return
            self._resolve(outcomes)
            if self._pages >= _CHECKPOINT_PAGES:
                self._hand_over([])
            return
        self._hand_over(entries)

    def _transact(self, entries: list[Entry], *, wait: bool) -> list[Outcome]:
        """Run one batch on the calling thread, and wake those who wait for what it freed."""
        try:
            outcomes, freed = self._transactions.run(entries, wait=wait)
        except Busy:
            raise
        except Exception as error:
            # A mistake of ours must not leave callers waiting for ever.
            self._logger.exception("the SQLite writer failed")
            return _refused(entries, f"the SQLite writer failed: {error!r}")
        if freed:
            self._announce(freed)
        self._count(len(entries))
        return outcomes

    def _transact_one(self, call: Call, argument: Any) -> tuple[Any, BaseException | None]:
        """The same for one operation on the event loop, which does not wait."""
        try:
            value, failure, freed = self._transactions.run_one(call, argument)
        except Busy:
            raise
        except Exception as error:
            self._logger.exception("the SQLite writer failed")
            return None, StoreUnavailable(f"the SQLite writer failed: {error!r}")
        if freed:
            self._announce(freed)
        self._count(1)
        return value, failure

    def _count(self, operations: int) -> None:
        """Estimate how much longer the log has become."""
        changes = self._transactions.connection.total_changes
        self._pages += operations + _COMMIT_PAGES + (changes - self._changes) // _ROWS_PER_PAGE
        self._changes = changes

    def _hand_over(self, entries: list[Entry]) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                # The machine has none to give now. A checkpoint is asked for again soon.
                self._resolve(
                    _refused(entries, f"could not start a thread for the SQLite writer: {error}")
                )
                return
            self._thread = thread
        # An empty list asks for a checkpoint; it counts as one, so that the thread is not
        # taken for idle meanwhile.
        self._outstanding += len(entries) or 1
        self._queue.put(entries)

    def _resolve(self, outcomes: list[Outcome], handed_over: int = 0) -> None:
        self._outstanding -= handed_over
        for future, value, error in outcomes:
            if not future.done():
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)

    def _announce(self, freed: list[str | Bell]) -> None:
        if self._after_commit is not None:
            try:
                self._after_commit(self._transactions.connection, freed)
            except (sqlite3.Error, OSError, RuntimeError):
                # A wake-up is a hint; the commit it tells of stands.
                self._logger.debug("could not notify waiters", exc_info=True)

    def _work(self) -> None:
        """The thread: drain whatever queued up during the last commit, and commit it at once."""
        while (entries := self._queue.get()) is not None:
            entries = list(entries)
            handed_over = len(entries) or 1
            last = False
            while len(entries) < _BATCH_MAX:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    last = True
                    break
                entries += more
                handed_over += len(more) or 1
            self._process(entries, handed_over)
            if last:
                return

    def _process(self, entries: list[Entry], handed_over: int) -> None:
        # An empty list asks for a checkpoint alone.
        overdue = not entries
        # What was handed over in one piece may be larger than a batch.
        for start in range(0, len(entries), _BATCH_MAX):
            batch = entries[start : start + _BATCH_MAX]
            if self._transactions.closing.is_set():
                self._report(_refused(batch), 0)
                continue
            outcomes = self._transact(batch, wait=True)
            # The thread counts as busy until it no longer touches the connection. Whether it will
            # is decided before it is told: afterwards the event loop writes, and counts pages.
            overdue = self._pages >= _CHECKPOINT_PAGES
            last = start + _BATCH_MAX >= len(entries) and not overdue
            self._report(outcomes, handed_over if last else 0)
        if overdue:
            self._checkpoint()
            self._report([], handed_over)

    def _checkpoint(self) -> None:
        self._pages = 0
        try:
            # PASSIVE waits for nobody; what it cannot copy now, the next one will.
            self._transactions.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            self._logger.warning(
                "could not checkpoint the write-ahead log of SQLite", exc_info=True
            )

    def _report(self, outcomes: list[Outcome], handed_over: int) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve, outcomes, handed_over)
        except RuntimeError:
            # The loop was closed without closing the driver: nobody is left to be told.
            self._logger.debug("the event loop is closed; dropped results: %d", len(outcomes))


def _refused(entries: list[Entry], why: str = _CLOSED) -> list[Outcome]:
    return [(entry[0], None, StoreUnavailable(why)) for entry in entries]
