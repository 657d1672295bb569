"""Tasks, futures and timers that are known by their number, and sorted by it in every set.

asyncio keeps tasks in sets, whose order follows the hash, which is the address by default: another
one in every process. Numbered in order of creation, the order is the same in every run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")

# A coroutine that goes on awaiting while it is being closed is left to itself after so many times.
_CLOSE_ATTEMPTS_MAX = 50


class NumberedTask(asyncio.Task[T]):
    """A task of a flow."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, T], **kwargs: Any) -> None:
        # Before asyncio sees it: it hashes the task at once.
        self.number = number
        super().__init__(coro, **kwargs)

    def __hash__(self) -> int:
        return self.number

    def forget(self) -> None:
        """Say nothing when it is collected unfinished: it was dropped on purpose."""
        self._log_destroy_pending = False


class NumberedFuture(asyncio.Future[T]):
    """A future of a flow."""

    def __init__(self, number: int, **kwargs: Any) -> None:
        self.number = number
        super().__init__(**kwargs)

    def __hash__(self) -> int:
        return self.number


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


def end_coroutine(coroutine: Any) -> None:
    """Close ``coroutine``, whatever its clean-up tries on the way."""
    for _ in range(_CLOSE_ATTEMPTS_MAX):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001, S112
            # It awaited in a finally block, or its clean-up needs a loop that runs: again from
            # where it stands now.
            continue
        return
