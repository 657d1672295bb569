"""Tasks, futures and timers that are known by their number, and sorted by it in every set.

asyncio keeps tasks in sets, whose order follows the hash, which is the address by default: another
one in every process. Numbered in order of creation, the order is the same in every run.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from types import CoroutineType, GeneratorType
from typing import Any, TypeVar, cast

T = TypeVar("T")


def _check_changing(future: asyncio.Future[Any], what: str) -> None:
    # Loops that are not those of flows number their tasks as well, and have nobody who only looks.
    check = getattr(future.get_loop(), "check_changing", None)
    if check is not None:
        check(what)


class _Every:
    """Equal to every callback: all of a future are removed at once, not one by one."""

    __hash__ = object.__hash__

    def __call__(self, future: asyncio.Future[Any]) -> None:
        """Nothing: it is never called."""

    def __eq__(self, other: object) -> bool:
        return True


_EVERY = _Every()


def _nothing(future: Any, waiter: Any) -> None:
    """Before Python 3.14 futures do not know who awaits them."""


_not_awaited_by = getattr(asyncio, "future_discard_from_awaited_by", _nothing)


class _Asks:
    """Finds out whether there is any callback: each is compared with it, and is another one."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found = False

    def __eq__(self, other: object) -> bool:
        self.found = True
        return False

    __hash__ = None  # type: ignore[assignment]


def is_awaited(future: asyncio.Future[Any]) -> bool:
    """Whether anybody waits for its end now."""
    asks: Any = _Asks()
    future.remove_done_callback(asks)
    return asks.found


# A coroutine that goes on awaiting while it is being closed is left to itself after so many times.
_CLOSE_ATTEMPTS_MAX = 50

# Coroutines inside of coroutines, each closed by itself: where there are more, the code makes a new
# one whenever one is closed.
_AWAITING_MAX = 1_000


class NumberedTask(asyncio.Task[T]):
    """A task of a flow."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, T], **kwargs: Any) -> None:
        # Before asyncio sees it: it hashes the task at once.
        self.number = number
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it, unless the code only looks."""
        _check_changing(self, "cancel a task")
        return super().cancel(msg)

    def forget(self) -> None:
        """Say nothing when it is collected unfinished: it was dropped on purpose.

        Nor is it woken any more: it and what it waits for would keep each other.
        """
        self._log_destroy_pending = False
        # asyncio has no word for what it waits for; without it, both are only freed later.
        awaited: Any = getattr(self, "_fut_waiter", None)
        if isinstance(awaited, asyncio.Future):
            cast("asyncio.Future[Any]", awaited).remove_done_callback(_EVERY)
            _not_awaited_by(awaited, self)


# As it is, without what ``super`` costs: each call of a step makes a future.
init_future = cast("Callable[..., None]", asyncio.Future[Any].__init__)


class NumberedFuture(asyncio.Future[T]):
    """A future of a flow."""

    # Not in the dictionary that asyncio's futures have, which is slow to look into.
    __slots__ = ("number",)

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        init_future(self, loop=loop)

    def __hash__(self) -> int:
        return self.number

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it, unless the code only looks."""
        _check_changing(self, "cancel a call")
        return super().cancel(msg)


class Callback(asyncio.Handle):
    """A callback that is ready to run. Loops of flows have no debug mode, which costs a third."""

    __slots__ = ()

    def __init__(
        self,
        callback: Any,
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = copy_context() if context is None else context
        self._cancelled = False
        self._repr = self._source_traceback = None


class Timer(asyncio.TimerHandle):
    """A timer of a flow, which outlives the process once it is committed."""

    __slots__ = ("number", "told")

    def __init__(
        self,
        number: int,
        when: float,
        callback: Any,
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self.number = number
        # Whether somebody outside the loop knows of it.
        self.told = False
        super().__init__(when, callback, args, loop, context)

    def __hash__(self) -> int:
        return self.number

    def arm(self) -> None:
        """Let a cancellation be told to the loop."""
        self._scheduled = True


def end_coroutine(coroutine: Any) -> bool:
    """Close ``coroutine``, whatever its clean-up tries on the way; False if some of it goes on."""
    awaiting = [coroutine]
    ended = True
    # The innermost hears of it first. One that goes on awaiting ends those around it, by the error
    # that this is, and is closed by itself then.
    for each in awaiting:
        if not _end_one(each, awaiting):
            ended = False
            # Kept for as long as the process lives. Freed, Python would close it once more where no
            # loop runs: all that it awaits raises at once, and code that swallows it never ends.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    return ended


def _end_one(coroutine: Any, awaiting: list[Any]) -> bool:
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        _follow(coroutine, awaiting)
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001
            # It awaited in a finally block, or its clean-up needs a loop that runs: again from
            # where it stands now.
            if len(awaiting) > _AWAITING_MAX:
                return False
        else:
            return True
    return False


def _follow(coroutine: Any, awaiting: list[Any]) -> None:
    """Add the coroutines that ``coroutine`` awaits now: while they are held, none is freed."""
    while True:
        inner: Any = getattr(coroutine, "cr_await", None) or getattr(
            coroutine, "gi_yieldfrom", None
        )
        if type(inner) not in (CoroutineType, GeneratorType):
            return
        coroutine = inner
        if all(coroutine is not each for each in awaiting):
            awaiting.append(coroutine)
