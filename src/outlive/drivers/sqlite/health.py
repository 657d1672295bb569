"""What ``outlive doctor`` says about an SQLite store.

Owns the findings. It only looks: nothing here changes the store.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from outlive.drivers.sqlite.connection import open_reader
from outlive.drivers.sqlite.files import FILE_MODE, filesystem_of, is_network, mode_of
from outlive.errors import StoreError
from outlive.ports.driver import Finding

if TYPE_CHECKING:
    from outlive.drivers.sqlite.driver import SqliteDriver

# A full disk stops every lease; below this the log itself may not find room.
_FREE_BYTES_MIN = 64 * 1024 * 1024


async def check(driver: SqliteDriver) -> list[Finding]:
    """The findings for ``driver``, the most telling first."""
    try:
        # Reading the whole file may take long: not on the event loop, and not on its connection.
        found = [await asyncio.to_thread(_integrity, driver.paths.main), _journal(driver)]
    except StoreError as error:
        return [_error("the file cannot be read", str(error))]
    found += [
        _ok(f"SQLite {sqlite3.sqlite_version}"),
        _durability(driver),
        *_modes(driver),
        _filesystem(driver),
        _space(driver),
        _doorbell(driver),
    ]
    return found


def _ok(what: str) -> Finding:
    return Finding(level="ok", what=what)


def _warning(what: str, advice: str) -> Finding:
    return Finding(level="warning", what=what, advice=advice)


def _error(what: str, advice: str) -> Finding:
    return Finding(level="error", what=what, advice=advice)


def _integrity(path: Path) -> Finding:
    try:
        with closing(open_reader(path)) as connection:
            # One problem is enough to know; looking for all of them may take minutes.
            result = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        result = str(error)
    if result == "ok":
        return _ok("the file is not damaged (quick_check)")
    return _error(
        f"the file is damaged: {result}", "stop all programs that use the file and restore a backup"
    )


def _journal(driver: SqliteDriver) -> Finding:
    mode = driver.reader.pragma("journal_mode")
    if mode == "wal":
        return _ok("write-ahead log")
    return _error(
        f"the journal mode is {mode}", "another program changed it; run PRAGMA journal_mode=WAL"
    )


def _durability(driver: SqliteDriver) -> Finding:
    if driver.settings.synchronous == "FULL":
        return _ok("every commit survives a power loss (synchronous=full)")
    return _warning(
        "a power loss may undo the last commits (synchronous=normal)",
        "tokens passed to other systems could repeat; use synchronous=full",
    )


def _modes(driver: SqliteDriver) -> list[Finding]:
    found: list[Finding] = []
    for path in (driver.paths.main, driver.paths.hosts):
        try:
            mode = mode_of(path)
        except OSError as error:
            found.append(
                _error(f"{path} does not exist: {error.strerror}", "restore the file and reconnect")
            )
            continue
        if mode & ~FILE_MODE:
            advice = f"other users can read the file: chmod 600 {path}"
            found.append(_warning(f"{path.name} has mode {mode:04o}", advice))
        else:
            found.append(_ok(f"{path.name} is readable by its owner only"))
    return found


def _filesystem(driver: SqliteDriver) -> Finding:
    kind = filesystem_of(driver.paths.main.parent)
    if kind is None:
        return _warning("the type of the file system is unknown", "check that it is a local disk")
    if is_network(kind):
        return _warning(
            f"the file system is {kind}",
            "locks may fail on a network file system; use a local disk",
        )
    return _ok(f"the file system is {kind}")


def _space(driver: SqliteDriver) -> Finding:
    try:
        status = os.statvfs(driver.paths.main.parent)
    except OSError as error:
        return _warning(f"free space is unknown: {error.strerror}", "check the disk")
    free = status.f_bavail * status.f_frsize
    text = f"{free // (1024 * 1024)} MiB of disk space are free"
    return _ok(text) if free >= _FREE_BYTES_MIN else _error(text, "free some space")


def _doorbell(driver: SqliteDriver) -> Finding:
    if not driver.wakeups.listening:
        return _ok("this role does not need local notifications")
    if driver.wakeups.deaf:
        return _warning(
            "no local notifications: waiters poll the file",
            f"unix datagram sockets are not possible in {driver.paths.bells}",
        )
    if not driver.wakeups.rings():
        return _warning("local notifications do not arrive", "waiters poll the file instead")
    return _ok("local notifications work (unix socket)")
