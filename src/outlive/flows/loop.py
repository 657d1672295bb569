"""The event loop that flow code runs on: deterministic, and without anything of the outside world.

Owns the order of callbacks and the timers that flow code sets. Fed the same things in the same
order, the same code does the same, on any host and in any release: that is what replay stands on.
Time moves only by what is fed. It must never ask a clock, open a socket or start a thread.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Context
from sys import get_asyncgen_hooks, set_asyncgen_hooks
from typing import TYPE_CHECKING, Any

from outlive.errors import Evicted, UsageError
from outlive.flows.numbered import (
    Callback,
    NumberedFuture,
    NumberedTask,
    Timer,
    end_coroutine,
)
from outlive.flows.refusals import refuse_unordered, without_the_outside
from outlive.runtime.running_loop import (
    enter_task,
    leave_task,
    replace_running_loop,
    restore_running_loop,
)

# One activation of a flow runs from one thing that happened to the next wait. A fan-out over ten
# thousand steps is about a hundred thousand callbacks; ten times that is a loop without an await.
CALLBACKS_MAX = 1_000_000

# A coroutine that is dropped hears ``Evicted`` at each thing it asks for. Clean-up asks for a few;
# code that has swallowed it so often would go on for ever, as nothing it awaits makes it wait.
_EVICTIONS_MAX = 100

# The end of the year 9999: to sleep for ever is to sleep until then. What is later is no instant
# that a store or a ``datetime`` could say.
LATEST = 253_402_300_799.0

ErrorHandler = Callable[[dict[str, Any]], None]


def _leave(generator: object) -> None:
    """Let an async generator that flow code left in the middle be freed as it is.

    The loop of the host would run its ``finally`` outside of the flow, where calling a step is a
    plain call. Python keeps this with each generator from its first iteration on.
    """


@without_the_outside
class FlowLoop(asyncio.AbstractEventLoop):
    """One flow's event loop. ``now`` is the time of what was fed last, in seconds since 1970.

    ``first`` is where numbers begin. asyncio keeps the tasks of all loops in one set: with numbers
    of their own, those of many flows do not collide there.
    """

    # For whoever must not be asked by flow code; see ``runtime.outside``.
    of_a_flow = True

    def __init__(self, now: float, on_error: ErrorHandler, *, first: int = 0) -> None:
        self._now = now
        self._on_error = on_error
        self._ready: deque[asyncio.Handle] = deque()
        self._numbers = first
        self.owner: Any = None
        # Tasks that have not ended. Held here, because asyncio itself keeps them weakly.
        self.living: dict[int, NumberedTask[Any]] = {}
        # Of these, those that go on when the others are cancelled, as the flow ends; and those that
        # they made, each with the one that it is protected for.
        self._protected: dict[int, int] = {}
        # Those that ``cancel_tasks`` has cancelled, and what these have made since.
        self._cancelled: set[int] = set()
        self._timers: dict[int, Timer] = {}
        # Timers set and cancelled since ``take_timers`` was asked last.
        self.armed: list[Timer] = []
        self.disarmed: list[int] = []
        # Whether its code runs now.
        self._running = False
        self._closed = False
        # Whether the code only looks: whatever would change the run is refused.
        self._looking = False
        # One of both, closed or only looking: asked for at each callback and each call.
        self.shut = False
        # Whether code that was only to look has woken other code, which was then not let run.
        self.disturbed = False
        self._evictions = 0
        # Tasks that did not end when the flow was dropped.
        self.left_behind = 0

    # -- fed from outside -------------------------------------------------------------------------

    def run(self, now: float | None = None) -> None:
        """Run what is ready until nothing is; time moves to ``now`` first, never back.

        Raises:
            UsageError: The code spins without waiting for anything.
        """
        if now is not None and now > self._now:
            self._now = now
        if not self._ready:
            return
        ready, left = self._ready, CALLBACKS_MAX
        # As the context manager below does it, which would cost a tenth of a step.
        outer, hooks = replace_running_loop(self), get_asyncgen_hooks()
        set_asyncgen_hooks(None, _leave)
        self._running = True
        try:
            while ready:
                handle = ready.popleft()
                # Not by its methods: this is the hottest loop there is.
                if not handle._cancelled:  # noqa: SLF001
                    try:
                        handle._context.run(handle._callback, *handle._args)  # noqa: SLF001
                    except (SystemExit, KeyboardInterrupt):
                        # The task has it as its exception. Beyond that it would end the host, and
                        # every other that takes the flow over.
                        pass
                    except BaseException as error:  # noqa: BLE001 - as asyncio does it
                        self._failed(handle, error)
                left -= 1
                if left == 0:
                    raise UsageError(
                        f"the flow ran {CALLBACKS_MAX} callbacks without waiting: look for a "
                        "loop that never awaits a step, a timer or a signal"
                    )
        finally:
            # From Python 3.13 on the traceback of a task's error refers to this frame: by its last
            # callback a cancelled task would refer to itself.
            handle = None
            self._running = False
            set_asyncgen_hooks(*hooks)
            restore_running_loop(outer)

    def _failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        """A callback raised, which is no task and has nobody else to tell."""
        message = f"Exception in callback {handle!r}"
        self._on_error({"message": message, "exception": error, "handle": handle})

    def fire(self, number: int, now: float) -> None:
        """A timer came due: let its callback be ready. One that was cancelled changes nothing."""
        self._now = max(self._now, now)
        timer = self._timers.pop(number, None)
        if timer is not None:
            self._ready.append(timer)

    def take_timers(self) -> tuple[list[tuple[int, float]], list[int]]:
        """Timers set (number and due time) and timers cancelled since this was last asked.

        One that was set and cancelled in between is in neither.
        """
        if not self.armed and not self.disarmed:
            return [], []
        armed = [timer for timer in self.armed if not timer.cancelled()]
        disarmed = self.disarmed
        self.armed, self.disarmed = [], []
        for timer in armed:
            timer.told = True
        return [(timer.number, timer.when()) for timer in armed], disarmed

    @property
    def idle(self) -> bool:
        """Whether nothing is ready to run."""
        return not self._ready

    def close(self) -> None:
        """Drop the flow's coroutines, the newest first. Repeatable.

        Their ``finally`` blocks run, but nothing they ask of this loop does anything any more.
        """
        if self._closed:
            return
        self._closed = self.shut = True
        self._ready.clear()
        self._timers.clear()
        if self.living:
            self._end_tasks()

    def _end_tasks(self) -> None:
        with self.being_the_running_loop():
            while self.living:
                _, task = self.living.popitem()
                task.forget()
                self._evictions = 0
                # asyncio's timeouts and groups ask which task they are in, and raise without one.
                enter_task(self, task)
                try:
                    if not end_coroutine(task.get_coro()):
                        self.left_behind += 1
                finally:
                    leave_task(self, task)

    def evict(self) -> None:
        """Tell code that is being dropped, at whatever it asks for; too often, say nothing.

        It then comes to an await that waits, where it can be left.

        Raises:
            Evicted: It is being dropped.
        """
        self._evictions += 1
        if self._evictions <= _EVICTIONS_MAX:
            raise Evicted

    def protect(self, task: asyncio.Task[Any]) -> None:
        """Let a task go on to its end when ``cancel_tasks`` ends the others.

        So does what it makes, until it has ended itself.
        """
        assert isinstance(task, NumberedTask)
        self._protected[task.number] = task.number
        # What it leaves behind is not the clean-up of who made it.
        self._cancelled.discard(task.number)

    @property
    def timing(self) -> bool:
        """Whether a timer is set."""
        return bool(self._timers)

    @property
    def protecting(self) -> bool:
        """Whether one of those has not ended."""
        return any(number in self.living for number in self._protected.values())

    def cancel_tasks(self) -> None:
        """Cancel the tasks that have not ended, in order of creation, each of them once.

        What one of them makes then, to clean up, is not cancelled.
        """
        for number, task in list(self.living.items()):
            if number in self._cancelled:
                continue
            if self._protected.get(number) not in self.living:
                self._cancelled.add(number)
                task.cancel()

    def cancel_all(self) -> None:
        """Cancel all tasks that have not ended, whatever was done to them before."""
        for task in list(self.living.values()):
            task.cancel()

    @contextmanager
    def being_the_running_loop(self) -> Generator[None, None, None]:
        """Let flow code run inside the block; whatever loop ran before runs again behind it."""
        outer, hooks = replace_running_loop(self), get_asyncgen_hooks()
        set_asyncgen_hooks(None, _leave)
        self._running = True
        try:
            yield
        finally:
            self._running = False
            set_asyncgen_hooks(*hooks)
            restore_running_loop(outer)

    @contextmanager
    def only_looking(self) -> Generator[None, None, None]:
        """The same for code that must not change the run: no callback, task or timer is taken."""
        numbers = self._numbers
        self._looking = self.shut = True
        try:
            with self.being_the_running_loop():
                yield
        finally:
            self._looking, self.shut = False, self._closed
            # Order in sets follows the numbers: those of futures that it made must not count.
            self._numbers = numbers

    @property
    def looking(self) -> bool:
        """Whether the code that runs now only looks."""
        return self._looking

    def check_changing(self, what: str) -> None:
        """Refuse what changes the run, if the code only looks.

        Raises:
            UsageError: It does.
        """
        if self._looking:
            raise UsageError(f"a query or a validator is read-only: it cannot {what}")

    # -- what asyncio asks ------------------------------------------------------------------------

    def time(self) -> float:
        """The flow's time."""
        return self._now

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run ``callback`` after what is ready already."""
        handle = Callback(callback, args, self, context)
        if not self.shut:
            self._ready.append(handle)
        elif self._looking:
            # A future was given its result, or a task was cancelled, before this was asked for.
            self.disturbed = True
            self.check_changing("wake waiting flow code")
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a durable timer ``delay`` seconds from now."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a durable timer; one that is due already is run without."""
        if math.isnan(when):
            raise UsageError("the time of a timer must be a number of seconds, not NaN")
        self.check_changing("set a timer")
        when = min(when, LATEST)
        timer = Timer(self.next_number(), when, callback, args, self, context)
        if self._closed:
            return timer
        if when <= self._now:
            self._ready.append(timer)
        else:
            timer.arm()
            self._timers[timer.number] = timer
            self.armed.append(timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        assert isinstance(handle, Timer)
        self.check_changing("cancel a timer")
        if self._timers.pop(handle.number, None) is not None and handle.told:
            self.disarmed.append(handle.number)

    def create_future(self) -> asyncio.Future[Any]:
        """A future that is hashed by its number."""
        return NumberedFuture(self.next_number(), loop=self)

    def create_task(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """A task that is hashed by its number; anything that can be awaited will do."""
        if self._looking:
            if asyncio.iscoroutine(coro):
                coro.close()
            self.check_changing("make a task")
        if asyncio.iscoroutine(coro):
            refuse_unordered()
            coroutine = coro
        else:
            coroutine = _await(coro)
        return self.begin(coroutine, name, context)

    def begin(
        self, coroutine: Any, name: str | None, context: Context | None, *, main: bool = False
    ) -> asyncio.Task[Any]:
        """A task for a coroutine, whoever asks for it.

        Of the end of the ``main`` one the loop hears by ``forget``: a callback would be felt by
        short flows.
        """
        number = self.next_number()
        task: NumberedTask[Any] = NumberedTask(
            number, coroutine, loop=self, name=name or f"task-{number}", context=context
        )
        if self._closed:
            # Asked for while the flow was being dropped: it never begins.
            coroutine.close()
            task.forget()
        else:
            self.living[number] = task
            if not main:
                task.add_done_callback(self.forget)
            if self._protected or self._cancelled:
                self._inherit(asyncio.current_task(self), number)
        return task

    def _inherit(self, maker: asyncio.Task[Any] | None, number: int) -> None:
        """Let a new task be cancelled when its maker would be."""
        if not isinstance(maker, NumberedTask):
            return
        root = self._protected.get(maker.number)
        if root in self.living:
            self._protected[number] = root
        elif maker.number in self._cancelled:
            self._cancelled.add(number)

    def forget(self, task: asyncio.Task[Any]) -> None:
        """A task has ended."""
        assert isinstance(task, NumberedTask)
        self.living.pop(task.number, None)

    def next_number(self) -> int:
        """The number of what is created now."""
        self._numbers += 1
        return self._numbers

    @property
    def last_number(self) -> int:
        """The number of what was created last."""
        return self._numbers

    def is_running(self) -> bool:
        """Whether flow code runs now."""
        return self._running

    def is_closed(self) -> bool:
        """Whether the flow was dropped."""
        return self._closed

    if TYPE_CHECKING:

        def get_debug(self) -> bool:
            """Never: it would change what is run."""
            ...

    else:
        # Every future asks: ``bool()`` is False, without a frame of Python.
        get_debug = staticmethod(bool)

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - as asyncio has it
        """Change nothing."""

    def get_task_factory(self) -> None:
        """None."""
        return

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Tell an error that no task of the flow observed."""
        self._on_error(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """The same."""
        self._on_error(context)


async def _await(awaitable: Any) -> Any:
    return await awaitable
