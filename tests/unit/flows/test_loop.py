"""The loop that flow code runs on: one order of events, durable timers, nothing of the outside."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from outlive.errors import UsageError
from outlive.flows import loop as flow_loop
from outlive.flows.loop import FlowLoop

pytestmark = pytest.mark.whitebox


class Flow:
    """A coroutine on a loop, with steps that are answered from outside."""

    def __init__(self, function, now: float = 1000.0) -> None:
        self.errors: list[dict] = []
        self.loop = FlowLoop(now, self.errors.append)
        self.asked: list[str] = []
        self.waiting: dict[str, asyncio.Future] = {}
        self.main = self.loop.create_task(function(self))
        self.loop.run()

    async def step(self, name: str):
        """Ask for a step and wait for its answer."""
        return await self.call(name)

    def call(self, name: str) -> asyncio.Future:
        """Ask for a step."""
        self.asked.append(name)
        future = self.waiting[name] = self.loop.create_future()
        return future

    def answer(self, name: str, value: object = None, now: float | None = None) -> None:
        future = self.waiting.pop(name)
        if not future.done():
            if isinstance(value, Exception):
                future.set_exception(value)
            else:
                future.set_result(value)
        self.loop.run(now)

    def fire(self, number: int, now: float) -> None:
        self.loop.fire(number, now)
        self.loop.run()


def test_steps_are_asked_for_in_order_and_the_result_comes_out():
    async def work(flow):
        first = await flow.step("a")
        second = await flow.step("b")
        return first + second

    flow = Flow(work)
    assert flow.asked == ["a"]
    flow.answer("a", 1)
    assert flow.asked == ["a", "b"]
    flow.answer("b", 2)
    assert flow.main.result() == 3
    assert flow.loop.idle


def test_a_sleep_is_a_timer_and_time_moves_by_what_is_fed():
    async def work(flow):
        before = flow.loop.time()
        await asyncio.sleep(30)
        return flow.loop.time() - before

    flow = Flow(work)
    ((number, due),), cancelled = flow.loop.take_timers()
    assert (due, cancelled) == (1030.0, [])
    assert flow.loop.take_timers() == ([], [])
    flow.fire(number, 1031.5)
    assert flow.main.result() == 31.5


def test_time_never_moves_back():
    async def work(flow):
        await flow.step("a")
        return flow.loop.time()

    flow = Flow(work)
    flow.answer("a", now=10.0)
    assert flow.main.result() == 1000.0


def test_a_timer_that_is_cancelled_after_it_was_told_is_told_again():
    async def work(flow):
        async with asyncio.timeout(60):
            await flow.step("a")
        return "in time"

    flow = Flow(work)
    ((number, _),), _ = flow.loop.take_timers()
    flow.answer("a")
    assert flow.main.result() == "in time"
    assert flow.loop.take_timers() == ([], [number])
    # It fires all the same: the store was faster.
    flow.fire(number, 1060.0)
    assert flow.main.result() == "in time"


def test_a_timer_set_and_cancelled_between_two_looks_is_never_told():
    async def work(flow):
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        await flow.step("a")

    flow = Flow(work)
    assert flow.loop.take_timers() == ([], [])


def test_a_timeout_interrupts_a_step():
    async def work(flow):
        try:
            async with asyncio.timeout(5):
                await flow.step("slow")
        except TimeoutError:
            return await flow.step("plan b")

    flow = Flow(work)
    ((number, _),), _ = flow.loop.take_timers()
    flow.fire(number, 1005.0)
    assert flow.asked == ["slow", "plan b"]
    flow.answer("slow", "too late")
    flow.answer("plan b", "done")
    assert flow.main.result() == "done"


async def all_at_once(flow):
    return await asyncio.gather(*(flow.step(f"g{n}") for n in range(7)))


async def first_of(flow):
    tasks = [asyncio.create_task(flow.step(f"w{n}")) for n in range(7)]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
        await flow.step(f"undo {sorted(flow.asked).index(flow.asked[0])} {task.get_name()}")
    return [task.get_name() for task in done]


async def as_they_come(flow):
    calls = [flow.call(f"c{n}") for n in range(7)]
    for next_one in asyncio.as_completed(calls):
        await flow.step(f"after {await next_one}")


async def group(flow):
    async def part(number):
        await flow.step(f"t{number}")
        if number == 3:
            raise ValueError("three")
        try:
            await flow.step(f"u{number}")
        except asyncio.CancelledError:
            flow.asked.append(f"cancelled {number}")
            raise

    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(7):
                tasks.create_task(part(number))
    except* ValueError:
        await flow.step("cleaned up")


async def shielded(flow):
    inner = asyncio.ensure_future(flow.step("inner"))
    waiter = asyncio.create_task(wait_shielded(inner))
    await flow.step("outer")
    waiter.cancel()
    await asyncio.wait([waiter])
    return await inner


async def wait_shielded(inner):
    return await asyncio.shield(inner)


async def queued(flow):
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def produce(start):
        for number in range(start, start + 3):
            await queue.put(number)

    async def consume(name):
        while True:
            number = await queue.get()
            await flow.step(f"{name} {number}")
            queue.task_done()

    consumers = [asyncio.create_task(consume(name)) for name in "xyz"]
    await asyncio.gather(*(produce(10 * n) for n in range(4)))
    await queue.join()
    for consumer in consumers:
        consumer.cancel()


async def locked(flow):
    lock, gate, few = asyncio.Lock(), asyncio.Event(), asyncio.Semaphore(2)
    turn = asyncio.Condition()
    state = {"turn": 0}

    async def part(number):
        await gate.wait()
        async with few:
            await flow.step(f"few {number}")
        async with lock:
            await flow.step(f"lock {number}")
        async with turn:
            await turn.wait_for(lambda: state["turn"] == number)
            await flow.step(f"turn {number}")
            state["turn"] += 1
            turn.notify_all()

    tasks = [asyncio.create_task(part(number)) for number in range(5)]
    await flow.step("open")
    gate.set()
    await asyncio.gather(*tasks)


async def timed(flow):
    async def part(number):
        try:
            async with asyncio.timeout(10 + number % 3):
                await flow.step(f"p{number}")
        except TimeoutError:
            await flow.step(f"late {number}")

    await asyncio.gather(*(part(number) for number in range(6)))


def drive(function) -> list[str]:
    """Run to the end, always answering the oldest call, else firing the earliest timer."""
    flow = Flow(function)
    timers: dict[int, float] = {}
    now = 1000.0
    turns = 0
    while not flow.main.done():
        turns += 1
        assert turns < 1000, flow.asked
        armed, disarmed = flow.loop.take_timers()
        timers.update(armed)
        for number in disarmed:
            del timers[number]
        names = list(flow.waiting)
        # Every third time the newest, so that answers do not come in the order of the calls.
        if names and not (timers and turns % 4 == 0):
            name = names[-1] if turns % 3 == 0 else names[0]
            flow.asked.append(f"<{name}>")
            flow.answer(name, name, now)
        else:
            number = min(timers, key=lambda one: (timers[one], one))
            now = timers.pop(number)
            flow.asked.append(f"<timer {number}>")
            flow.fire(number, now)
    flow.main.result()
    assert flow.errors == []
    return flow.asked


@pytest.mark.parametrize(
    "function",
    [all_at_once, first_of, as_they_come, group, shielded, queued, locked, timed],
)
def test_every_primitive_has_one_order_over_a_disturbed_heap(function):
    dice = random.Random(1)
    wanted = drive(function)
    assert len(wanted) >= 4
    for _ in range(100):
        # Objects of every size come to lie elsewhere each time.
        litter = [bytearray(dice.randrange(1, 2000)) for _ in range(dice.randrange(200))]
        del litter[:: dice.randrange(2, 5)]
        assert drive(function) == wanted
        del litter


def test_what_is_not_awaited_can_be_a_task():
    async def work(flow):
        async with asyncio.TaskGroup() as tasks:
            # A future is no coroutine; asyncio's own loop would refuse it.
            one = tasks.create_task(flow.call("a"))
        return one.result()

    flow = Flow(work)
    flow.answer("a", 5)
    assert flow.main.result() == 5


@pytest.mark.parametrize(
    "reach_out",
    [
        lambda: asyncio.to_thread(print),
        lambda: asyncio.open_connection("localhost", 80),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.get_running_loop().getaddrinfo("localhost", 80),
    ],
)
def test_reaching_out_of_a_flow_names_the_step_to_write(reach_out):
    async def work(flow):
        del flow
        await reach_out()

    flow = Flow(work)
    error = flow.main.exception()
    assert isinstance(error, UsageError)
    assert "do it in a step" in str(error)
    gc.collect()


def test_code_that_spins_is_stopped(monkeypatch):
    monkeypatch.setattr(flow_loop, "CALLBACKS_MAX", 1000)

    async def work(flow):
        del flow
        while True:
            await asyncio.gather(asyncio.sleep(0))

    with pytest.raises(UsageError, match="without waiting"):
        Flow(work)


def test_closing_runs_finally_blocks_and_nothing_that_they_ask_for():
    ended = []

    async def work(flow):
        try:
            await asyncio.gather(part(flow, 1), part(flow, 2))
        finally:
            ended.append("main")

    async def part(flow, number):
        try:
            await flow.step(f"s{number}")
        finally:
            ended.append(number)
            asyncio.create_task(flow.step("from the grave"))  # noqa: RUF006
            await asyncio.sleep(10)

    flow = Flow(work)
    flow.loop.close()
    flow.loop.close()
    assert ended == [2, 1, "main"]
    assert flow.loop.take_timers() == ([], [])
    assert flow.loop.idle
    assert "from the grave" not in flow.asked
    del flow
    gc.collect()


def test_a_flow_runs_inside_another_loop_and_leaves_it_as_it_was():
    async def work(flow):
        assert asyncio.get_running_loop() is flow.loop
        return await flow.step("a")

    async def outside():
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        done = loop.create_future()

        def activate():
            flow = Flow(work)
            flow.answer("a", 7)
            done.set_result(flow.main.result())

        loop.call_soon(activate)
        assert await done == 7
        assert asyncio.get_running_loop() is loop
        assert asyncio.current_task() is task
        await asyncio.sleep(0.001)

    asyncio.run(outside())


def test_an_async_generator_of_a_flow_stays_its_own():
    async def numbers(flow):
        for number in range(3):
            yield await flow.step(f"n{number}")

    async def work(flow):
        async for value in numbers(flow):
            if value == "n1":
                break
        return await flow.step("last")

    flow = Flow(work)
    for name in ("n0", "n1", "last"):
        flow.answer(name, name)
    assert flow.main.result() == "last"


def test_as_completed_over_bare_coroutines_is_refused():
    async def work(flow):
        coroutines = [flow.step(f"c{n}") for n in range(3)]
        try:
            for next_one in asyncio.as_completed(coroutines):
                await next_one
        finally:
            for coroutine in coroutines:
                coroutine.close()

    flow = Flow(work)
    error = flow.main.exception()
    assert isinstance(error, UsageError)
    assert "pass tasks" in str(error)


def test_wait_over_bare_coroutines_is_refused_by_asyncio_itself():
    async def work(flow):
        coroutine = flow.step("a")
        try:
            await asyncio.wait([coroutine])
        finally:
            coroutine.close()

    assert isinstance(Flow(work).main.exception(), TypeError)


def test_many_flows_do_not_collide_in_the_set_of_all_tasks():
    async def work(flow):
        await flow.step("a")

    hashes = set()
    for first in (10, 2000, 300_000):
        loop = FlowLoop(0.0, lambda _: None, first=first)
        task = loop.create_task(asyncio.sleep(0))
        hashes.add(hash(task))
        loop.close()
    assert hashes == {11, 2001, 300_001}
