"""The virtual loop: asyncio works on it, one seed is one order, hosts crash and pause."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from outlive.testing.loop import (
    Deadlock,
    LoopHost,
    StepLimit,
    VirtualLoop,
    context_of,
    current_host,
)


def run(main, **options):
    loop = VirtualLoop(**options)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()


def on(host: LoopHost, main):
    return asyncio.get_running_loop().create_task(main, context=context_of(host))


def test_time_moves_only_when_nothing_is_ready():
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.gather(*(asyncio.sleep(0) for _ in range(100)))
        assert loop.time() == before
        await asyncio.sleep(3600)
        return loop.time() - before

    assert run(main()) == 3600


def test_gather_and_task_groups_work():
    async def after(seconds, value):
        await asyncio.sleep(seconds)
        return value

    async def main():
        gathered = await asyncio.gather(after(2, "a"), after(1, "b"))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(after(3 - n, n)) for n in range(3)]
        return gathered, [task.result() for task in tasks]

    assert run(main()) == (["a", "b"], [0, 1, 2])


def test_a_failing_task_cancels_its_group():
    ended = []

    async def wait_long():
        try:
            await asyncio.sleep(100)
        finally:
            ended.append(asyncio.get_running_loop().time())

    async def fail():
        await asyncio.sleep(1)
        raise ValueError

    async def main():
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(wait_long())
                group.create_task(fail())

    run(main())
    assert ended == [1.0]


def test_idle_is_a_loop_that_only_the_asker_keeps_awake():
    async def main():
        loop, host = asyncio.get_running_loop(), LoopHost("a")
        found = [loop.idle]
        loop.call_later(5, found.clear).cancel()
        found.append(loop.idle)
        sleeping = on(host, asyncio.sleep(5))
        found.append(loop.idle)
        await asyncio.sleep(1)
        found.append(loop.idle)
        loop.crash(host)
        found.append(loop.idle)
        return found, sleeping.done()

    assert run(main()) == ([True, True, False, False, True], False)


def test_timeouts_fire_on_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(10), 2)
        return asyncio.get_running_loop().time()

    assert run(main()) == 7


def test_wait_shield_and_as_completed_work():
    async def after(seconds):
        await asyncio.sleep(seconds)
        return seconds

    async def main():
        tasks = [asyncio.create_task(after(n)) for n in (3, 1, 2)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        order = [await next_done for next_done in asyncio.as_completed(pending)]
        inner = asyncio.create_task(after(5))
        outer = asyncio.shield(inner)
        outer.cancel()
        return [task.result() for task in done], order, await inner

    assert run(main()) == ([1], [2, 3], 5)


def test_queues_events_locks_and_conditions_work():
    async def main():
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock, event, condition = asyncio.Lock(), asyncio.Event(), asyncio.Condition()
        seen = []

        async def produce():
            for n in range(3):
                await queue.put(n)
            async with condition:
                condition.notify_all()
            event.set()

        async def consume():
            for _ in range(3):
                async with lock:
                    seen.append(await queue.get())

        async def waiter():
            async with condition:
                await condition.wait()
            await event.wait()
            seen.append("told")

        waiting = asyncio.create_task(waiter())
        await asyncio.sleep(0)
        async with asyncio.Semaphore(1):
            await asyncio.gather(produce(), consume())
        await waiting
        return seen

    assert run(main()) == [0, 1, 2, "told"]


def test_calls_from_the_same_thread_are_threadsafe_and_threads_are_refused():
    async def main():
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon_threadsafe(future.set_result, 1)
        with pytest.raises(RuntimeError, match="no threads"):
            await loop.run_in_executor(None, print)
        return await future

    assert run(main()) == 1


def order_of(seed: int) -> list[str]:
    seen: list[str] = []

    async def worker(host: LoopHost):
        for step in range(20):
            seen.append(f"{host.name}{step}")
            await asyncio.sleep(0)

    async def main():
        hosts = [LoopHost(name) for name in "abc"]
        await asyncio.gather(*(on(host, worker(host)) for host in hosts))

    run(main(), seed=seed)
    return seen


def test_one_seed_is_one_order_and_seeds_differ():
    assert order_of(1) == order_of(1)
    assert len({tuple(order_of(seed)) for seed in range(10)}) == 10


def test_callbacks_of_one_host_keep_their_order():
    order = order_of(3)
    for name in "abc":
        mine = [int(entry[1:]) for entry in order if entry[0] == name]
        assert mine == sorted(mine)


def test_sets_of_tasks_are_walked_in_order_of_creation():
    async def main():
        tasks = [asyncio.create_task(asyncio.sleep(1), name=str(n)) for n in range(50)]
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    assert run(main()) == run(main())


def test_children_belong_to_the_host_of_their_parent():
    async def who():
        return current_host()

    async def parent():
        return await asyncio.create_task(who())

    async def main():
        host = LoopHost("a")
        assert current_host() is None
        return host, await on(host, parent())

    host, seen = run(main())
    assert seen is host


def test_a_crashed_host_runs_nothing_not_even_finally():
    seen = []

    async def worker():
        try:
            await asyncio.sleep(10)
        finally:
            seen.append("finally")

    async def main():
        loop, host = asyncio.get_running_loop(), LoopHost("a")
        task = on(host, worker())
        await asyncio.sleep(1)
        loop.crash(host)
        await asyncio.sleep(100)
        return task.done(), list(seen)

    assert run(main()) == (False, [])


def test_a_paused_host_runs_what_was_held_back_in_order():
    seen = []

    async def worker(number):
        await asyncio.sleep(number)
        seen.append((number, asyncio.get_running_loop().time()))

    async def main():
        loop, host = asyncio.get_running_loop(), LoopHost("a")
        tasks = [on(host, worker(number)) for number in (3, 1, 2, 20)]
        await asyncio.sleep(0.5)
        loop.pause(host)
        await asyncio.sleep(9.5)
        assert seen == []
        loop.resume(host)
        await asyncio.gather(*tasks)

    run(main())
    assert seen == [(1, 10.0), (2, 10.0), (3, 10.0), (20, 20.0)]


def test_a_host_sleeps_by_its_own_clock():
    async def worker():
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(10)
        assert loop.time() - before >= 10

    async def main():
        slow, fast = LoopHost("slow", rate=0.5, offset=7), LoopHost("fast", rate=2.0)
        loop = asyncio.get_running_loop()
        await on(fast, worker())
        after_fast = loop.time()
        await on(slow, worker())
        return after_fast, loop.time()

    after_fast, after_both = run(main())
    assert after_fast == pytest.approx(5)
    assert after_both == pytest.approx(25)


def test_a_deadlock_names_who_waits():
    async def stuck():
        await asyncio.Event().wait()

    async def main():
        await asyncio.create_task(stuck(), name="the-stuck-one")

    with pytest.raises(Deadlock, match="the-stuck-one"):
        run(main())


def test_a_spinning_task_hits_the_step_limit():
    async def main():
        loop = asyncio.get_running_loop()

        def again():
            loop.call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(StepLimit):
        run(main(), steps_max=1000)


def test_errors_nobody_handled_are_kept():
    async def main():
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    loop = VirtualLoop()
    loop.run_until_complete(main())
    loop.close()
    assert isinstance(loop.unhandled[0]["exception"], ZeroDivisionError)


def test_closing_ends_what_was_left_quietly():
    seen = []

    async def stubborn():
        try:
            await asyncio.sleep(100)
        finally:
            seen.append("finally")
            await asyncio.sleep(1)
            seen.append("never")

    async def main():
        asyncio.create_task(stubborn())  # noqa: RUF006
        await asyncio.sleep(1)

    run(main())
    assert seen == ["finally"]


def test_a_runner_accepts_the_loop():
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(asyncio.sleep(5, "done")) == "done"


def test_whoever_reaches_a_closed_loop_does_not_stop_a_host_of_another():
    closed = VirtualLoop()
    closed.close()

    async def busy():
        for _ in range(3):
            closed.call_soon(print)
            await asyncio.sleep(0)
        return "went on"

    async def main():
        return await on(LoopHost("a"), busy())

    assert run(main()) == "went on"
