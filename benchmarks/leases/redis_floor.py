"""The floor on Redis: redis-py and the best hand-written pair of fenced scripts.

Writes the fields that Outlive writes for a key with one slot, history included, one script and one
round trip for each operation. It has no queue, no semaphore and no care for restarts.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from benchmarks.leases.backend import TTL_S, Floor, LeaseCount

_TTL_US = int(TTL_S * 1e6)
_METADATA = '{"host":"bench","instance":"0123456789abcdef","hostname":"bench","pid":12345}'
_CROWD = 100

_ACQUIRE = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local v = redis.call('HMGET', KEYS[1], 'owner', 'expires', 'token', 'version')
if v[1] and tonumber(v[2]) > now and v[1] ~= ARGV[1] then
  return {0, v[1], v[2]}
end
local token = math.max((tonumber(v[3]) or 0) + 1, now)
local at = string.format('%.0f', now)
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', string.format('%.0f', token),
  'version', (tonumber(v[4]) or 0) + 1, 'ttl', ARGV[2],
  'expires', string.format('%.0f', now + ARGV[2]), 'acquired', at, 'renewed', at,
  'metadata', ARGV[3])
return {1, token}
"""

_RELEASE = """
local t = redis.call('TIME')
local now = string.format('%.0f', t[1] * 1000000 + t[2])
local v = redis.call('HMGET', KEYS[1], 'owner', 'token', 'version', 'acquired')
if v[1] ~= ARGV[1] or v[2] ~= ARGV[2] then
  return 0
end
redis.call('HDEL', KEYS[1], 'owner', 'expires')
redis.call('HSET', KEYS[1], 'version', v[3] + 1, 'free', now)
local entry = table.concat({v[2], v[4], now, 'released', v[1]}, '\\n')
if redis.call('LPUSH', KEYS[2], entry) > 116 then
  redis.call('LTRIM', KEYS[2], 0, 99)
end
return 1
"""

_RENEW = """
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local v = redis.call('HMGET', KEYS[1], 'owner', 'token', 'expires', 'version')
if v[1] ~= ARGV[1] or v[2] ~= ARGV[2] or tonumber(v[3]) <= now then
  return 0
end
redis.call('HSET', KEYS[1], 'expires', string.format('%.0f', now + ARGV[3]),
  'renewed', string.format('%.0f', now), 'ttl', ARGV[3], 'version', v[4] + 1)
return 1
"""


class _Floor:
    """The raw rates, and those of peers, on one database."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._acquire = client.register_script(_ACQUIRE)
        self._release = client.register_script(_RELEASE)
        self._renew = client.register_script(_RENEW)
        self._count = itertools.count(1)
        self._owned: list[tuple[str, str, int]] = []

    async def pairs(self, key: str, seconds: float) -> float:
        """Acquire and release ``key`` by turns."""
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            owner = f"bench/0123456789abcdef-{next(self._count)}"
            token = await self._take(key, owner)
            if not await self._release(keys=[f"floor:{key}", f"ended:{key}"], args=[owner, token]):
                raise RuntimeError("the floor was fenced: it measures nothing")
            done += 2
            now = time.perf_counter()
        return done / (now - started)

    async def _take(self, key: str, owner: str) -> int:
        granted, token, *_ = await self._acquire(
            keys=[f"floor:{key}"], args=[owner, _TTL_US, _METADATA]
        )
        if not granted:
            raise RuntimeError(f"the floor was refused {key!r}: it measures nothing")
        return token

    async def renewals(self, seconds: float) -> float:
        """One renewal after the other."""
        if not self._owned:
            names = [(f"renewed-{number}", f"bench/{number}") for number in range(LeaseCount)]
            self._owned = [(key, owner, await self._take(key, owner)) for key, owner in names]
        leases = itertools.cycle(self._owned)
        started = now = time.perf_counter()
        done = 0
        while now < started + seconds:
            key, owner, token = next(leases)
            if not await self._renew(keys=[f"floor:{key}"], args=[owner, token, _TTL_US]):
                raise RuntimeError(f"the floor lost its lease {key!r}: it measures nothing")
            done += 1
            now = time.perf_counter()
        return done / (now - started)

    async def lock(self, seconds: float) -> float:
        """The lock that comes with redis-py."""
        started = time.perf_counter()
        return await self._locks("lock", started + seconds) / (time.perf_counter() - started)

    async def lock_crowd(self, seconds: float) -> float:
        """A hundred coroutines with a lock each."""
        started = time.perf_counter()
        keys = [f"lock-{number}" for number in range(_CROWD)]
        done = await asyncio.gather(*(self._locks(key, started + seconds) for key in keys))
        return sum(done) / (time.perf_counter() - started)

    async def _locks(self, key: str, until: float) -> int:
        done = 0
        while time.perf_counter() < until:
            lock = self._client.lock(key, timeout=TTL_S)
            if not await lock.acquire(blocking=False):
                raise RuntimeError("the peer was refused a lock that nobody else wants")
            await lock.release()
            done += 2
        return done


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[Floor]:
    """Connect to the database of ``url``."""
    client = Redis.from_url(url)
    try:
        floor = _Floor(client)
        yield Floor(
            floor.pairs,
            floor.renewals,
            {
                "uncontended": {"redis-py Lock (no token, no history)": floor.lock},
                "concurrent": {"redis-py Lock, 100 coroutines": floor.lock_crowd},
            },
        )
    finally:
        await client.aclose()
