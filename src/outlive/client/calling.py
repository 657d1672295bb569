"""Calling the function of a worker: an async one where the loop is, a plain one in a thread.

Owns the threads, and what a function can know of its own end. A thread cannot be interrupted: it is
told, and whoever told it waits for as long as it likes. Must never say anything to a server.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, cast

from outlive.errors import UsageError
from outlive.runtime.runtime import Runtime
from outlive.runtime.threads import call_in

# Threads of one worker; more of them fight for the interpreter.
_THREADS_MAX = 256


class Order:
    """Whether one call should stop, and what is then to become of what it returns."""

    __slots__ = ("dropped", "given", "in_thread")

    def __init__(self) -> None:
        self.given = False
        # Whether what a thread returns counts no more: it may have returned because it was told.
        self.dropped = False
        # Whether a thread runs it, which can only be waited for.
        self.in_thread = False


_order: ContextVar[Order | None] = ContextVar("outlive_client_order", default=None)


def cancelled() -> bool:
    """Whether the function of a worker that this code runs for should stop; false outside of one.

    For plain functions, which nothing can interrupt: look here now and then, and return. True once
    the item is to be cancelled, its claim is lost, or the worker has stopped and ``grace`` is over.
    """
    order = _order.get()
    return order is not None and order.given


class Calls:
    """Calls ``function``, at most ``most`` times at once.

    Raises:
        UsageError: It is no function.
    """

    def __init__(self, function: Callable[[Any], Any], runtime: Runtime, *, most: int) -> None:
        if not callable(function):
            raise UsageError(f"a worker needs a function that takes an item, not {function!r}")
        self._function = function
        self._pool = None
        if not _is_async(function):
            self._pool = runtime.start_pool(min(most, _THREADS_MAX), name="outlive-client")

    async def call(self, item: object, order: Order, check: Callable[[], None]) -> Any:
        """What the function returns or raises.

        ``check`` is asked in the iteration of the loop, or in the thread, in which the function
        begins; what it raises, the function would have raised.

        Raises:
            CancelledError: The call was cancelled; or it ran in a thread, and was to be dropped.
        """
        _order.set(order)

        def begin() -> Any:
            check()
            return self._function(item)

        if self._pool is None:
            return await begin()
        order.in_thread = True
        made = call_in(self._pool, partial(copy_context().run, begin))
        try:
            result = await asyncio.wrap_future(made)
        except BaseException:
            if order.dropped:
                raise asyncio.CancelledError from None
            raise
        finally:
            order.in_thread = False
        if order.dropped:
            raise asyncio.CancelledError
        # A plain function that only makes a coroutine: a lambda around an async one.
        return await result if inspect.isawaitable(result) else result

    def close(self) -> None:
        """Call nothing more. Threads that go on are not waited for. Repeatable."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _is_async(function: Callable[..., Any]) -> bool:
    called = cast("Any", getattr(type(function), "__call__", None))  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
