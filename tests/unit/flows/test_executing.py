"""Steps on a host's loop: their end is told once, outside of their context."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import weakref
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from outlive import App, Retry, Step
from outlive.errors import UsageError
from outlive.flows.arguments import text_of
from outlive.flows.decision import StepTask
from outlive.flows.events import StepEnded, StepRetrying
from outlive.flows.executing import Executor
from outlive.flows.step_run import StepRun
from outlive.flows.store_clock import StoreClock
from outlive.runtime.runtime import Runtime
from outlive.telemetry.events import Telemetry

pytestmark = pytest.mark.whitebox

mark: ContextVar[str] = ContextVar("mark", default="untouched")


class Owner:
    """Hears of the ends of steps, and what the marks of the context were then."""

    closed = False

    def __init__(self) -> None:
        self.row: Any = SimpleNamespace(id="f", base=0, headers="{}")
        self.session: Any = SimpleNamespace(held=True)
        self.heard: list[StepEnded | StepRetrying] = []
        self.marks: list[str] = []
        self.then: Callable[[], object] | None = None

    def step_happened(self, run: StepRun, event: StepEnded | StepRetrying) -> None:
        del run
        self.heard.append(event)
        self.marks.append(mark.get())
        if self.then is not None:
            self.then()

    @property
    def said(self) -> list[str]:
        """The result or the kind of the error of each."""
        return [
            text_of(event.result) if event.error is None else event.error.type.rpartition(".")[2]
            for event in self.heard
            if isinstance(event, StepEnded)
        ]


class Bench:
    """An executor, one who waits, and how to start a step."""

    def __init__(self, *middlewares: Any) -> None:
        runtime = Runtime()
        self.owner = Owner()
        self.executor = Executor(
            runtime,
            StoreClock(runtime.clock, 0.0),
            threads=1,
            middlewares=middlewares,
            telemetry=Telemetry(),
            host="h",
            log=logging.getLogger("test"),
        )
        self._count = 0

    def start(self, step: Step[..., Any]) -> StepRun:
        self._count += 1
        call = StepTask(identity=f"step#{self._count}", step=step, input=msgspec.Raw(b"{}"))
        run = self.executor.prepare(self.owner, call)
        self.executor.begin(run)
        return run


@pytest.fixture
async def bench() -> AsyncGenerator[Bench, None]:
    made = Bench()
    yield made
    made.executor.close()


app = App("steps")


@app.step
async def quick() -> str:
    mark.set("the step's own")
    return "done"


@app.step
async def slow() -> None:
    await asyncio.sleep(60)


@app.step(concurrency=1)
async def narrow() -> str:
    await asyncio.sleep(0)
    return "through"


@app.step
async def broken() -> None:
    raise ValueError("no")


@app.step(retry=Retry(max_attempts=2))
async def flaky() -> None:
    raise OSError("again")


@app.step
async def exits() -> None:
    raise SystemExit(3)


@app.step
async def interrupted() -> None:
    raise KeyboardInterrupt


@app.step(concurrency=1)
async def closes_itself() -> None:
    raise GeneratorExit


async def settled() -> None:
    """Let a step begin, end, be told of, and let one more do so."""
    for _ in range(8):
        await asyncio.sleep(0)


async def test_an_end_is_told_after_the_start(bench: Bench) -> None:
    bench.start(quick)
    assert bench.owner.said == []
    await settled()
    assert bench.owner.said == ['"done"']


async def test_who_hears_of_it_has_nothing_of_its_context(bench: Bench) -> None:
    mark.set("the caller's")
    bench.start(quick)
    await settled()
    assert bench.owner.marks == ["the caller's"]


async def test_the_next_step_has_nothing_of_the_context_of_the_one_before(bench: Bench) -> None:
    seen: list[str] = []

    @app.step(name="looks")
    async def looks() -> None:
        seen.append(mark.get())

    mark.set("the caller's")
    bench.owner.then = lambda: bench.start(looks) if len(bench.owner.heard) == 1 else None
    bench.start(quick)
    await settled()
    assert seen == ["the caller's"]


async def test_one_that_is_stopped_before_its_first_turn_leaves_its_place(bench: Bench) -> None:
    first, second = bench.start(narrow), bench.start(narrow)
    bench.executor.stop(first)
    await settled()
    # Nobody hears of the one that was stopped.
    assert bench.owner.said == ['"through"']
    assert second.over


async def test_one_that_somebody_cancels_before_its_first_turn_has_failed(bench: Bench) -> None:
    run = bench.start(slow)
    assert run.task is not None
    run.task.cancel()
    await settled()
    assert bench.owner.said == ["CancelledError"]


async def test_one_that_is_stopped_while_it_runs_is_not_told_of(bench: Bench) -> None:
    run = bench.start(slow)
    await asyncio.sleep(0)
    bench.executor.stop(run)
    await settled()
    assert bench.owner.heard == []
    assert run.task is None


async def test_one_that_is_stopped_while_it_waits_for_a_thread_never_begins(bench: Bench) -> None:
    go, ran, heard = threading.Event(), list[str](), asyncio.Event()

    @app.step(name="blocks")
    def blocks() -> None:
        assert go.wait(10)

    @app.step(name="queued")
    def queued() -> None:
        ran.append("queued")

    @app.step(name="last")
    def last() -> None:
        bench.owner.then = heard.set

    # There is one thread, which is busy.
    bench.start(blocks)
    run = bench.start(queued)
    bench.start(last)
    bench.executor.stop(run)
    go.set()
    await asyncio.wait_for(heard.wait(), 10)
    assert ran == []


@pytest.mark.parametrize("step", [exits, interrupted])
async def test_a_step_that_exits_has_failed_and_its_loop_goes_on(
    bench: Bench, step: Step[..., Any]
) -> None:
    bench.start(step)
    await settled()
    assert bench.owner.said == [UsageError.__name__]


async def test_a_step_that_closes_itself_has_failed_and_leaves_its_place(bench: Bench) -> None:
    bench.start(closes_itself)
    bench.start(closes_itself)
    await settled()
    assert bench.owner.said == ["GeneratorExit"] * 2


async def test_a_step_whose_loop_is_dropped_is_told_to_nobody() -> None:
    bench = Bench()
    loop = asyncio.new_event_loop()

    async def main() -> None:
        bench.start(slow)
        await asyncio.sleep(0)

    def drop() -> None:
        loop.run_until_complete(main())
        (task,) = asyncio.all_tasks(loop)
        coroutine: Any = task.get_coro()
        coroutine.close()
        forgotten: Any = task
        forgotten._log_destroy_pending = False
        loop.close()

    await asyncio.to_thread(drop)
    assert bench.owner.heard == []


async def test_a_loop_that_begins_tasks_at_once_tells_later(bench: Bench) -> None:
    loop = asyncio.get_running_loop()

    def eager(loop: Any, coro: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **kwargs)
        loop._ready.pop()._run()  # As later versions do by themselves.
        return task

    def start() -> None:
        loop.set_task_factory(eager)
        bench.start(quick)
        loop.set_task_factory(None)
        # Whoever starts a step is not ready to hear of its end.
        assert bench.owner.said == []

    loop.call_soon(start)
    await settled()
    assert bench.owner.said == ['"done"']
    assert bench.owner.marks == ["untouched"]


async def test_a_step_that_exits_in_a_task_of_a_middleware_has_failed() -> None:
    async def apart(_current: object, call: Callable[[], Any]) -> Any:
        return await asyncio.create_task(call())

    bench = Bench(apart)
    bench.start(exits)
    await settled()
    assert bench.owner.said == ["UsageError"]
    bench.executor.close()


async def test_a_step_that_a_middleware_awaits_too_late_does_not_begin() -> None:
    async def late(_current: object, call: Callable[[], Any]) -> Any:
        body = call()
        bench.owner.session.held = False
        return await body

    began: list[str] = []

    @app.step(name="begins")
    async def begins() -> None:
        began.append("it")

    bench = Bench(late)
    bench.start(begins)
    await settled()
    assert began == []
    bench.executor.close()


async def test_middleware_is_around_a_step() -> None:
    async def around(_current: object, call: Callable[[], Any]) -> str:
        return f"around {await call()}"

    bench = Bench(around)
    bench.start(quick)
    await settled()
    assert bench.owner.said == ['"around done"']


@pytest.mark.parametrize("step", [quick, broken, flaky, exits, narrow], ids=lambda it: it.name)
async def test_what_has_ended_is_freed_without_a_search(bench: Bench, step: Step[..., Any]) -> None:
    # What is made once, at the first error, is none of it.
    bench.start(step)
    for _ in range(4):
        await asyncio.sleep(0)
    gc.collect()
    gc.disable()
    try:
        run = bench.start(step)
        # Of one that has ended already there is none.
        task = None if run.task is None else weakref.ref(run.task)
        del run
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(bench.owner.heard) == 2
        assert task is None or task() is None
        # Nothing that is in a cycle.
        assert gc.collect() == 0
    finally:
        gc.enable()


async def test_the_task_of_a_step_bears_its_identity(bench: Bench):
    run = bench.start(slow)
    assert run.task is not None
    assert run.task.get_name() == run.call.identity
    bench.executor.stop(run)


async def test_a_loop_makes_all_tasks_of_steps_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    loop, made = asyncio.get_running_loop(), list[asyncio.Task[Any]]()
    create_task = loop.create_task

    def counting(*args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        made.append(create_task(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr(loop, "create_task", counting)
    run = bench.start(slow)
    assert made == [run.task]
    bench.executor.stop(run)
