"""Leaving: how a process ends though threads or tasks of handlers and steps still run.

A thread cannot be stopped, and Python waits for those of a pool when it ends, for as long as they
take; a task may go on though it was cancelled. Their jobs went back to the queue and what they
return is refused, so that nobody needs them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import NoReturn

from outlive.cli.output import say
from outlive.telemetry import plural

# The pools of handlers and of steps. Threads of other names are the app's own, which may hold up
# the process for as long as it likes.
_POOLS = ("outlive-handler", "outlive-step")

# A thread without work ends as soon as it hears that its pool is closed.
_PATIENCE_S = 0.5


def exit_now(code: int, tasks: int = 0) -> NoReturn:
    """End the process, and leave behind the threads of pools, and ``tasks``, that do not end."""
    threads = [each for each in threading.enumerate() if each.name.startswith(_POOLS)]
    for each in threads:
        each.join(_PATIENCE_S / len(threads))
    busy = sum(each.is_alive() for each in threads)
    if not busy and not tasks:
        sys.exit(code)
    if busy:
        say(
            f"{plural(busy, 'thread')} of synchronous handlers or steps did not end in time and "
            "ended with the process; other hosts take over their jobs and flows"
        )
    if tasks:
        say(
            f"{plural(tasks, 'task')} ignored cancellation and ended with the process; other "
            "hosts take over their jobs and flows"
        )
    leave(code)


def leave(code: int) -> NoReturn:
    """End the process immediately, whatever still runs; functions of ``atexit`` are not run."""
    try:
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
