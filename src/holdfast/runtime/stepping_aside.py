"""Stepping aside: the running event loop of a thread makes room for another one, inside of a turn.

Owns what this takes of asyncio's inner parts. Whoever runs steps out of his task as well: from
Python 3.14 on a thread has one task at a time, whatever loop it is of, and before that one for each
loop.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import sys
from asyncio import _get_running_loop as get_running_loop  # pyright: ignore[reportPrivateUsage]
from asyncio import _set_running_loop as set_running_loop  # pyright: ignore[reportPrivateUsage]
from asyncio.tasks import _enter_task as enter_task  # pyright: ignore[reportPrivateUsage]
from asyncio.tasks import _leave_task as leave_task  # pyright: ignore[reportPrivateUsage]
from collections.abc import Callable
from typing import Any

# Flow code is entered twice for a short flow, and before Python 3.12 ``current_task`` is a function
# that asks for the running loop as well.
_known: Any = getattr(asyncio.tasks, "_current_tasks", None)
current_task: Callable[[asyncio.AbstractEventLoop], asyncio.Task[Any] | None] = (
    asyncio.current_task if sys.version_info >= (3, 12) else _known.get
)

Aside = tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]
"""The loop that ran, and its task."""


def step_aside(loop: asyncio.AbstractEventLoop) -> Aside:
    """Let ``loop`` be the running one; who ran before comes back by ``step_back``."""
    outer = get_running_loop()
    task = None if outer is None else current_task(outer)
    if task is not None:
        leave_task(outer, task)  # pyright: ignore[reportArgumentType]
    set_running_loop(loop)
    return outer, task


def step_back(aside: Aside) -> None:
    """Let whoever stepped aside run again, in his task."""
    outer, task = aside
    set_running_loop(outer)
    if task is not None:
        enter_task(outer, task)  # pyright: ignore[reportArgumentType]
