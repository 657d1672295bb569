"""One write transaction over a batch of operations: all of it commits, or none of it.

Owns BEGIN, COMMIT, savepoints, and what becomes of each operation. It knows no event loop and no
threads: the writer decides where it runs. It must never report an operation as done before COMMIT
has returned.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from outlive.clock import Clock, wall_us_of
from outlive.drivers.sqlite.joint import JOINT_LEAST, NOT_DONE, Joint, runs_of
from outlive.drivers.sqlite.translate import BUSY_ADVICE, UNSTORABLE, is_busy, translate
from outlive.errors import StoreUnavailable
from outlive.names import HostId

# Somebody else's commit takes a fraction of a millisecond on a good disk: asking more often than
# this only burns the processor, asking less often loses the file to those who ask at once.
_PAUSE_LEAST_S = 0.0001
_PAUSE_MOST_S = 0.003

# The longest pause falls with the number of refusals, so that those who waited longest ask most
# often and nobody starves; it does not fall below this.
_PAUSE_EAGER_S = 0.0003

_GONE = (
    "the SQLite file was removed or replaced while this process had it open, so other processes "
    "no longer see its writes: restore the file, or reconnect"
)

# A transaction that took longer counts as this long: one of ten thousand rows says nothing about
# the next one of a single row.
_SAMPLE_MOST_S = 0.01

# How often a waiting batch looks whether anybody still waits for it.
_ABANDONED_EVERY = 64


class Bell(NamedTuple):
    """A host that is to be rung after COMMIT, and what it is to hear."""

    host: HostId
    topic: str


class Turn:
    """What an operation sees of the transaction it runs in.

    ``now_us`` is the store's clock and ``wall_us`` is UTC, both read once, after BEGIN IMMEDIATE
    returned. ``freed`` collects who is to hear of it after COMMIT: the waiters of a key, or a host
    that was noted to wait for jobs.
    """

    __slots__ = ("alone", "cursor", "freed", "now_us", "saved", "wall_us")

    def __init__(self, cursor: sqlite3.Cursor) -> None:
        self.cursor = cursor
        self.now_us = 0
        self.wall_us = 0
        # Whether nothing else is in the transaction: what undoes it then undoes the operation.
        self.alone = False
        self.saved = False
        self.freed: list[str | Bell] = []

    def savepoint(self) -> None:
        """Make the rest of this operation all or nothing.

        An operation that writes with more than one statement calls this before the first. A
        single statement is atomic by itself and goes without.
        """
        if not self.saved:
            if not self.alone:
                self.cursor.execute("SAVEPOINT operation")
            self.saved = True


Call = Callable[[Turn, Any], Any]
Entry = tuple["asyncio.Future[Any]", Call, Any]
# Who waits, the value, and the error that stands in its place.
Outcome = tuple["asyncio.Future[Any]", Any, "BaseException | None"]


class Busy(Exception):
    """The write lock is taken and the caller did not want to wait. Never leaves the driver."""


class _TookAllAlong(Exception):
    """Operations that were done together ended the whole transaction."""


class Transactions:
    """Runs batches of operations on one connection, one transaction each."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        clock: Clock,
        jitter: random.Random,
        *,
        path: Path,
        busy_timeout_s: float,
    ) -> None:
        self.connection = connection
        self.closing = threading.Event()
        # Average time of a commit: decides whether a lone operation may run on the event loop.
        self.commit_s = 0.0
        self._clock = clock
        self._wall_us = wall_us_of(clock)
        self._jitter = jitter
        self._busy_timeout_s = busy_timeout_s
        self._turn = Turn(connection.cursor())
        # A string: turning a path into one costs a sixth of the look at the file.
        self._path = os.fspath(path)
        self._identity = _identity(self._path)

    def run(self, entries: list[Entry], *, wait: bool) -> tuple[list[Outcome], list[str | Bell]]:
        """Run ``entries`` and commit; returns what became of each, and who is to be told.

        Cancelled operations that have not begun are left out.

        Raises:
            Busy: ``wait`` is false and somebody else holds the write lock. Nothing was run.
        """
        failed: list[Outcome] = []
        join = True
        while entries:
            try:
                self._begin(entries, wait=wait)
            except (sqlite3.Error, StoreUnavailable) as error:
                return failed + [(e[0], None, _report(error)) for e in entries], []
            if _identity(self._path) != self._identity:
                self._abandon()
                return failed + [(e[0], None, StoreUnavailable(_GONE)) for e in entries], []
            begun = self._clock.monotonic()
            turn = self._turn
            turn.now_us = int(begun * 1e6)
            turn.wall_us = self._wall_us()
            turn.freed = []
            turn.saved = False
            turn.alone = len(entries) == 1
            try:
                outcomes, culprit = self._run_all(entries, join=join)
            except _TookAllAlong:
                # One by one it will be seen whose fault it was.
                join = False
                continue
            except BaseException:
                # A mistake of ours; the next batch must find no transaction of this one.
                self._abandon()
                raise
            if culprit is not None:
                # The whole transaction is gone, the work of those before included: nothing of
                # the batch is committed. The one that caused it fails; the others run again.
                failed.append(culprit)
                entries = [entry for entry in entries if entry[0] is not culprit[0]]
                continue
            try:
                self._turn.cursor.execute("COMMIT")
            except sqlite3.Error as error:
                self._abandon()
                return failed + [
                    (o[0], None, _report(error, committing=True)) for o in outcomes
                ], []
            took_s = min(self._clock.monotonic() - begun, _SAMPLE_MOST_S)
            self.commit_s += 0.2 * (took_s - self.commit_s)
            return failed + outcomes, turn.freed
        return failed, []

    def run_one(
        self, call: Call, argument: Any
    ) -> tuple[Any, BaseException | None, list[str | Bell]]:
        """``run`` for a single operation that does not wait.

        Returns its value, or the error in its place, and who is to be told.

        Raises:
            Busy: Somebody else holds the write lock. Nothing was run.
        """
        turn, clock = self._turn, self._clock
        turn.freed = []
        try:
            turn.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            if is_busy(error):
                raise Busy from None
            return None, _report(error), []
        if _identity(self._path) != self._identity:
            self._abandon()
            return None, StoreUnavailable(_GONE), []
        begun = clock.monotonic()
        turn.now_us = int(begun * 1e6)
        turn.wall_us = self._wall_us()
        turn.saved = False
        turn.alone = True
        value = failure = None
        try:
            value = call(turn, argument)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the caller's
            failure = _report(error)
            if turn.saved or self.rolled_back():
                self._abandon()
                return None, failure, []
        except BaseException:
            self._abandon()
            raise
        try:
            turn.cursor.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon()
            return None, failure or _report(error, committing=True), []
        took_s = min(clock.monotonic() - begun, _SAMPLE_MOST_S)
        self.commit_s += 0.2 * (took_s - self.commit_s)
        return value, failure, turn.freed

    def rolled_back(self) -> bool:
        """Whether the transaction is gone.

        SQLITE_FULL, an interrupt or RAISE(ROLLBACK) ends the whole transaction, not only the
        statement; the next SAVEPOINT would silently open a new one. Asked after every error.
        """
        return not self.connection.in_transaction

    def _run_all(self, entries: list[Entry], *, join: bool) -> tuple[list[Outcome], Outcome | None]:
        """Run the operations; the second value is the one that ended the whole transaction."""
        outcomes: list[Outcome] = []
        if not join or len(entries) < JOINT_LEAST:
            return outcomes, self._run_each(entries, outcomes)
        for joint, members in runs_of(entries):
            left = members
            if joint is not None and len(members) >= JOINT_LEAST:
                left = self._run_together(joint, members, outcomes)
            culprit = self._run_each(left, outcomes)
            if culprit is not None:
                return outcomes, culprit
        return outcomes, None

    def _run_together(
        self, joint: Joint, members: list[Entry], outcomes: list[Outcome]
    ) -> list[Entry]:
        """Run operations of one kind in one statement; returns those still to be done."""
        turn = self._turn
        members = [entry for entry in members if not entry[0].cancelled()]
        turn.savepoint()
        freed = len(turn.freed)
        try:
            values = joint.many(turn, [entry[2] for entry in members])
        except Exception as error:
            if self.rolled_back():
                raise _TookAllAlong from error
            # Done one by one, the culprit gets its error and nobody else does.
            del turn.freed[freed:]
            self._back_to_savepoint()
            return members
        turn.saved = False
        turn.cursor.execute("RELEASE operation")
        left: list[Entry] = []
        for entry, value in zip(members, values, strict=True):
            if value is NOT_DONE:
                left.append(entry)
            else:
                outcomes.append((entry[0], value, None))
        return left

    def _back_to_savepoint(self) -> None:
        self._turn.saved = False
        self._turn.cursor.execute("ROLLBACK TO operation")
        self._turn.cursor.execute("RELEASE operation")

    def _run_each(self, entries: list[Entry], outcomes: list[Outcome]) -> Outcome | None:
        """Run the operations one by one; returns the one that ended the whole transaction."""
        turn = self._turn
        for future, call, argument in entries:
            if future.cancelled():
                continue
            try:
                value = call(turn, argument)
                if turn.saved and not turn.alone:
                    turn.saved = False
                    turn.cursor.execute("RELEASE operation")
            except Exception as error:  # noqa: BLE001 - one bug must not stop the writer
                outcome: Outcome = (future, None, _report(error))
                if self.rolled_back():
                    return outcome
                if turn.saved:
                    if turn.alone:
                        self._abandon()
                        return outcome
                    self._back_to_savepoint()
                outcomes.append(outcome)
            else:
                outcomes.append((future, value, None))
        return None

    def _begin(self, entries: list[Entry], *, wait: bool) -> None:
        if self._try_begin():
            return
        if not wait:
            raise Busy
        # The sum of the pauses bounds it too: a test's clock may stand still.
        waited_s = 0.0
        attempt = 0
        until = self._clock.monotonic() + self._busy_timeout_s
        while waited_s < self._busy_timeout_s and self._clock.monotonic() < until:
            attempt += 1
            most_s = max(_PAUSE_EAGER_S, _PAUSE_MOST_S / (1 + attempt / 4))
            pause_s = self._jitter.uniform(_PAUSE_LEAST_S, most_s)
            if self.closing.wait(pause_s):
                raise StoreUnavailable("the driver was closed before the write began")
            waited_s += pause_s
            if self._try_begin():
                return
            if attempt % _ABANDONED_EVERY == 0 and all(e[0].cancelled() for e in entries):
                raise StoreUnavailable("all callers of the write were cancelled")
        raise StoreUnavailable(
            f"the SQLite file was locked for {self._busy_timeout_s:g} s: {BUSY_ADVICE}"
        )

    def _try_begin(self) -> bool:
        try:
            self._turn.cursor.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return False
        return True

    def _abandon(self) -> None:
        """End a transaction that could not be committed, if it is still there; nobody is told."""
        self._turn.freed = []
        if self.connection.in_transaction:
            try:
                self.connection.execute("ROLLBACK")
            except sqlite3.Error:
                # The next BEGIN fails and says why.
                return


def _identity(path: str) -> tuple[int, int] | None:
    """Which file ``path`` names now.

    A process goes on writing to a file that was removed or replaced under it, and would grant
    leases that nobody else can see.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a third faster, and it runs for every transaction.
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _report(error: BaseException, *, committing: bool = False) -> BaseException:
    if isinstance(error, (sqlite3.Error, *UNSTORABLE)):
        report = translate(error, committing=committing)
        report.__cause__ = error
        return report
    if isinstance(error, StoreUnavailable):
        # Each waiting caller gets an error of its own, because raising one changes it.
        return StoreUnavailable(*error.args)
    return error
