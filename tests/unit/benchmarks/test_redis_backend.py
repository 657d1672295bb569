"""Redis as a place to measure: a tiny run works, and counts what hosts send. Never how fast."""

from __future__ import annotations

import dataclasses

import pytest

import outlive
from benchmarks.leases import backend, concurrent, uncontended, versus
from benchmarks.leases.redis_backend import RedisBackend

pytestmark = pytest.mark.service

TINY = dataclasses.replace(backend.QUICK, rounds=3, round_s=0.01, crowd_rounds=1, crowd_s=0.02)


@pytest.fixture
def place(redis_server) -> RedisBackend:
    return RedisBackend(redis_server)


async def test_rows_have_a_floor_and_a_bar(place) -> None:
    for measure in (uncontended.measure, concurrent.measure, versus.measure):
        (row,) = await measure(place, TINY)
        assert row.name.startswith("redis/")
        assert row.ours > 0
        assert row.floor is not None
        assert row.bar is not None


async def test_the_floor_renews_what_it_owns(place) -> None:
    async with place.floor(place.new_store()) as floor:
        assert await floor.renewals(0.01) > 0


async def test_count_of_scripts_sees_what_a_host_sends(place) -> None:
    url = place.new_store()
    async with place.counting(url) as count, outlive.connect(url, name="h") as host:
        await (await host.leases.acquire("warm")).release()
        found = []
        # Duties of the host fall into some of these at most.
        for _ in range(5):
            before = count()
            lease = await host.leases.try_acquire("key")
            assert lease is not None
            await lease.release()
            found.append(count().transactions - before.transactions)
        assert min(found) == 2


async def test_count_that_sees_nothing_is_refused(place) -> None:
    with pytest.raises(RuntimeError, match="no script"):
        async with place.counting(place.new_store()):
            pass
