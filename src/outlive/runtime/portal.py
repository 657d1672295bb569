"""The portal: one event loop on one thread, entered from other threads.

Owns the thread behind the blocking façade, and who is asking through it. Must never be entered
from its own thread, which would wait for itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any, TypeVar

from outlive.errors import UsageError
from outlive.process import current
from outlive.runtime.outside import check_outside

T = TypeVar("T")

# Who asks: through the portal every call is a task of its own, and the thread is who stands behind
# them. Empty outside of it.
calling_thread: ContextVar[object] = ContextVar("outlive_calling_thread", default=None)


class Portal:
    """One event loop on one thread."""

    def __init__(self) -> None:
        self._pid = current.pid
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="outlive-blocking", daemon=True)
        self._thread.start()

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` on the portal's loop and wait for it; Ctrl-C cancels it first."""
        try:
            check_outside("a connection")
        except UsageError:
            coroutine.close()
            raise
        if current.pid != self._pid:
            coroutine.close()
            raise UsageError("this connection was opened before a fork; connect again in the child")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(
                "an event handler runs on the thread of outlive.blocking and must not call it"
            )
        if self._loop.is_closed():
            coroutine.close()
            raise UsageError("this connection is closed; connect again")
        # The task that runs it is born with the context of this thread, and so knows who asks.
        reset = calling_thread.set(threading.current_thread())
        try:
            future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        finally:
            calling_thread.reset(reset)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def closed(self) -> bool:
        """Whether the loop has ended, or belongs to the process that forked."""
        return self._loop.is_closed() or current.pid != self._pid

    def stop(self) -> None:
        """End the loop and its thread. Repeatable."""
        if current.pid == self._pid and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()
