"""What flow code cannot do though asyncio offers it, refused with what to do instead.

Owns the methods of an event loop that reach out of the flow, and the uses of asyncio whose order no
replay could repeat. The refusal is raised where it is asked for, inside the flow's own code.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import NoReturn, TypeVar

from outlive.errors import UsageError

Loop = TypeVar("Loop", bound=asyncio.AbstractEventLoop)

# From ``create_task`` up to ``as_completed``: ensure_future in one or two frames, a comprehension.
_FRAMES_LOOKED_AT = 4

# What asyncio offers and a flow must not do itself, with what it is called in the error.
_OUTSIDE = {
    "run_in_executor": "run code in a thread",
    "call_soon_threadsafe": "be called from another thread",
    "create_connection": "open a connection",
    "create_server": "serve connections",
    "create_unix_connection": "open a connection",
    "create_unix_server": "serve connections",
    "create_datagram_endpoint": "open a socket",
    "sock_connect": "use a socket",
    "sock_recv": "use a socket",
    "sock_recv_into": "use a socket",
    "sock_sendall": "use a socket",
    "sock_accept": "use a socket",
    "sendfile": "send a file",
    "start_tls": "use a socket",
    "add_reader": "watch a file",
    "add_writer": "watch a file",
    "remove_reader": "watch a file",
    "remove_writer": "watch a file",
    "connect_read_pipe": "open a pipe",
    "connect_write_pipe": "open a pipe",
    "subprocess_shell": "start a process",
    "subprocess_exec": "start a process",
    "getaddrinfo": "look up an address",
    "getnameinfo": "look up an address",
    "add_signal_handler": "handle signals",
    "remove_signal_handler": "handle signals",
    "run_forever": "run an event loop",
    "run_until_complete": "run an event loop",
    "stop": "stop the event loop",
    "set_task_factory": "change how tasks are made",
    "set_default_executor": "run code in a thread",
}


def without_the_outside(loop: type[Loop]) -> type[Loop]:
    """Let every method of ``loop`` that reaches out of the flow raise ``UsageError``."""
    for name in _OUTSIDE:
        setattr(loop, name, _refusal(name))
    return loop


def _refusal(name: str) -> Callable[..., NoReturn]:
    """In place of a method that would reach out of the flow."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        del args, kwargs
        raise UsageError(
            f"flow code cannot {_OUTSIDE[name]} ({name}): after a crash the code is replayed "
            "from its history; do it in a step (@app.step) and await that"
        )

    return refuse


def refuse_unordered() -> None:
    """Refuse coroutines that ``as_completed`` took from a set, which is in no order.

    For ``create_task`` of the loop itself: who asked for the task is found two frames up.

    Raises:
        UsageError: It did.
    """
    frame = inspect.currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    if frame is None or not frame.f_code.co_name.endswith("ensure_future"):
        return
    for _ in range(_FRAMES_LOOKED_AT):
        if frame.f_back is None or frame.f_code.co_filename != asyncio.tasks.__file__:
            return
        frame = frame.f_back
        if "as_completed" in frame.f_code.co_qualname.lower().replace(
            "ascompleted", "as_completed"
        ):
            raise UsageError(
                "as_completed puts coroutines into a set, and no replay can repeat the order of "
                "a set: pass tasks (asyncio.create_task), or step calls"
            )
