"""A few kept connections, and the statements that go through them.

Owns connecting, abandoning and reconnecting. Not a general pool: nothing is reset between uses,
because nothing that outlives a transaction is ever set. A connection that timed out, was
cancelled or lost its peer is terminated and never used again; no call here waits longer than the
command timeout plus the connect timeout.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from outlive.drivers.postgres.lease_sql import PLANNER
from outlive.drivers.postgres.overdue import Overdue
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.translate import (
    POOLED,
    VICTIM,
    sqlstate,
    translate,
    translate_connect,
)
from outlive.errors import (
    ConfigurationError,
    OutliveError,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from outlive.ports.driver import DriverContext
from outlive.process import current

# A deadlock or serialization victim is repeated at once; three in a row are no accident.
_VICTIM_RETRIES_MAX = 3

# Between two statements of a transaction of ours pass microseconds. A process that was stopped
# there holds row locks; the server ends its transaction after this, so that nobody waits for it.
_IDLE_MS = 2000

_Result = TypeVar("_Result")

# First and longest pause between attempts to connect, so that a fleet does not storm a server
# that comes back.
_BACKOFF_FIRST_S = 0.02
_BACKOFF_MOST_S = 1.0

# Dead peers are found by the kernel within seconds even where nothing is being sent.
_KEEPALIVE_IDLE_S = 5
_KEEPALIVE_INTERVAL_S = 2
_KEEPALIVE_COUNT = 3

# Raised inside the server when the process that answers is not the one we were introduced to.
_POOLER_STATE = "OL001"


def import_asyncpg() -> Any:
    """The client library, imported on first use.

    Raises:
        ConfigurationError: It is not installed.
    """
    try:
        import asyncpg  # pyright: ignore[reportMissingTypeStubs]
    except ImportError:
        raise ConfigurationError(
            "the PostgreSQL driver needs asyncpg: pip install 'outlive[postgres]'"
        ) from None
    return asyncpg


class Connections:
    """The connections of one driver. ``pooled`` says whether a pooler stands in between.

    Unless they are ``tuned`` for our own statements, they are as the server's administrator wants
    them: for statements of users.
    """

    def __init__(
        self, settings: PostgresSettings, context: DriverContext, *, tuned: bool = True
    ) -> None:
        self._settings = settings
        self._tuned = tuned
        self._context = context
        self._asyncpg = import_asyncpg()
        self._timeout_s = settings.command_timeout_s
        self._overdue = Overdue(self._timeout_s)
        self._settling: set[asyncio.Task[None]] = set()
        self.pooled = settings.pooler is True
        self._idle: list[Any] = []
        self._open: set[Any] = set()
        self._connecting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pid = current.pid
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False

    # -- statements -----------------------------------------------------------------------------

    async def fetch(self, text: str, *args: Any, write: bool, settles: bool = False) -> list[Any]:
        """Run one statement as its own transaction and return its rows.

        A caller that is cancelled gives its connection up, and the server may carry the statement
        out later. With ``settles``, ``settled`` tells when that can happen no more.

        Raises:
            StoreUnavailable: Nothing was applied.
            OutcomeUnknown: ``write`` is true and the reply was lost.
        """
        overdue = self._overdue
        for _ in range(_VICTIM_RETRIES_MAX):
            connection = await self._take()
            overdue.begin(connection)
            try:
                if self.pooled:
                    rows = await self._fetch_pooled(connection, text, args)
                else:
                    rows = await connection.fetch(text, *args)
            except BaseException as error:
                late = overdue.end(connection)
                if settles and isinstance(error, asyncio.CancelledError) and not self.pooled:
                    self._settle(connection)
                    raise
                if not self._survives(connection, error):
                    raise translate(TimeoutError() if late else error, write=write) from error
            else:
                overdue.end(connection)
                self._give(connection)
                return rows
        raise StoreUnavailable(
            "PostgreSQL cancelled this statement as a deadlock victim on every attempt"
        )

    async def settled(self) -> None:
        """Return when no statement whose caller was cancelled can be carried out any more."""
        while self._settling:
            await asyncio.wait(set(self._settling))

    def _settle(self, connection: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._prove_over(connection))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    async def _prove_over(self, connection: Any) -> None:
        """Ask something else on ``connection``: the answer comes after the end of what went before.

        asyncpg has told the server to cancel that; done or cancelled, it is over then.
        """
        self._overdue.begin(connection)
        try:
            await connection.fetch("SELECT 1")
        except BaseException as error:
            self._drop(connection)
            if not isinstance(error, Exception):
                raise
        else:
            self._give(connection)
        finally:
            self._overdue.end(connection)

    async def transact(self, body: Callable[[Any], Awaitable[_Result]]) -> _Result:
        """Run ``body`` in one transaction; again from its beginning if it was made a victim.

        ``body`` does nothing but statements on what it is given, so that it may be repeated.
        """
        for left in range(_VICTIM_RETRIES_MAX - 1, -1, -1):
            try:
                async with self.transaction() as tx:
                    return await body(tx)
            except StoreError as error:
                cause = error.__cause__
                if left == 0 or cause is None or sqlstate(cause) not in VICTIM:
                    raise
        raise AssertionError

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any, None]:
        """One transaction: gives the connection, commits at the end, rolls back on an error.

        Errors of asyncpg leave translated. A victim of a deadlock is not repeated here.
        """
        connection = await self._take()
        try:
            await connection.execute(self._begin(), timeout=self._timeout_s)
            yield _Bounded(connection, self._timeout_s)
            await connection.execute("COMMIT", timeout=self._timeout_s)
        except BaseException as error:
            self._survives(connection, error, in_transaction=True)
            if not isinstance(error, Exception):
                raise
            raise translate(error, write=True) from error
        else:
            self._give(connection)

    async def lend(self) -> Any:
        """A connection for code that is not ours, to be given back by ``take_back``.

        Raises:
            StoreUnavailable: None is free, or none can be had.
        """
        return await self._take()

    def take_back(self, connection: Any, *, clean: bool) -> None:
        """Take a connection back; unless it is ``clean`` it is closed, which ends what is open."""
        if clean and not connection.is_closed():
            self._give(connection)
        else:
            self._drop(connection)

    async def _fetch_pooled(self, connection: Any, text: str, args: Sequence[Any]) -> list[Any]:
        # A pooler may switch servers between preparing and executing, except inside a transaction.
        await connection.execute(self._begin(), timeout=self._timeout_s)
        rows = await connection.fetch(text, *args, timeout=self._timeout_s)
        await connection.execute("COMMIT", timeout=self._timeout_s)
        return rows

    def _begin(self) -> str:
        begin = (
            "BEGIN ISOLATION LEVEL READ COMMITTED; "
            f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE_MS}"
        )
        if not self.pooled:
            return begin
        return f"{begin}; {self.tuning}"

    @property
    def tuning(self) -> str:
        """What makes a transaction plan and time our statements as tuned connections do."""
        planner = "".join(f"SET LOCAL {name} = {value}; " for name, value in PLANNER.items())
        return f"{planner}SET LOCAL statement_timeout = {int(self._timeout_s * 1000)}"

    def _survives(
        self, connection: Any, error: BaseException, *, in_transaction: bool = False
    ) -> bool:
        """Settle a connection after ``error``; true if the statement may be repeated at once."""
        code = sqlstate(error)
        if not isinstance(error, Exception):
            self._drop(connection)
            raise error
        if code in POOLED and not self.pooled:
            self._context.logger.info(
                "a connection pooler was detected: prepared statements are off"
            )
            self.pooled = True
            self._drop(connection)
            return True
        stale = type(error).__name__ == "InvalidCachedStatementError"
        keeps = code is not None and not code.startswith(("08", "57P"))
        if self.pooled or in_transaction or not keeps or connection.is_closed():
            # A transaction is open on it; closing ends it for sure and costs a reconnect.
            self._drop(connection)
        else:
            self._give(connection)
        return stale or code in VICTIM

    # -- the set of connections -----------------------------------------------------------------

    async def _take(self) -> Any:
        if current.pid != self._pid:
            raise UsageError(
                "this driver was opened before the process was forked; its connections belong to "
                "the parent: connect again in the child"
            )
        while True:
            if self._closed:
                raise StoreUnavailable("the driver is closed")
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
                self._open.discard(connection)
            if len(self._open) + self._connecting < self._settings.pool_size:
                return await self._connect_kept()
            await self._wait_turn()

    async def _wait_turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._timeout_s):
                await turn
        except TimeoutError:
            raise StoreUnavailable(
                "timed out waiting for a free connection to PostgreSQL: raise pool_size, or look "
                "for long transactions"
            ) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake_next()
            raise

    def _give(self, connection: Any) -> None:
        if self._closed:
            self._drop(connection)
            return
        self._idle.append(connection)
        if self._waiting:
            self._wake_next()

    def _drop(self, connection: Any) -> None:
        self._open.discard(connection)
        connection.terminate()
        self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _connect_kept(self) -> Any:
        self._connecting += 1
        clock = self._context.clock
        try:
            await clock.sleep(min(_BACKOFF_MOST_S, self._retry_at - clock.monotonic()))
            connection = await self.connect(self._settings.dsn)
        except OutliveError:
            pause = min(_BACKOFF_MOST_S, _BACKOFF_FIRST_S * 2 ** min(self._failures, 10))
            self._failures += 1
            self._retry_at = clock.monotonic() + pause * self._context.random.uniform(0.5, 1.0)
            raise
        finally:
            self._connecting -= 1
            self._wake_next()
        self._failures = 0
        if self._closed:
            connection.terminate()
            raise StoreUnavailable("the driver is closed")
        self._open.add(connection)
        return connection

    async def connect(self, dsn: str) -> Any:
        """A new connection, which belongs to the caller. Finds out whether a pooler answers.

        Raises:
            StoreUnavailable: The server cannot be reached.
            ConfigurationError: The URL is wrong or the server knows no such user or database.
        """
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                if self._settings.pooler is None and not self.pooled:
                    connection = await self._connect_and_look(dsn)
                    if connection is not None:
                        return connection
                    self._context.logger.info(
                        "a connection pooler was detected: prepared statements are off"
                    )
                    self.pooled = True
                return await self._connect(dsn)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate_connect(error, self._settings.shown) from None

    async def _connect_and_look(self, dsn: str) -> Any | None:
        """A connection straight to the server, or ``None`` when a pooler answered."""
        try:
            connection = await self._connect(dsn)
        except self._asyncpg.PostgresError as error:
            # PgBouncer refuses settings in the start-up packet that it does not track.
            if sqlstate(error) == "08P01":
                return None
            raise
        # A pooler invents the process id it introduces itself with. Asked by a simple query,
        # because a prepared one would already leave its traces on a shared server connection.
        look = (
            f"DO $$ BEGIN IF pg_backend_pid() <> {int(connection.get_server_pid())} THEN "
            f"RAISE EXCEPTION USING ERRCODE = '{_POOLER_STATE}'; END IF; END $$"
        )
        try:
            await connection.execute(look)
        except BaseException as error:
            connection.terminate()
            if sqlstate(error) == _POOLER_STATE:
                return None
            raise
        return connection

    async def _connect(self, dsn: str) -> Any:
        direct = not self.pooled
        limits = {
            **PLANNER,
            # The server ends what we have already given up.
            "statement_timeout": str(int(self._timeout_s * 1000) + 1000),
            "idle_in_transaction_session_timeout": str(int(self._timeout_s * 1000) + 1000),
        }
        connection = await self._asyncpg.connect(
            dsn,
            statement_cache_size=self._settings.statement_cache_size if direct else 0,
            server_settings=limits if direct and self._tuned else None,
        )
        _keep_alive(connection, self._timeout_s)
        return connection

    async def close(self) -> None:
        """Terminate all; calls under way end with an error. Repeatable."""
        self._closed = True
        self._overdue.close()
        for connection in list(self._open):
            self._drop(connection)
        self._idle.clear()
        while self._waiting:
            self._wake_next()


class _Bounded:
    """A connection inside a transaction, each statement of which is bounded in time."""

    def __init__(self, connection: Any, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def fetch(self, text: str, *args: Any) -> list[Any]:
        """All rows of one statement."""
        return await self._connection.fetch(text, *args, timeout=self._timeout_s)

    async def one(self, text: str, *args: Any) -> Any | None:
        """The first row of one statement, or ``None``."""
        rows = await self.fetch(text, *args)
        return rows[0] if rows else None

    async def run(self, script: str, *, timeout_s: float | None = None) -> None:
        """Run a script of statements without parameters, which may have a limit of its own."""
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        await self._connection.execute(script, timeout=limit_s)


def _keep_alive(connection: Any, timeout_s: float) -> None:
    """Let the kernel notice a peer that is gone; a Unix socket has nothing to notice."""
    # asyncpg offers no other way to its socket.
    raw = connection._transport.get_extra_info("socket")  # noqa: SLF001
    if raw is None or raw.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", _KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", _KEEPALIVE_COUNT),
        ("TCP_USER_TIMEOUT", int(timeout_s * 1000)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            raw.setsockopt(socket.IPPROTO_TCP, option, value)
