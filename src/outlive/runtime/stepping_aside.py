"""Stepping aside: the running event loop of a thread makes room for another one, inside of a turn.

Owns what this takes of asyncio's inner parts. From Python 3.14 on a thread has one task at a time,
whatever loop it is of, so that whoever runs steps out of his task as well. Before that it has one
for each loop, and the outer one need not be touched: flow code is entered at every step.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import _get_running_loop as get_running_loop  # pyright: ignore[reportPrivateUsage]
from asyncio import _set_running_loop as set_running_loop  # pyright: ignore[reportPrivateUsage]
from asyncio.tasks import _enter_task as enter_task  # pyright: ignore[reportPrivateUsage]
from asyncio.tasks import _leave_task as leave_task  # pyright: ignore[reportPrivateUsage]
from typing import Any

Aside = tuple[asyncio.AbstractEventLoop | None, asyncio.Task[Any] | None]
"""The loop that ran, and its task where that was left."""


if sys.version_info >= (3, 14):

    def step_aside(loop: asyncio.AbstractEventLoop) -> Aside:
        """Let ``loop`` be the running one; who ran before comes back by ``step_back``."""
        outer = get_running_loop()
        task = None if outer is None else asyncio.current_task(outer)
        if task is not None:
            leave_task(outer, task)  # pyright: ignore[reportArgumentType]
        set_running_loop(loop)
        return outer, task

else:

    def step_aside(loop: asyncio.AbstractEventLoop) -> Aside:
        """Let ``loop`` be the running one; who ran before comes back by ``step_back``."""
        outer = get_running_loop()
        set_running_loop(loop)
        return outer, None


def step_back(aside: Aside) -> None:
    """Let whoever stepped aside run again, in his task."""
    outer, task = aside
    set_running_loop(outer)
    if task is not None:
        enter_task(outer, task)  # pyright: ignore[reportArgumentType]
