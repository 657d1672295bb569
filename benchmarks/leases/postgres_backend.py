"""PostgreSQL, ready to be measured: a private server that waits for its disk, or one that is named.

Owns the server and its databases. Statements are counted in the server's own log, which it is told
to write for the one database; a server that was named keeps its settings, and there only its
counter of transactions is read.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, LiteralString
from urllib.parse import urlsplit, urlunsplit

from benchmarks.leases.backend import BRACKETS, Absent, Count, Floor

# The URL of a server to measure on, instead of a private one.
VARIABLE = "OUTLIVE_BENCH_PG"

# How the server's log begins the line of a statement, by either protocol; the number is that of
# the session's process, which stands there by default.
_STATEMENT = re.compile(r"\[(\d+)\] LOG:  (?:statement|execute [^:]+): *(\w*)")
_BEGINS = frozenset({"BEGIN", "START"})
_ENDS = frozenset({"COMMIT", "ROLLBACK", "END"})

_COMMITS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"


class PostgresBackend:
    """Databases of one server."""

    name = "postgres"
    bars: Mapping[str, float] = {
        "uncontended": 0.8,
        "concurrent": 8.0,
        "handover": 2.0,
        "idle": 1.0,
    }

    def __init__(self, url: str, log: Callable[[], str] | None) -> None:
        self._url = url
        self._log = log
        self._numbers = itertools.count(1)
        self._made: list[str] = []

    @property
    def version(self) -> str:
        """The version of the server."""
        return self._asked("SHOW server_version")

    def new_store(self) -> str:
        """The URL of an empty database."""
        name = f"outlive_bench_{os.getpid()}_{next(self._numbers)}"
        self._execute(f'CREATE DATABASE "{name}"')
        self._made.append(name)
        parts = urlsplit(self._url)
        return urlunsplit((parts.scheme, parts.netloc, f"/{name}", parts.query, ""))

    def drop_stores(self) -> None:
        """Drop every database that was made here."""
        for name in self._made:
            self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def floor(self, url: str) -> AbstractAsyncContextManager[Floor]:
        """Connect asyncpg to the same database."""
        from benchmarks.leases.postgres_floor import open_floor

        return open_floor(url)

    @property
    def sees_statements(self) -> bool:
        """Whether the server's log can be read."""
        return self._log is not None

    @asynccontextmanager
    async def counting(self, url: str) -> AsyncGenerator[Callable[[], Count]]:
        """Count by the server's log where it is ours, else by its count of transactions."""
        name = urlsplit(url).path.removeprefix("/")
        log = self._log
        if log is None:
            yield lambda: self._transactions(name)
            return
        # Connections made from now on to this database are logged, and no others.
        self._execute(f"ALTER DATABASE \"{name}\" SET log_statement = 'all'")
        before = len(log())
        yield lambda: count_log(log()[before:])
        if not count_log(log()[before:]).statements:
            raise RuntimeError("the server's log shows no statement at all")

    def _transactions(self, name: str) -> Count:
        commits = self._asked(_COMMITS, name)
        return Count(commits, commits)

    def _asked(self, query: LiteralString, *values: str) -> Any:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            row = connection.execute(query, values).fetchone()
        assert row is not None
        return row[0]

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute(statement.encode())


def count_log(text: str) -> Count:
    """The statements in a server's log; one outside BEGIN and COMMIT is a transaction itself."""
    count = Count()
    # Sessions that have a transaction open, by their process.
    within: set[str] = set()
    for process, first_word in _STATEMENT.findall(text):
        word = first_word.upper()
        count.brackets += word in BRACKETS
        count.statements += word not in BRACKETS
        count.transactions += process not in within
        if word in _BEGINS:
            within.add(process)
        elif word in _ENDS:
            within.discard(process)
    return count


@contextmanager
def postgres() -> Iterator[PostgresBackend]:
    """A backend on the server that the environment names, or on a private durable one.

    Raises:
        Absent: Neither can be had.
    """
    try:
        import asyncpg
        import psycopg
    except ImportError as error:
        raise Absent(f"{error.name} is not installed") from error
    del asyncpg
    named = os.environ.get(VARIABLE)
    if named:
        backend = PostgresBackend(named, None)
        try:
            psycopg.connect(named, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            raise Absent(f"the server that {VARIABLE} names does not answer: {error}") from error
        yield from _serve(backend)
        return
    try:
        from tests.services import Unavailable
        from tests.services.postgres import PostgresServer
    except ImportError as error:
        raise Absent(f"no private server without the tests' folder; set {VARIABLE}") from error
    try:
        server = PostgresServer(durable=True).start()
    except Unavailable as error:
        raise Absent(f"{error}; or set {VARIABLE}") from error
    try:
        yield from _serve(PostgresBackend(server.url, server.log))
    finally:
        server.stop()


def _serve(backend: PostgresBackend) -> Iterator[PostgresBackend]:
    try:
        yield backend
    finally:
        backend.drop_stores()
