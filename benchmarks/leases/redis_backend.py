"""Redis, ready to be measured: a private server that flushes at every write.

Owns the server and its databases. What hosts send is counted by the server's own statistics, which
tell the commands of clients from those that scripts run inside.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from benchmarks.leases.backend import Absent, Count, Floor

if TYPE_CHECKING:
    from tests.services.redis import RedisServer

# Databases of a server as it is delivered; the first is left alone.
_DATABASES = 15

# Everything that a host sends once it is connected. Scripts call none of these.
_SENT = re.compile(r"cmdstat_(evalsha|eval|ping):calls=(\d+)")


class RedisBackend:
    """Databases of one server."""

    name = "redis"
    bars: Mapping[str, float] = {
        # At most a quarter more time than the raw pair.
        "uncontended": 0.8,
        "concurrent": 4.0,
        "share-10": 0.8,
        # Faster than the lock that the client library offers, which does less.
        "versus": 1.0,
        "handover": 2.0,
        "idle": 1.0,
    }

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._numbers = itertools.cycle(range(1, _DATABASES + 1))

    @property
    def version(self) -> str:
        """The version of the server."""
        return self._server.version

    def new_store(self) -> str:
        """The URL of an empty database."""
        number = next(self._numbers)
        self._server.commands(("SELECT", str(number)), ("FLUSHDB",))
        return f"redis://127.0.0.1:{self._server.port}/{number}"

    def floor(self, url: str) -> AbstractAsyncContextManager[Floor]:
        """Connect redis-py to the same database."""
        from benchmarks.leases.redis_floor import open_floor

        return open_floor(url)

    @asynccontextmanager
    async def counting(self, url: str) -> AsyncGenerator[Callable[[], Count]]:
        """Count by the server's statistics of commands; one script is one transaction."""
        del url
        self._server.command("CONFIG", "RESETSTAT")
        yield self._count
        if not self._count().transactions:
            raise RuntimeError("the server's statistics show no script at all")

    def _count(self) -> Count:
        found = _SENT.findall(self._server.command("INFO", "commandstats"))
        calls = {name: int(number) for name, number in found}
        scripts = calls.get("evalsha", 0) + calls.get("eval", 0)
        return Count(scripts + calls.get("ping", 0), scripts)


@contextmanager
def redis() -> Iterator[RedisBackend]:
    """A backend on a private durable server.

    Raises:
        Absent: None can be had.
    """
    try:
        import hiredis
        import redis as client
    except ImportError as error:
        raise Absent(f"{error.name} is not installed") from error
    del hiredis, client
    try:
        from tests.services import Unavailable
        from tests.services.redis import RedisServer
    except ImportError as error:
        raise Absent("no private server without the tests' folder") from error
    try:
        server = RedisServer(durable=True).start()
    except Unavailable as error:
        raise Absent(str(error)) from error
    try:
        yield RedisBackend(server)
    finally:
        server.stop()
