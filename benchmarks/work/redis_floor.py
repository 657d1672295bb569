"""The floor on Redis: redis-py and the shortest script that claims a batch of jobs.

It pops the jobs in their order, writes the fields of a claim into the hash of each, keeps the sets
of claimed jobs, and gives the bodies back, in one round trip. Its jobs lie in keys of its own with
the library's layout. It looks at no session, no expiry and no due times.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from benchmarks.work.batches import REFILL
from benchmarks.work.jobs import PAYLOAD

_CLAIM = """
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
local found = redis.call('ZPOPMIN', 'floor:ready', ARGV[3])
local answer, bodies, ids = {}, {}, {}
local claimed = {'ZADD', 'floor:claimed'}
for number = 1, #found, 2 do
  local id = string.sub(found[number], 17)
  local key = 'floor:job:' .. id
  local row = redis.call('HMGET', key, 'number', 'attempts', 'losses', 'enqueued')
  local token = redis.call('HINCRBY', 'floor:numbers', 'token', 1)
  redis.call('HSET', key, 'state', 'claimed', 'token', token, 'session', ARGV[1], 'host', ARGV[1],
    'worker', 'bench', 'request', ARGV[2], 'claimed', now, 'settled', '')
  claimed[#claimed + 1], claimed[#claimed + 2] = row[1], id
  ids[#ids + 1], bodies[#bodies + 1] = id, 'floor:body:' .. id
  answer[#answer + 1] = {id, token, row[2], row[3], row[4]}
end
redis.call('ZREM', 'floor:jobs', unpack(ids))
redis.call(unpack(claimed))
redis.call('SADD', 'floor:claims', unpack(ids))
return {answer, redis.call('MGET', unpack(bodies))}
"""

# As long as those of Outlive: what is kept of a claim has a price.
_SESSION = "0123456789abcdef"


class RedisFloor:
    """Raw claims."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._claim = client.register_script(_CLAIM)
        self._numbers = itertools.count(1)

    async def batches(self, limit: int, seconds: float) -> float:
        """Claim ``limit`` jobs by one script, again and again."""
        done, spent = 0, 0.0
        while spent < seconds:
            await self._fill(limit * REFILL)
            started = time.perf_counter()
            for _ in range(REFILL):
                request = f"{_SESSION}-{next(self._numbers)}"
                claimed, _ = await self._claim(args=[_SESSION, request, limit])
                if len(claimed) != limit:
                    raise RuntimeError(f"the floor claimed {len(claimed)} of {limit}")
            spent += time.perf_counter() - started
            done += limit * REFILL
        return done / spent

    async def _fill(self, count: int) -> None:
        pipe = self._client.pipeline(transaction=False)
        for _ in range(count):
            number = next(self._numbers)
            name = f"{_SESSION}-{number}"
            job = {"queue": "floor", "state": "ready", "number": number, "enqueued": number}
            pipe.hset(f"floor:job:{name}", mapping=job)
            pipe.set(f"floor:body:{name}", PAYLOAD)
            pipe.zadd("floor:jobs", {name: number})
            pipe.zadd("floor:ready", {f"{number:016d}{name}": 0})
        await pipe.execute()


@asynccontextmanager
async def open_floor(url: str) -> AsyncGenerator[RedisFloor]:
    """The database of ``url``."""
    client = Redis.from_url(url)
    try:
        yield RedisFloor(client)
    finally:
        await client.aclose()
