"""A seeded event loop on virtual time, for whole fleets in one thread.

Owns the order of callbacks, the virtual time, and which simulated host a callback belongs to.
Must never read a real clock, open a socket or start a thread: one seed is one run, on any machine.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from outlive.flows.numbered import NumberedFuture, NumberedTask, end_coroutine
from outlive.runtime.running_loop import (
    replace_running_loop,
    restore_running_loop,
    running_loop,
    set_running_loop,
)

T = TypeVar("T")

# A seed of the usual simulations takes tens of thousands of steps; a hundred times as many is a
# task that spins without letting time pass.
STEPS_MAX = 5_000_000

# Lists of done tasks are swept when they have doubled, and never below this size.
_SWEEP_LEAST = 256


class Deadlock(RuntimeError):
    """What is waited for will never happen. Shows who waits.

    Nothing is ready and nothing is scheduled; or, in a ``World``, nothing that is scheduled changes
    what is waited for.
    """


class StepLimit(RuntimeError):
    """The loop ran more steps than allowed: something spins without letting time pass."""


class LoopHost:
    """One machine of a simulated fleet: it may crash, be paused, and has a clock of its own.

    Local time is ``offset + rate * true time``. ``loop.time()`` and timers use the local time of
    the host that asks, as they would on a real machine.
    """

    def __init__(self, name: str, *, rate: float = 1.0, offset: float = 0.0) -> None:
        self.name = name
        self.rate = rate
        self.offset = offset
        self.paused = False
        self.crashed = False
        self.ready: deque[Callback] = deque()

    def local_at(self, true: float) -> float:
        """This host's monotonic clock at the given true time."""
        return self.offset + self.rate * true

    def true_at(self, local: float) -> float:
        """The first true time at which this host's clock shows at least ``local``."""
        true = (local - self.offset) / self.rate
        # Rounding must not wake a sleeper a hair early: it would compute a rest too small to
        # move the time by, and spin.
        while self.local_at(true) < local:
            true = math.nextafter(true, math.inf)
        return true

    def __repr__(self) -> str:
        state = "crashed" if self.crashed else "paused" if self.paused else "up"
        return f"<{type(self).__name__} {self.name} {state}>"


current: ContextVar[LoopHost | None] = ContextVar("outlive_simulated_host", default=None)


def current_host() -> LoopHost | None:
    """The simulated host whose code is running, or ``None`` outside of all."""
    return current.get()


def context_of(host: LoopHost | None) -> Context:
    """A copy of the current context that belongs to ``host``; ``None`` is the world outside."""
    context = copy_context()
    context.run(current.set, host)
    return context


class Callback:
    """What a loop is asked to call, on which host and in which context, and when.

    It does what asyncio promises of its handles, and keeps nothing for a debug mode that no virtual
    loop has: tens of thousands are made in one run of one seed.
    """

    __slots__ = ("args", "callback", "context", "due", "host", "live")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
        host: LoopHost,
        due: float = 0.0,
    ) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.host = host
        # By the clock of the host that asked for it.
        self.due = due
        self.live = True

    def cancel(self) -> None:
        """Never call it. What it would have been given is let go."""
        self.live = False
        self.callback, self.args = _nothing, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return not self.live

    def when(self) -> float:
        """When it is due, by the clock of the host that asked for it."""
        return self.due

    def get_context(self) -> Context:
        """The context that it is called in."""
        return self.context

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.host.name}: {self.callback!r}>"


def _nothing() -> None:
    pass


