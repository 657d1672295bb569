"""Where the statements of a job store go: the schema, the namespace, the channel of wake-ups.

Owns what all parts of the job store share. Every statement gets the namespace as its first
parameter here, so that none can forget it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from outlive.drivers.postgres.connections import Connections
from outlive.drivers.postgres.job_order_sql import LOCK_KEYS, LOCK_QUEUE, UNBLOCK
from outlive.drivers.postgres.job_sql import compose
from outlive.drivers.postgres.settings import PostgresSettings
from outlive.drivers.postgres.transactions import Run
from outlive.errors import Fenced, LeaseExpired
from outlive.ports.driver import DriverContext

_Result = TypeVar("_Result")

# A server has about 6,400 places for locks in its default configuration, for all its transactions.
# A batch with more ordering keys than this locks their queues instead.
KEY_LOCKS_MAX = 200


class JobTables:
    """The tables of jobs of one namespace in one schema, as one host sees them."""

    def __init__(
        self,
        connections: Connections,
        settings: PostgresSettings,
        context: DriverContext,
        channel: str,
    ) -> None:
        self._connections = connections
        self._settings = settings
        self.namespace = context.namespace
        self.host = context.host
        self.channel = channel
        self.clock = context.clock
        self.random = context.random
        self.logger = context.logger
        self.abandons = context.role == "keeper"
        self._lock_keys = self.text(LOCK_KEYS)
        self._lock_queue = self.text(LOCK_QUEUE)
        self._unblock = self.text(UNBLOCK)

    def text(self, template: str) -> str:
        """A statement with the names of this store in it."""
        schema = self._settings.schema
        return self._settings.sql(
            compose(
                template,
                flight=f"'{schema}/flight/' || $1::text || '/'",
                order=f"'{schema}/order/' || $1::text || '/'",
            )
        )

    async def fetch(self, text: str, *args: Any, write: bool = True) -> list[Any]:
        """Run one statement as its own transaction."""
        return await self._connections.fetch(text, self.namespace, *args, write=write)

    async def transact(self, body: Callable[[Run], Awaitable[_Result]]) -> _Result:
        """Run ``body`` in one transaction; it may be repeated from its beginning."""

        async def bound(tx: Any) -> _Result:
            return await body(self.within(tx.fetch))

        return await self._connections.transact(bound)

    def within(self, run: Run) -> Run:
        """``run`` with the namespace before the parameters."""

        async def named(text: str, *args: Any) -> Sequence[Any]:
            return await run(text, self.namespace, *args)

        return named

    async def lock_keys(self, run: Run, keys: Sequence[tuple[str, str]]) -> None:
        """Wait for the locks of ordering keys, each a queue and a key, until the commit."""
        if not keys:
            return
        if len(keys) > KEY_LOCKS_MAX:
            await run(self._lock_queue, sorted({queue for queue, _ in keys}))
            return
        await run(self._lock_keys, [queue for queue, _ in keys], [key for _, key in keys])

    async def pass_turn(self, run: Run, keys: Sequence[tuple[str, str]]) -> None:
        """Under their locks: give the turn of each key to its oldest live job, if nobody has it."""
        if keys:
            await run(
                self._unblock,
                [queue for queue, _ in keys],
                [key for _, key in keys],
                self.channel,
            )


def place(row: Any) -> int:
    """Where the member that a row of an answer is about stands in its batch."""
    number: int = row["n"]
    return number - 1


def judge_session(rows: Sequence[Any], session: str) -> None:
    """Refuse a session that does not live, by what ``SESSION`` said of it."""
    if not rows or not rows[0]["open"]:
        raise Fenced(f"host/{session}")
    if not rows[0]["live"]:
        raise LeaseExpired(f"host/{session}")
