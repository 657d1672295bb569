"""Holding: a block runs only while its leases are owned, and always gives them back."""

from __future__ import annotations

import asyncio

import pytest

import outlive
from outlive import AlreadyOwned, LeaseLost, UsageError


@pytest.fixture
async def pair():
    """Two hosts on one store."""
    async with (
        outlive.connect("memory://pair", name="a") as a,
        outlive.connect("memory://pair", name="b") as b,
    ):
        yield a, b


async def test_the_block_is_cancelled_when_the_lease_is_lost(pair):
    a, b = pair
    steps = []
    with pytest.raises(LeaseLost) as caught:
        async with a.leases.hold("k", ttl=0.3):
            await b.leases.break_lease("k", reason="stuck")
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise
    assert steps == ["cancelled"]
    assert caught.value.reason == "broken"
    # The cancellation was ours and ended with the block: the task can go on.
    await asyncio.sleep(0)


async def test_an_acquire_that_is_entered_says_what_to_write(pair):
    a, _ = pair
    for entered in (a.leases.acquire("k"), a.leases.acquire_all(["k"])):
        with pytest.raises(TypeError, match=r"write `async with host\.leases\.hold\(…\) as lease`"):
            async with entered:
                pass
    # Nothing was asked for, and what is awaited, by a task too, works as any coroutine.
    assert a.leases.owned == 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(a.leases.acquire("k"))
    assert task.result().is_held
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(a.leases.acquire("k", timeout=10, resume=True, ttl=9), 0)


async def test_a_mistyped_option_is_answered_with_the_nearest(pair):
    a, _ = pair
    with pytest.raises(UsageError, match="no option 'tll'; did you mean 'ttl'"):
        await a.leases.acquire("k", tll=5)
    with pytest.raises(UsageError, match="no option 'auto_renw'; did you mean 'auto_renew'"):
        outlive.LeaseOptions(auto_renw=False)
    with pytest.raises(UsageError, match="Retry has no option 'max_attempt'; did you mean"):
        outlive.Retry(max_attempt=3)


async def test_a_cancellation_from_outside_goes_through_and_releases(pair):
    a, b = pair
    inside = asyncio.Event()

    async def body() -> None:
        async with a.leases.hold("k"):
            inside.set()
            await asyncio.sleep(30)

    task = asyncio.create_task(body())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await b.leases.try_acquire("k") is not None


async def test_a_loss_while_the_block_ends_is_raised(pair):
    a, _ = pair
    with pytest.raises(LeaseLost):
        async with a.leases.hold("k", ttl=0.1, auto_renew=False) as lease:
            while lease.is_held:
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    break


async def test_the_blocks_own_error_wins(pair):
    a, b = pair
    with pytest.raises(ValueError, match="mine"):
        async with a.leases.hold("k"):
            raise ValueError("mine")
    assert await b.leases.try_acquire("k") is not None


async def test_reentry_by_the_same_task_is_refused_at_once(pair):
    a, _ = pair
    async with a.leases.hold("k") as lease:
        with pytest.raises(AlreadyOwned, match="not reentrant") as caught:
            await a.leases.acquire("k")
        assert caught.value.owner == lease.owner
        assert isinstance(caught.value, UsageError)
        with pytest.raises(AlreadyOwned):
            async with a.leases.hold("k", timeout=5):
                pass
        # Asking without waiting is an answer, not a mistake.
        assert await a.leases.try_acquire("k") is None


async def test_two_tasks_of_one_host_take_turns(pair):
    a, _ = pair
    inside, most = 0, 0

    async def body() -> None:
        nonlocal inside, most
        async with a.leases.hold("k"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= 1

    await asyncio.gather(*(body() for _ in range(20)))
    assert most == 1


async def test_a_hold_is_entered_once(pair):
    a, _ = pair
    hold = a.leases.hold("k")
    async with hold:
        pass
    with pytest.raises(UsageError, match="entered only once"):
        async with hold:
            pass


async def test_a_semaphore_admits_its_limit(pair):
    a, b = pair
    inside, most = 0, 0

    async def body(host: outlive.Host) -> None:
        nonlocal inside, most
        async with host.leases.semaphore("gpu", limit=3):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.002)
            inside -= 1

    await asyncio.gather(*(body(host) for host in (a, b) * 10))
    assert most == 3


async def test_users_who_disagree_about_a_limit_are_told(pair):
    a, b = pair
    async with a.leases.semaphore("gpu", limit=3):
        with pytest.raises(UsageError, match="same limit"):
            await b.leases.acquire("gpu", limit=4, timeout=1)
        with pytest.raises(UsageError, match="same limit"):
            await b.leases.acquire("gpu", timeout=0)


async def test_several_keys_are_owned_together_or_not_at_all(pair):
    a, b = pair
    async with a.leases.hold_all(["z", "a", "m", "a"]) as leases:
        assert [lease.key for lease in leases] == ["a", "m", "z"]
        with pytest.raises(outlive.AcquireTimeout):
            await b.leases.acquire_all(["0", "m"], timeout=0.05)
        assert await b.leases.acquire("0", timeout=1)
    assert not await b.leases.list(prefix="z")


async def test_crossing_keys_do_not_deadlock(pair):
    a, b = pair

    async def body(host: outlive.Host, keys: list[str]) -> None:
        for _ in range(20):
            async with host.leases.hold_all(keys):
                await asyncio.sleep(0)

    async with asyncio.timeout(20):
        await asyncio.gather(body(a, ["x", "y"]), body(b, ["y", "x"]))


@pytest.mark.parametrize("keys", [[], "abc", [""], [f"k{n}" for n in range(101)]])
async def test_bad_sets_of_keys_are_refused(pair, keys):
    a, _ = pair
    with pytest.raises(UsageError):
        await a.leases.acquire_all(keys)
    assert not await a.leases.list()


async def test_closing_the_connection_ends_the_block_before_the_key_is_free():
    trace = []
    inside = asyncio.Event()
    async with outlive.connect("memory://close-under", name="b") as b:
        a = await outlive.connect("memory://close-under", name="a")

        async def job() -> None:
            async with a.leases.hold("k", ttl=30):
                inside.set()
                try:
                    await asyncio.sleep(30)
                finally:
                    await asyncio.sleep(0.02)
                    trace.append(await b.leases.try_acquire("k"))

        task = asyncio.create_task(job())
        await inside.wait()
        await a.close()
        with pytest.raises(LeaseLost) as caught:
            await task
        assert caught.value.reason == "closed"
        # Still owned while the block cleaned up, free as soon as it was gone.
        assert trace == [None]
        assert await b.leases.try_acquire("k") is not None


async def test_closing_inside_the_block_is_fine():
    host = await outlive.connect("memory://close-inside")
    async with host.leases.hold("k"):
        await host.close()


async def test_closing_the_connection_ends_a_wait():
    async with outlive.connect("memory://close-wait", name="b") as b:
        a = await outlive.connect("memory://close-wait", name="a")
        lease = await b.leases.acquire("k")
        waiting = asyncio.create_task(a.leases.acquire("k"))
        while (await b.leases.get("k")).waiters == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        await a.close()
        with pytest.raises(UsageError, match="closed"):
            await asyncio.wait_for(waiting, 5)
        await lease.release()
