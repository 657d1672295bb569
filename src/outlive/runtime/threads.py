"""Calls in the threads of a pool, of which it is certain whether they are made.

Python's pool keeps a call that it could not start a thread for, raises, and lets the next thread
that is free make it all the same: whoever takes the error for an answer would see it made later.
A ``StopIteration`` cannot be told to a task that waits, which would then wait for ever: here it is
the ``RuntimeError`` that it is in a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


def call_in(pool: Executor, function: Callable[[], Any]) -> Future[Any]:
    """Make a call in a thread of ``pool``. A pool that drops it cancels what is returned.

    Raises:
        RuntimeError: No thread is to be had, or the pool is closed: the call is not made, and
            will not be.
    """
    made: Future[Any] = Future()

    def call() -> None:
        if not made.set_running_or_notify_cancel():
            return
        try:
            result = function()
        except StopIteration as error:
            stopped = RuntimeError("the function raised StopIteration")
            stopped.__cause__ = error
            made.set_exception(stopped)
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            made.set_exception(error)
        else:
            made.set_result(result)

    def dropped(queued: Future[None]) -> None:
        if queued.cancelled():
            made.cancel()

    try:
        pool.submit(call).add_done_callback(dropped)
    except RuntimeError:
        # Unless a thread has it already: then its end is heard of as any other.
        if made.cancel():
            raise
    return made


async def awaited_in(pool: Executor, function: Callable[[], Any]) -> Any:
    """Make a call in a thread of ``pool``, and wait for what it returns; raises as ``call_in``."""
    return await asyncio.wrap_future(call_in(pool, function))
