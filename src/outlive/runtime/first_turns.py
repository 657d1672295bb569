"""The first turn of a new task, given to it at once where nobody else is ready to run.

asyncio begins a task in the next turn of its loop, so that those who are ready run before it. Where
there are none, that turn is nobody's and costs as much as a short step. Owns what this takes of
asyncio's inner parts. It must never let a task pass anybody who was ready before it, nor begin one
while another that was begun here is in its first turn: code that goes on and on would nest.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import sys
from asyncio.tasks import _enter_task as enter_task  # pyright: ignore[reportPrivateUsage]
from asyncio.tasks import _leave_task as leave_task  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

# Every step asks, and before Python 3.12 ``current_task`` is a function of Python.
_known: Any = getattr(asyncio.tasks, "_current_tasks", None)
current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None] = (
    asyncio.current_task if sys.version_info >= (3, 12) else _known.get
)


class _Ready(Protocol):
    """Those who want to run in the next turn of a loop."""

    def __len__(self) -> int: ...

    def popleft(self) -> Any: ...


class FirstTurns:
    """Begins tasks of one event loop in the turn in which they are made.

    Ask whether one ``may_begin``, make the task, and ``give`` it the turn; nothing in between. What
    other threads and signal handlers make ready meanwhile comes first, as it would have.
    """

    __slots__ = ("_giving", "_ready", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        # What wants to run in the next turn, as asyncio keeps it; other loops do not say.
        self._ready: _Ready | None = getattr(loop, "_ready", None)
        self._giving = False

    def may_begin(self) -> bool:
        """Whether a task that is made now would be the only one who wants to run.

        One that asyncio itself makes: whoever has a factory of tasks is left to it.
        """
        if self._giving or self._ready is None or self._ready:
            return False
        # What its code raises would be taken for raised while that was handled, and say so.
        if sys.exception() is not None:
            return False
        # Whoever makes the tasks otherwise begins them otherwise.
        return self.loop.get_task_factory() is None

    def give(self) -> None:
        """Run the task that was just made to its first wait, as itself, and come back.

        Where somebody else has come to be ready since, it begins behind him, by the loop. What ends
        a whole program is raised by the loop in its next turn, as it would have been.
        """
        assert self._ready is not None
        if len(self._ready) != 1:
            return
        # The one that was seen: nobody else takes from there, and what is added stands behind it.
        handle = self._ready.popleft()
        asking = current_task(self.loop)
        if asking is not None:
            leave_task(self.loop, asking)
        self._giving = True
        try:
            handle._run()  # noqa: SLF001 - as its loop does
        except (KeyboardInterrupt, SystemExit) as error:
            self.loop.call_soon(_raise, error)
        finally:
            self._giving = False
            if asking is not None:
                enter_task(self.loop, asking)


def _raise(error: BaseException) -> NoReturn:
    raise error
