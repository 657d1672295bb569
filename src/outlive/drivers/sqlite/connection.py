"""How every connection of this driver is opened, so that all have the same settings.

Owns the pragmas. It must never hand out a connection that waits inside SQLite: the busy handler
there starves a process for seconds, and would block an event loop.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from outlive.drivers.sqlite.files import obstacle_in
from outlive.drivers.sqlite.lending import WriterConnection
from outlive.drivers.sqlite.translate import code_of, is_busy, translate
from outlive.errors import ConfigurationError, StoreUnavailable

# RETURNING came with 3.35.
_VERSION_MIN = (3, 35, 0)

# Readers run on the event loop; this is the longest they may hold it up.
_READER_WAIT_MS = 50

# Codes behind which a read-only or full file system may be, which SQLite does not name.
_BY_FILE_SYSTEM = frozenset(
    {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY}
)

# Serialized: one connection may be used from several threads, one at a time.
_THREADSAFE = 3


def check_library() -> None:
    """Refuse an SQLite that cannot do what the statements need.

    Raises:
        ConfigurationError: It is too old, or built without thread safety.
    """
    if sqlite3.sqlite_version_info < _VERSION_MIN:
        raise ConfigurationError(
            f"this Python has SQLite {sqlite3.sqlite_version}; the driver needs 3.35 or newer"
        )
    if sqlite3.threadsafety < _THREADSAFE:
        raise ConfigurationError("this Python's SQLite was built without thread safety")


def open_writer(path: Path, *, synchronous: str) -> sqlite3.Connection:
    """A connection that writes: write-ahead log, durable commits, no waiting inside SQLite.

    Raises:
        ConfigurationError: The file is not an SQLite database.
        sqlite3.OperationalError: It is locked; try again.
        StoreUnavailable: It cannot be used.
    """
    connection = _open(path, WriterConnection)
    try:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(
                f"{path} cannot use a write-ahead log (its journal mode is {mode!r})"
            )
        connection.execute(f"PRAGMA synchronous={synchronous}")
        # The writer checkpoints on its own thread; SQLite's own way would do it inside some
        # COMMIT, on the event loop.
        connection.execute("PRAGMA wal_autocheckpoint=0")
        # What a statement on many rows keeps for its own undoing would go to a file otherwise, made
        # and removed each time. The sizes of batches bound it.
        connection.execute("PRAGMA temp_store=MEMORY")
    except sqlite3.Error as error:
        connection.close()
        raise refusal(path, error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that cannot write.

    Raises:
        StoreUnavailable: The file cannot be used.
    """
    connection = _open(path, sqlite3.Connection)
    try:
        connection.execute("PRAGMA query_only=ON")
        # A reader meets a lock only while another process recovers the log after a crash.
        connection.execute(f"PRAGMA busy_timeout={_READER_WAIT_MS}")
    except sqlite3.Error as error:
        connection.close()
        raise refusal(path, error) from error
    return connection


def _open(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            factory=factory,
            uri=False,
        )
    except sqlite3.Error as error:
        raise refusal(path, error) from error


def refusal(path: Path, error: sqlite3.Error) -> Exception:
    """What to raise for a file that cannot be opened; ``error`` itself where it is only busy."""
    if is_busy(error):
        return error
    if code_of(error) == sqlite3.SQLITE_NOTADB:
        return ConfigurationError(f"{path} is not an SQLite database; name another file")
    if code_of(error) in _BY_FILE_SYSTEM and (obstacle := obstacle_in(path.parent)) is not None:
        return StoreUnavailable(f"SQLite cannot open {path} ({error}): {obstacle}")
    return translate(error)
