"""The running event loop of a thread, and how another loop takes its place for a while.

The one module that uses names of Python which begin with an underscore. Flow code and simulations
run on event loops of their own inside a callback of the outer loop; asyncio offers no public way to
put one loop in the place of another. From Python 3.14 on a thread has one current task, whatever
loop it belongs to, so that the outer task is left as well; before that the outer task need not be
touched.
"""

from __future__ import annotations

# pyright: reportPrivateUsage=false
# ruff: noqa: SLF001
import asyncio
import asyncio.tasks
import sys
import traceback
from typing import Any

running_loop = asyncio._get_running_loop
set_running_loop = asyncio._set_running_loop
enter_task = asyncio.tasks._enter_task
leave_task = asyncio.tasks._leave_task

Outer = tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]
"""The loop that ran before, and its task if that was left."""


if sys.version_info >= (3, 14):

    def replace_running_loop(loop: asyncio.AbstractEventLoop) -> Outer:
        """Make ``loop`` the running one; ``restore_running_loop`` takes the result back."""
        outer = running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        if task is not None:
            leave_task(outer, task)  # pyright: ignore[reportArgumentType]
        set_running_loop(loop)
        return outer, task

else:

    def replace_running_loop(loop: asyncio.AbstractEventLoop) -> Outer:
        """Make ``loop`` the running one; ``restore_running_loop`` takes the result back."""
        outer = running_loop()
        set_running_loop(loop)
        return outer, None


def restore_running_loop(outer: Outer) -> None:
    """Make the loop that ran before the running one again, in its task."""
    loop, task = outer
    set_running_loop(loop)
    if task is not None:
        enter_task(loop, task)  # pyright: ignore[reportArgumentType]


def stack_of(thread_id: int) -> str:
    """Where a thread is right now, as text: what blocks a loop that does not answer."""
    frame = sys._current_frames().get(thread_id)
    return "(no such thread)" if frame is None else "".join(traceback.format_stack(frame))
