"""Claims on Redis: under a lock, by one script, and naively.

The free items of a run are a list, the claims a hash. The lock is the usual one: ``SET NX PX`` with
a random value, given back by a script that compares it. It has no token: a claimant that stalls
past the lock's time is not noticed, and this benchmark stalls nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from outlive.bench.arena import PREFIX, Miss, Site
from outlive.drivers.redis.handshake import open_wire
from outlive.drivers.redis.settings import read_settings
from outlive.drivers.redis.translate import translate
from outlive.drivers.redis.wire import Wire
from outlive.errors import OutliveError
from outlive.model.location import parse_url
from outlive.names import HostId
from outlive.runtime.runtime import Runtime

# Far longer than a claim takes, so that the lock never ends under a claimant that runs.
_LOCK_MS = 10_000

# How many keys one step of the clean-up looks at.
_SCAN = 1000

_UNLOCK = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""
_CLAIM = """
local item = redis.call('LPOP', KEYS[1])
if item then redis.call('HSET', KEYS[2], item, ARGV[1]) end
return item
"""


class RedisArena:
    """One strategy on one database, over one connection."""

    def __init__(self, site: Site, strategy: str, runtime: Runtime) -> None:
        self._settings = read_settings(parse_url(site.urls["redis"]), {})
        self._prefix = f"{PREFIX}{site.tag}"
        self._runtime = runtime
        self._wire: Wire | None = None
        ways: dict[str, Callable[[int, str], Awaitable[int | Miss]]] = {
            "lock": self._under_lock,
            "lua": self._by_script,
            "naive": self._naively,
        }
        self._way = ways[strategy]
        # The value of the lock: unique to this claimant.
        self._mark = runtime.new_id()

    async def build(self) -> str:
        """Look who answers; keys need no making."""
        info = str(await self._call("INFO", "server"))
        version = next(
            line.partition(":")[2].strip()
            for line in info.splitlines()
            if line.startswith("redis_version")
        )
        append = await self._configured("appendonly")
        flush = await self._configured("appendfsync") if append == "yes" else "never"
        return f"Redis {version}, appendonly={append}, appendfsync={flush}"

    async def lay_out(self, run: int, items: int) -> None:
        """Put them into the list, in order."""
        await self._call("RPUSH", self._free(run), *range(items))

    async def claim(self, run: int, claimant: str) -> int | Miss:
        """Try once, in the way of the strategy."""
        return await self._way(run, claimant)

    async def tidy(self, run: int) -> None:
        """Nothing: the keys of a run are in no one's way."""

    async def demolish(self) -> None:
        """Delete every key that begins with the name of this benchmark."""
        cursor = "0"
        while True:
            cursor, keys = await self._call(
                "SCAN", cursor, "MATCH", f"{self._prefix}*", "COUNT", _SCAN
            )
            if keys:
                await self._call("DEL", *keys)
            if str(cursor) == "0":
                return

    async def close(self) -> None:
        """Close the connection."""
        if self._wire is not None:
            self._wire.abandon("the benchmark is over")
            await self._wire.ended()

    async def _under_lock(self, run: int, claimant: str) -> int | Miss:
        lock = f"{self._prefix}:lock"
        if await self._call("SET", lock, self._mark, "NX", "PX", _LOCK_MS) is None:
            return Miss.BEATEN
        # The release goes out with the claim: commands of one connection run in their order, and
        # both then wait for one flush of the server's disk.
        return await self._take(run, claimant, ("EVAL", _UNLOCK, 1, lock, self._mark))

    async def _by_script(self, run: int, claimant: str) -> int | Miss:
        keys = (self._free(run), self._claims(run))
        item = await self._call("EVAL", _CLAIM, 2, *keys, claimant)
        return Miss.EMPTY if item is None else int(item)

    async def _naively(self, run: int, claimant: str) -> int | Miss:
        return await self._take(run, claimant)

    async def _take(self, run: int, claimant: str, *after: tuple[Any, ...]) -> int | Miss:
        """Read the first free item, then write that it is ours, and do what comes ``after``."""
        item = await self._call("LINDEX", self._free(run), 0)
        writes = [
            ("LREM", self._free(run), 1, item),
            ("HSET", self._claims(run), item, claimant),
        ]
        sent = after if item is None else (*writes, *after)
        await asyncio.gather(*(self._call(*command) for command in sent))
        return Miss.EMPTY if item is None else int(item)

    async def _configured(self, name: str) -> str:
        try:
            found = await self._call("CONFIG", "GET", name)
        except OutliveError:
            # Hosted servers often do not tell.
            return "unknown"
        return str(found[1]) if found else "unknown"

    async def _call(self, *command: Any) -> Any:
        if self._wire is None:
            host = HostId(self._runtime.new_id())
            self._wire, _ = await open_wire(self._settings, host)
        try:
            return await self._wire.send(*command)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is translated
            raise translate(error, write=True) from None

    def _free(self, run: int) -> str:
        return f"{self._prefix}:free:{run}"

    def _claims(self, run: int) -> str:
        return f"{self._prefix}:claims:{run}"
