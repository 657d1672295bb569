"""Acquiring: waiting, timing out, cancelling; and nothing stays behind."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from types import SimpleNamespace

import pytest

import outlive
from outlive import AcquireTimeout, InvalidName, LeaseHeld, LeaseOptions, UsageError
from outlive.leases.acquiring import _Waiting
from outlive.model.lease import AcquireRequest, Held
from outlive.model.options import plan_of


@pytest.fixture
async def pair():
    """Two hosts on one store."""
    async with (
        outlive.connect("memory://pair", name="a") as a,
        outlive.connect("memory://pair", name="b") as b,
    ):
        yield a, b


async def test_a_timeout_names_the_owner_and_leaves_the_queue(pair):
    a, b = pair
    lease = await a.leases.acquire("k")
    with pytest.raises(AcquireTimeout) as caught:
        await b.leases.acquire("k", timeout=0.05)
    assert caught.value.owner == lease.owner
    assert isinstance(caught.value, TimeoutError)
    await asyncio.sleep(0)
    assert (await a.leases.get("k")).waiters == 0
    await lease.release()
    # Nobody is reserved a turn: a newcomer gets it at once.
    assert await a.leases.try_acquire("k") is not None


async def test_zero_timeout_asks_once(pair):
    a, b = pair
    lease = await a.leases.acquire("k")
    with pytest.raises(LeaseHeld) as caught:
        await b.leases.acquire("k", timeout=0)
    assert caught.value.owner == lease.owner


async def test_a_waiter_is_woken_by_release_and_not_by_polling(pair):
    a, b = pair
    lease = await a.leases.acquire("k")
    slow = asyncio.create_task(b.leases.acquire("k", acquire_retry=(3600, 3600), timeout=30))
    while (await a.leases.get("k")).waiters == 0:  # noqa: ASYNC110 - the queue is in the store
        await asyncio.sleep(0.001)
    await lease.release()
    successor = await asyncio.wait_for(slow, 2)
    assert successor.token == lease.version + 1 or successor.token == 2


async def test_waiters_are_served_in_order(pair):
    a, b = pair
    lease = await a.leases.acquire("k")
    served = []

    async def wait(name: str, host: outlive.Host) -> None:
        async with host.leases.hold("k"):
            served.append(name)

    tasks = []
    for number in range(6):
        tasks.append(asyncio.create_task(wait(f"w{number}", (a, b)[number % 2])))
        while (await a.leases.get("k")).waiters <= number:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await lease.release()
    await asyncio.gather(*tasks)
    assert served == [f"w{number}" for number in range(6)]


async def test_a_cancelled_waiter_lets_the_next_one_through(pair):
    a, b = pair
    lease = await a.leases.acquire("k")
    first = asyncio.create_task(b.leases.acquire("k"))
    while (await a.leases.get("k")).waiters < 1:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    second = asyncio.create_task(b.leases.acquire("k"))
    while (await a.leases.get("k")).waiters < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    first.cancel()
    await lease.release()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (await asyncio.wait_for(second, 5)).is_held


async def test_resume_takes_over_from_an_earlier_life_of_the_same_host(pair):
    a, b = pair
    lease = await a.leases.acquire("k", ttl=60)
    assert await b.leases.try_acquire("k", resume=True) is None
    async with outlive.connect("memory://pair", name="a") as reborn:
        resumed = await reborn.leases.try_acquire("k", resume=True)
        assert resumed is not None
        assert resumed.token > lease.token
        with pytest.raises(outlive.Fenced):
            await lease.renew()


@pytest.mark.parametrize(
    "key", ["", "x" * 513, "é" * 257, "a\x00b", "a\nb", "\x1b[31m", "\ud800", 7]
)
async def test_bad_keys_are_refused_and_nothing_is_written(pair, key):
    a, _ = pair
    with pytest.raises(InvalidName, match=r"^(key must|key '.+' contains|key '.+'… is)"):
        await a.leases.try_acquire(key)
    with pytest.raises(InvalidName):
        async with a.leases.hold(key):
            pass
    assert await a.leases.list(active=False) == []


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": math.nan},
        {"ttl": math.inf},
        {"ttl": 1e12},
        {"ttl": "30"},
        {"ttl": True},
        {"ttl": 1, "renew_interval": 1},
        {"ttl": 1, "renew_interval": 2},
        {"ttl": 1, "safety_margin": 1},
        {"ttl": 0.0000001},
        {"renew_jitter": 1.5},
        {"at_risk": 0},
        {"renew_retries_max": -1},
        {"renew_backoff": (2, 1)},
        {"renew_backoff": 1},
        {"acquire_retry": (0, 1)},
        {"stall_limit": 0},
        {"no_such_option": 1},
        {"limit": 0},
        {"limit": 1.5},
        {"limit": 100_000},
        {"metadata": {"x": object()}},
        {"metadata": {"x": math.nan}},
        {"metadata": {1: "x"}},
        {"metadata": ["x"]},
        {"metadata": {"x": "y" * 9000}},
    ],
)
async def test_bad_options_are_refused_and_nothing_is_written(pair, options):
    a, _ = pair
    with pytest.raises(UsageError):
        await a.leases.try_acquire("k", **options)
    assert await a.leases.list(active=False) == []


async def test_too_deep_metadata_is_refused(pair):
    a, _ = pair
    deep: dict[str, object] = {}
    for _ in range(100):
        deep = {"in": deep}
    with pytest.raises(UsageError, match="deeper"):
        await a.leases.try_acquire("k", metadata=deep)


async def test_a_timedelta_is_a_duration(pair):
    a, _ = pair
    lease = await a.leases.acquire("k", ttl=timedelta(minutes=2), timeout=timedelta(seconds=1))
    assert 118 < lease.remaining_s <= 120


def test_options_are_checked_when_they_are_made():
    with pytest.raises(UsageError, match="renew_interval"):
        LeaseOptions(ttl=3, renew_interval=5)


def test_an_event_loop_may_stall_for_thirty_seconds_by_default():
    assert LeaseOptions().stall_limit == 30


async def test_a_closed_connection_says_so(pair):
    async with outlive.connect("memory://pair") as other:
        pass
    with pytest.raises(UsageError, match="closed"):
        await other.leases.try_acquire("k")


async def test_a_grant_whose_reply_came_after_its_deadline_is_not_believed(pair, monkeypatch):
    a, b = pair
    acquire, slow = a._driver.leases.acquire, 2

    async def sluggish(request: object) -> object:
        nonlocal slow
        result = await acquire(request)
        if slow:
            slow -= 1
            await asyncio.sleep(0.15)
        return result

    monkeypatch.setattr(a._driver.leases, "acquire", sluggish, raising=False)
    lease = await a.leases.acquire("k", ttl=0.12, timeout=5)
    assert lease.is_held
    assert slow == 0
    assert await b.leases.try_acquire("k") is None


async def test_a_store_slower_than_the_ttl_is_unavailable_and_nothing_is_held(pair, monkeypatch):
    a, b = pair
    acquire = a._driver.leases.acquire

    async def sluggish(request: object) -> object:
        result = await acquire(request)
        await asyncio.sleep(0.06)
        return result

    monkeypatch.setattr(a._driver.leases, "acquire", sluggish, raising=False)
    with pytest.raises(outlive.StoreUnavailable, match="longer ttl"):
        await a.leases.try_acquire("k", ttl=0.05)
    assert await b.leases.acquire("k", timeout=5)


@pytest.mark.parametrize(
    ("retry", "asked_s", "slept_s"),
    [((0.5, 5.0), 0.4, 0.4), ((0.5, 5.0), 4.0, 1.0), ((3.0, 9.0), 4.0, 3.0)],
)
async def test_who_is_never_woken_asks_each_second_or_as_seldom_as_told(retry, asked_s, slept_s):
    pauses = []

    class Clock:
        async def sleep(self, seconds):
            pauses.append(seconds)

    acquirer = SimpleNamespace(
        waiters=SimpleNamespace(deaf=True), runtime=SimpleNamespace(clock=Clock())
    )
    request = AcquireRequest("k", "a/1", 30_000_000, "{}", "h")
    waiting = _Waiting(acquirer, request, plan_of(LeaseOptions(acquire_retry=retry)))
    await waiting._sleep(Held("k", "b/1", 60.0), asked_s)
    assert pauses == [slept_s]
