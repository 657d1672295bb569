"""Tasks: who ends a piece of a user's code, itself or those who throw it away.

Must never await anything: a coroutine that is thrown away may not.
"""

from __future__ import annotations

import asyncio
from typing import Any


def is_current(task: asyncio.Task[Any] | None) -> bool:
    """Whether the code of ``task`` calls this.

    A ``GeneratorExit`` that is met there was raised by somebody, and may be answered. One that
    comes to a coroutine that is thrown away, with its loop or by the garbage collector, may not.
    """
    try:
        return task is not None and asyncio.current_task() is task
    except RuntimeError:
        # No loop runs in this thread.
        return False
