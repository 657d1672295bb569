"""Loose ends: what must not stay behind when something goes wrong half-way."""

from __future__ import annotations

import asyncio
import gc

import pytest

import outlive
from outlive import AlreadyOwned, LeaseLost, OutcomeUnknown, StoreUnavailable, UsageError
from outlive.model.lease import Grant


@pytest.fixture
async def pair():
    """Two hosts on one store."""
    async with (
        outlive.connect("memory://pair", name="a") as a,
        outlive.connect("memory://pair", name="b") as b,
    ):
        yield a, b


async def test_a_wait_that_lost_replies_never_releases_its_own_grant(pair, monkeypatch):
    a, b = pair
    acquire, lost = a._driver.leases.acquire, 7

    async def losing_replies(request: object) -> object:
        nonlocal lost
        result = await acquire(request)
        if isinstance(result, Grant) and lost:
            lost -= 1
            raise OutcomeUnknown("the reply was lost")
        return result

    monkeypatch.setattr(a._driver.leases, "acquire", losing_replies, raising=False)
    lease = await a.leases.acquire("k", ttl=30, acquire_retry=(0.01, 0.02), timeout=20)
    assert lost == 0
    # Whatever was set aside to undo earlier attempts has had its turn.
    await asyncio.sleep(0.2)
    assert lease.is_held
    assert (await b.leases.get("k")).owner == lease.owner
    assert await b.leases.try_acquire("k") is None


async def test_a_try_that_lost_its_reply_for_good_leaves_nothing(pair, monkeypatch):
    a, b = pair
    acquire, lost = a._driver.leases.acquire, 5

    async def losing_replies(request: object) -> object:
        nonlocal lost
        result = await acquire(request)
        if lost:
            lost -= 1
            raise OutcomeUnknown("the reply was lost")
        return result

    monkeypatch.setattr(a._driver.leases, "acquire", losing_replies, raising=False)
    with pytest.raises(OutcomeUnknown, match="expires within"):
        await a.leases.try_acquire("k", ttl=600)
    assert await b.leases.acquire("k", timeout=5)


async def test_a_refused_reentry_leaves_no_place_in_the_queue(pair):
    a, b = pair
    lease = await a.leases.acquire("k")
    with pytest.raises(AlreadyOwned):
        await a.leases.acquire("k")
    await asyncio.sleep(0.01)
    assert (await b.leases.get("k")).waiters == 0
    await lease.release()
    assert await b.leases.try_acquire("k") is not None


async def test_a_failed_release_of_one_key_does_not_keep_the_others(pair, monkeypatch):
    a, b = pair
    release = a._driver.leases.release

    async def failing(grant: Grant) -> None:
        if grant.key == "b":
            raise StoreUnavailable("away")
        await release(grant)

    monkeypatch.setattr(a._driver.leases, "release", failing, raising=False)
    async with a.leases.hold_all(["a", "b", "c"], ttl=0.4):
        pass
    assert await b.leases.try_acquire("a") is not None
    assert await b.leases.try_acquire("c") is not None
    assert await b.leases.acquire("b", timeout=5)


async def test_a_cancelled_exit_gives_all_keys_back(pair, monkeypatch):
    a, b = pair
    release, slow = a._driver.leases.release, asyncio.Event()

    async def stuck(grant: Grant) -> None:
        if not slow.is_set():
            slow.set()
            await asyncio.Event().wait()
        await release(grant)

    monkeypatch.setattr(a._driver.leases, "release", stuck, raising=False)

    async def body() -> None:
        async with a.leases.hold_all(["a", "b", "c"], ttl=600):
            pass

    task = asyncio.create_task(body())
    await slow.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for key in "abc":
        assert await b.leases.acquire(key, timeout=5)
    gc.collect()
    assert a.leases.owned == 0


async def test_a_block_that_was_broken_unnoticed_ends_with_the_loss(pair):
    a, b = pair
    with pytest.raises(LeaseLost) as caught:
        async with a.leases.hold("k", ttl=60):
            await b.leases.break_lease("k", reason="stuck")
    assert caught.value.reason == "broken"


async def test_a_loss_found_on_entry_cancels_nobody_later(pair, monkeypatch):
    a, _ = pair
    acquire = a.leases.acquire

    async def overdue(key: str, **options: object) -> outlive.Lease:
        lease = await acquire(key, **options)
        lease.tenure.deadline = 0.0
        return lease

    monkeypatch.setattr(a.leases, "acquire", overdue)
    with pytest.raises(LeaseLost):
        async with a.leases.hold("k"):
            raise AssertionError("the block must not begin")
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_acquire_under_way_while_closing_is_given_back(monkeypatch):
    async with outlive.connect("memory://under-way", name="b") as b:
        a = await outlive.connect("memory://under-way", name="a")
        acquire, begun, go = a._driver.leases.acquire, asyncio.Event(), asyncio.Event()

        async def slow(request: object) -> object:
            result = await acquire(request)
            begun.set()
            await go.wait()
            return result

        monkeypatch.setattr(a._driver.leases, "acquire", slow, raising=False)
        trying = asyncio.create_task(a.leases.try_acquire("k", ttl=600))
        await begun.wait()
        closing = asyncio.create_task(a.close())
        await asyncio.sleep(0.02)
        go.set()
        with pytest.raises(UsageError, match="closed"):
            await trying
        await closing
        assert await b.leases.acquire("k", timeout=5)


async def test_a_cancelled_close_goes_on_and_can_be_awaited_again():
    host = await outlive.connect("memory://cancelled-close")
    closing = asyncio.create_task(host.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await host.close()
    with pytest.raises(UsageError, match="closed"):
        await host.leases.try_acquire("k")


async def test_a_function_that_misuses_the_library_is_elected_again(pair):
    a, _ = pair
    calls = asyncio.Queue()

    async def body(lease: outlive.Lease) -> None:
        calls.put_nowait(lease.token)
        raise UsageError("a mistake of the function's own")

    task = asyncio.create_task(a.leases.lead("k", body))
    await asyncio.wait_for(calls.get(), 5)
    await asyncio.wait_for(calls.get(), 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_try_acquire_has_no_timeout(pair):
    a, _ = pair
    with pytest.raises(UsageError, match="never waits"):
        await a.leases.try_acquire("k", timeout=5)


@pytest.mark.parametrize("reason", ["", "x" * 501, "a\x1b[2J", "\ud800", 7])
async def test_a_reason_that_people_cannot_read_is_refused(pair, reason):
    a, _ = pair
    await a.leases.acquire("k")
    with pytest.raises(UsageError):
        await a.leases.break_lease("k", reason=reason)


@pytest.mark.parametrize(
    "query", [{"owner": "\ud800"}, {"after": "\ud800"}, {"limit": "5"}, {"limit": 0}]
)
async def test_a_listing_checks_what_it_is_asked(pair, query):
    a, _ = pair
    with pytest.raises(UsageError):
        await a.leases.list(**query)
