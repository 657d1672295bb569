"""SQLite's errors, turned into Outlive's.

Owns the one mapping from result codes to errors and to the advice they carry. Nothing of
``sqlite3`` crosses a port; this is where it stops.
"""

from __future__ import annotations

import sqlite3

from outlive.errors import OutcomeUnknown, OutliveError, StoreUnavailable, UsageError

# The low byte is the primary result code; the rest refines it.
_PRIMARY = 0xFF

_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_ADVICE = {
    sqlite3.SQLITE_FULL: "the disk (or the file's page limit) is full: free some space",
    sqlite3.SQLITE_READONLY: "the file or its directory is read-only for this user",
    sqlite3.SQLITE_CANTOPEN: (
        "the file, or a file beside it (-wal, -shm, -hosts), cannot be opened: check that it "
        "exists, and that its directory is writable"
    ),
    sqlite3.SQLITE_PERM: "this user may not use the file",
    sqlite3.SQLITE_AUTH: "this user may not use the file",
    sqlite3.SQLITE_IOERR: (
        "the disk or its file system reported an I/O error: check the disk and its free space"
    ),
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore it from a backup",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database",
    sqlite3.SQLITE_SCHEMA: "the schema changed while this process was connected: reconnect",
    sqlite3.SQLITE_ERROR: "Outlive's tables are missing or changed: run `outlive doctor`",
}

# What Python says of a number or a text that no column can hold, before SQLite sees it.
UNSTORABLE = (OverflowError, UnicodeEncodeError)

BUSY_ADVICE = (
    "another transaction holds the write lock: look for a process with a long write transaction; "
    "if this same task has one open on the file, end it before awaiting Outlive"
)


def code_of(error: BaseException) -> int:
    """The primary result code of ``error``, or -1 where it carries none."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else -1


def is_busy(error: BaseException) -> bool:
    """Whether ``error`` only says that somebody else holds the lock."""
    return code_of(error) in _BUSY


def translate(error: Exception, *, committing: bool = False) -> OutliveError:
    """The error to raise instead of ``error``, one of ``sqlite3`` or ``UNSTORABLE``.

    Before COMMIT nothing can have been applied. At COMMIT an I/O error leaves it open: the frames
    may already be in the write-ahead log, where the next recovery would find them. A full disk
    does not, because the frame that commits is the last one written.
    """
    if isinstance(error, UNSTORABLE):
        return UsageError(f"a value cannot be stored: {error}")
    code = code_of(error)
    if code in _BUSY:
        return StoreUnavailable(f"the SQLite file is locked: {BUSY_ADVICE}")
    if committing and code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT):
        return OutcomeUnknown(f"COMMIT failed ({error}); the write may or may not be stored")
    if isinstance(error, sqlite3.ProgrammingError) and code == -1:
        return StoreUnavailable(f"the SQLite connection cannot be used: {error}")
    advice = _ADVICE.get(code, "run `outlive doctor`")
    return StoreUnavailable(f"SQLite refused the operation ({error}): {advice}")
