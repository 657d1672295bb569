"""Opening the files of a store: checks, settings and schema, patiently.

Owns the connections of a driver until the driver has them. Runs on a thread of its own,
never on the event loop. It must never leave a connection open when it fails.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from outlive.drivers.sqlite import files, schema
from outlive.drivers.sqlite.connection import open_reader, open_writer, refusal
from outlive.drivers.sqlite.settings import Settings
from outlive.drivers.sqlite.translate import is_busy, translate
from outlive.ports.driver import Migration

# Opening meets a lock only while another process creates, migrates or recovers the file.
_PAUSE_S = (0.001, 0.01)


@dataclass(frozen=True, slots=True)
class Connections:
    """The connections of one driver, and what opening them did to the schema."""

    main: sqlite3.Connection
    reader: sqlite3.Connection
    reads: sqlite3.Connection
    hosts: sqlite3.Connection
    sessions: sqlite3.Connection
    migration: Migration
    # The version of a file of a newer release that serves this one, and the version of this one.
    newer: tuple[int, int] | None

    def close(self) -> None:
        """Close all of them."""
        for connection in (self.reader, self.reads, self.main, self.sessions, self.hosts):
            connection.close()


def open_files(
    paths: files.StoreFiles,
    settings: Settings,
    jitter: random.Random,
    *,
    may_migrate: bool,
    may_create: bool = True,
) -> Connections:
    """Open the main file and its sidecar, creating and migrating what is missing or old.

    Raises:
        ConfigurationError: A path or file cannot be used.
        StoreUnavailable: A file stayed locked, or SQLite refused it.
        SchemaMismatch: A file is newer and does not serve this release, or older and may not be
            migrated, or holds no store and none may be created.
    """
    if not may_create:
        # Before the file is opened as a writer does, which would make it or change its journal.
        _refuse_nothing(paths.main)
    with ExitStack() as opened:

        def keep(connection: sqlite3.Connection) -> sqlite3.Connection:
            opened.callback(connection.close)
            return connection

        main, migration = _open(paths.main, "schema", settings, jitter, may_migrate=may_migrate)
        keep(main)
        reader = keep(open_reader(paths.main))
        reads = keep(open_reader(paths.main))
        hosts, beside = _open(
            paths.hosts, "schema_hosts", settings, jitter, may_migrate=may_migrate
        )
        keep(hosts)
        sessions = keep(open_reader(paths.hosts))
        opened.pop_all()
    newer = _newer(migration, "schema") or _newer(beside, "schema_hosts")
    return Connections(main, reader, reads, hosts, sessions, migration, newer)


def _newer(migration: Migration, name: str) -> tuple[int, int] | None:
    known = schema.migrations(name)[-1][0]
    return (migration.after, known) if migration.after > known else None


def _refuse_nothing(path: Path) -> None:
    """Refuse a path where no store is."""
    newest = schema.migrations()[-1][0]
    if not path.exists():
        raise schema.nothing_there(f"the file {path} does not exist", newest)
    if not path.is_file() or path.is_symlink():
        # What is wrong with it is said where the file is prepared.
        return
    try:
        with closing(open_reader(path)) as reader:
            found = schema.current(reader)
    except sqlite3.Error as error:
        raise refusal(path, error) from error
    if found is None:
        raise schema.nothing_there(f"{path} contains no Outlive store", newest)


def _open(
    path: Path, name: str, settings: Settings, jitter: random.Random, *, may_migrate: bool
) -> tuple[sqlite3.Connection, Migration]:
    files.prepare(path, allow_network_fs=settings.allow_network_fs)
    steps = schema.migrations(name)
    asleep = threading.Event()
    waited_s = 0.0
    while True:
        try:
            connection = open_writer(path, synchronous=settings.synchronous)
            try:
                return connection, schema.bring_up(connection, steps, may_migrate=may_migrate)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            if not is_busy(error) or waited_s >= settings.busy_timeout_s:
                raise translate(error) from error
        pause_s = jitter.uniform(*_PAUSE_S)
        asleep.wait(pause_s)
        waited_s += pause_s