class VirtualLoop(asyncio.AbstractEventLoop):
    """An asyncio event loop whose time moves only when nothing is ready.

    Callbacks of one host keep the order asyncio promises; between hosts the seed chooses. A
    crashed host never runs again: its tasks stop where they stand, without ``finally``. A paused
    host's callbacks are held back and run in order after it resumes.
    """

    def __init__(self, seed: int = 0, *, steps_max: int = STEPS_MAX) -> None:
        self.steps = 0
        self.steps_max = steps_max
        self.unhandled: list[dict[str, Any]] = []
        self.world = LoopHost("world")
        self._random = random.Random(f"loop/{seed}")  # noqa: S311
        self._now = 0.0
        self._numbers = 0
        self._runnable: list[LoopHost] = []
        self._timers: list[tuple[float, int, Callback]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._sweep_at = _SWEEP_LEAST
        self._stopping = False
        self._running = False
        self._closed = False
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._factory: Callable[..., asyncio.Future[Any]] | None = None

    # Time.

    @property
    def now(self) -> float:
        """True time, in seconds since the simulation began."""
        return self._now

    def time(self) -> float:
        """The clock of the host that asks; true time outside of all hosts."""
        host = current.get()
        return self._now if host is None else host.local_at(self._now)

    @property
    def idle(self) -> bool:
        """Whether nothing else is ready or scheduled than the callback that asks."""
        return not self._runnable and not any(
            handle.live and not handle.host.crashed for _, _, handle in self._timers
        )

    # Callbacks.

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _enqueue(self, handle: Callback) -> None:
        host = handle.host
        # Of a loop that was closed nothing runs any more, whoever still reaches it; and the host
        # that does may be one of another loop.
        if host.crashed or self._closed:
            return
        ready = host.ready
        if not ready and not host.paused:
            self._runnable.append(host)
        ready.append(handle)

    def call_soon(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        """Run ``callback`` after what is ready already, on the host of ``context``."""
        if context is None:
            context = copy_context()
        handle = Callback(callback, args, context, context.get(current) or self.world)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Callback:
        """The same as ``call_soon``: there is one thread."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Callback:
        """Run ``callback`` after ``delay`` seconds of the asking host's clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> Callback:
        """Run ``callback`` when the asking host's clock shows ``when``."""
        clock = current.get()
        if context is None:
            context = copy_context()
        handle = Callback(callback, args, context, context.get(current) or self.world, when)
        true = when if clock is None else clock.true_at(when)
        if true <= self._now:
            self._enqueue(handle)
        else:
            heapq.heappush(self._timers, (true, self._number(), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future that hashes by creation."""
        return NumberedFuture(self._number(), loop=self)

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        """Start a task on the host of ``context``, by default the host that asks."""
        if self._factory is not None:
            kwargs = {} if context is None else {"context": context}
            made: Any = self._factory(self, coro, name=name, **kwargs)
            return made
        number = self._number()
        task: NumberedTask[Any] = NumberedTask(
            number,
            coro,  # pyright: ignore[reportArgumentType]
            loop=self,
            name=f"task-{number}" if name is None else str(name),
            context=context,
        )
        self._tasks.append(task)
        if len(self._tasks) >= self._sweep_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._sweep_at = max(_SWEEP_LEAST, 2 * len(self._tasks))
        return task

    # Hosts.

    def pause(self, host: LoopHost) -> None:
        """Hold back the callbacks of ``host``; its clock goes on."""
        host.paused = True
        if host in self._runnable:
            self._runnable.remove(host)

    def resume(self, host: LoopHost) -> None:
        """Let a paused host run what was held back, in order."""
        if host.paused and not host.crashed and host.ready:
            self._runnable.append(host)
        host.paused = False

    def crash(self, host: LoopHost) -> None:
        """End ``host`` between two callbacks: no task of it ever runs again, not even finally.

        A callback of it that runs right now goes on to its next suspension, and no further.
        """
        host.crashed = True
        host.ready.clear()
        if host in self._runnable:
            self._runnable.remove(host)

    # Running.

    def _advance(self) -> None:
        timers = self._timers
        while timers and (not timers[0][2].live or timers[0][2].host.crashed):
            heapq.heappop(timers)
        if not timers:
            raise Deadlock(
                f"nothing is ready and nothing is scheduled at {self._now:.6f} s\n{self.dump()}"
            )
        self._now = now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= now:
            handle = heapq.heappop(timers)[2]
            if handle.live:
                self._enqueue(handle)

    def _run_steps(self) -> None:
        draw = self._random.random
        runnable = self._runnable
        while not self._stopping:
            count = len(runnable)
            if count == 0:
                self._advance()
                continue
            index = int(draw() * count) if count > 1 else 0
            ready = runnable[index].ready
            handle = ready.popleft()
            if not ready:
                runnable[index] = runnable[-1]
                runnable.pop()
            if handle.live:
                self.steps += 1
                if self.steps > self.steps_max:
                    raise StepLimit(f"more than {self.steps_max} steps at {self._now:.6f} s")
                # Here, and not in a method of the handle: it would be felt in every step.
                try:
                    handle.context.run(handle.callback, *handle.args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001
                    self._report(handle, error)

    def _report(self, handle: Callback, error: BaseException) -> None:
        """A callback failed, and nobody else will look."""
        message = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def run_forever(self) -> None:
        """Run until ``stop``.

        Raises:
            Deadlock: Nothing is ready and nothing is scheduled.
            StepLimit: More than ``steps_max`` callbacks ran.
        """
        if self._closed or self._running:
            raise RuntimeError("this loop is closed or running already")
        if running_loop() is not None:
            raise RuntimeError("a virtual loop cannot run inside another event loop")
        hooks = sys.get_asyncgen_hooks()
        self._running = True
        self._stopping = False
        sys.set_asyncgen_hooks(firstiter=None, finalizer=self._finish_generator)
        set_running_loop(self)
        try:
            self._run_steps()
        finally:
            self._running = False
            set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)

    def run_until_complete(self, future: Any) -> Any:
        """Run until ``future`` (or coroutine) is done, and return its result."""
        task = future if asyncio.isfuture(future) else self.create_task(future, name="main")
        task.add_done_callback(self._stop_after)
        self.run_forever()
        if not task.done():
            raise RuntimeError("the loop was stopped before the future was done")
        return task.result()

    def stop(self) -> None:
        """Stop after the callback that runs now."""
        self._stopping = True

    def is_running(self) -> bool:
        """Whether callbacks are being run."""
        return self._running

    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self) -> None:
        """Drop everything; nothing runs any more.

        Coroutines that were left are ended here, so that the collector does not run their
        ``finally`` blocks in the middle of something else. Nothing that they start runs.
        """
        if self._closed or self._running:
            return
        self._closed = True
        self._runnable.clear()
        self._timers.clear()
        # It may be closed by code of another loop, which goes on afterwards.
        outer = replace_running_loop(self)
        try:
            while self._tasks:
                task = self._tasks.pop()
                if not task.done():
                    end_coroutine(task.get_coro())
        finally:
            restore_running_loop(outer)
        self._runnable.clear()
        self._timers.clear()

    def dump(self) -> str:
        """Who waits where: one line for each unfinished task."""
        lines: list[str] = []
        for task in self._tasks:
            if not task.done():
                frames = task.get_stack(limit=1)
                where = f"{frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else "?"
                lines.append(f"  {task.get_name()} at {where}")
        return "\n".join(lines) or "  no unfinished task"

    # What else asyncio asks of a loop.

    def _stop_after(self, _: asyncio.Future[Any]) -> None:
        self._stopping = True

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._closed:
            self.create_task(generator.aclose(), name="aclose")

    async def shutdown_asyncgens(self) -> None:
        """Nothing to do: generators are finished when they are dropped."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Nothing to do: there is no executor."""

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # noqa: ARG002
        """Refused: a thread would not run on virtual time."""
        raise RuntimeError("a simulation has no threads: call the function directly")

    def get_debug(self) -> bool:
        """Always false: debug mode reads the real clock."""
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001
        """Ignored."""

    def get_task_factory(self) -> Any:
        """The factory that was set, or ``None``."""
        return self._factory

    def set_task_factory(self, factory: Any) -> None:
        """Let ``factory`` make tasks."""
        self._factory = factory

    def set_exception_handler(self, handler: Any) -> None:
        """Give unhandled errors to ``handler`` instead of ``unhandled``."""
        self._handler = handler

    def get_exception_handler(self) -> Any:
        """The handler that was set, or ``None``."""
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep the error in ``unhandled``, for the simulation to raise."""
        self.unhandled.append(context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error nobody caught. After ``close`` there is nobody left to tell."""
        if self._closed:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)
