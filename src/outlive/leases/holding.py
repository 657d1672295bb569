"""Holding: a block of code that runs only while its leases are owned.

When one is lost the task inside the block is cancelled, and the cancellation leaves the block as
``LeaseLost``. The leases are released at the end, whatever the end.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, cast

from outlive.errors import LeaseLost, UsageError
from outlive.leases.lease import Lease
from outlive.leases.ownership import Ownership
from outlive.runtime.entering import AwaitedBlock

T = TypeVar("T", Lease, list[Lease])
R = TypeVar("R")
P = ParamSpec("P")


class Acquiring(Coroutine[Any, Any, R]):
    """A coroutine that is no block, and says to ``async with`` what to write."""

    __slots__ = ("inner",)
    inner: Coroutine[Any, Any, R]

    def __await__(self) -> Generator[Any, Any, R]:
        return self.inner.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as in any coroutine: a task may run it."""
        return self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        """Go on with an error, as in any coroutine."""
        return self.inner.throw(*error)

    def close(self) -> None:
        """End it, as any coroutine."""
        self.inner.close()

    if not TYPE_CHECKING:

        async def __aenter__(self) -> NoReturn:
            self.close()
            raise TypeError(
                "write `async with host.leases.hold(…) as lease` (or hold_all); or `async with "
                "await host.leases.acquire(…) as lease` where a loss need not cancel the block"
            )

        async def __aexit__(self, *_: object) -> None:
            """Never reached; without it Python would not ask ``__aenter__``."""


def acquiring(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Acquiring[R]]:
    """Let ``function`` say what to write to code that enters its result as a block."""

    @functools.wraps(function)
    def make(*args: P.args, **kwargs: P.kwargs) -> Acquiring[R]:
        # Without a constructor: one call less on the way of every grant.
        made = cast("Acquiring[R]", object.__new__(Acquiring))
        made.inner = function(*args, **kwargs)
        return made

    return make


class Hold(AwaitedBlock, Generic[T]):
    """``async with leases.hold(…) as lease``. Used once."""

    __slots__ = (
        "_acquire",
        "_block",
        "_cancelling",
        "_leases",
        "_loop",
        "_lost",
        "_ownership",
        "_task",
        "_timer",
    )

    block = "host.leases.hold(…)"

    def __init__(self, acquire: Callable[[], Awaitable[T]], ownership: Ownership) -> None:
        self._acquire: Callable[[], Awaitable[T]] | None = acquire
        self._ownership = ownership
        self._leases: Sequence[Lease] = ()
        self._lost: LeaseLost | None = None
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelling = 0

    async def __aenter__(self) -> T:
        acquire, self._acquire = self._acquire, None
        if acquire is None:
            raise UsageError("a hold can be entered only once; call hold() again for another block")
        task = asyncio.current_task()
        if task is None:
            raise UsageError("hold() needs a task: run it with asyncio.run() or create_task()")
        self._loop = asyncio.get_running_loop()
        result = await acquire()
        self._leases = result if isinstance(result, list) else [result]
        lost = self._find_lost()
        if lost is not None:
            # Lost while the others were waited for: the block must not begin.
            await self._release()
            raise lost
        self._task = task
        self._cancelling = task.cancelling()
        self._block = self._loop.create_future()
        for lease in self._leases:
            lease.tenure.lost_callbacks = [self._on_lost]
            lease.tenure.block = self._block
        self._watch()
        return result

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if self._timer is not None:
            self._timer.cancel()
        if not self._block.done():
            self._block.set_result(None)
        try:
            await self._release()
        finally:
            # Our cancellation ends here; one that came from outside goes on.
            outside = (
                self._lost is not None and task is not None and task.uncancel() > self._cancelling
            )
        lost = self._lost or self._find_lost()
        if self._lost is not None and exc_type is asyncio.CancelledError and not outside:
            raise self._lost from exc
        if lost is not None and exc is None:
            raise lost

    def _find_lost(self) -> LeaseLost | None:
        for lease in self._leases:
            if not lease.is_held and lease.tenure.error is not None:
                return lease.tenure.error
        return None

    async def _release(self) -> None:
        """Give all of them back. What cannot be delivered now goes on by itself."""
        pending = list(self._leases)
        try:
            while pending:
                await self._ownership.release_or_later(pending[-1].tenure)
                pending.pop()
        finally:
            for lease in pending:
                self._ownership.later(self._ownership.release_or_later(lease.tenure))
            for lease in self._leases:
                # Without these the handle could be dropped, and noticed, like any other.
                lease.tenure.lost_callbacks = None

    def _watch(self) -> None:
        """Look again at the earliest deadline, on this very loop.

        After the process was stopped and continued, this timer is overdue and fires in the first
        turn of the loop, before the block's own next step on most paths.
        """
        clock = self._ownership.runtime.clock
        deadlines = [lease.tenure.deadline for lease in self._leases if lease.is_held]
        if not deadlines:
            return
        earliest = min(deadlines)
        left_s = max(0.0, earliest - clock.monotonic())
        self._timer = self._loop.call_later(left_s + 1e-3, self._look)

    def _look(self) -> None:
        # Asking marks a passed deadline as lost. The keeper may have been first, and its message
        # may still be on the way: the block is cancelled now, in this very turn.
        lost = self._find_lost()
        if lost is not None:
            self._on_lost(lost)
        else:
            self._watch()

    def _on_lost(self, error: LeaseLost) -> None:
        if self._task is not None and self._lost is None:
            self._lost = error
            self._task.cancel(str(error))
