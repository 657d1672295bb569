"""What ``send`` gives back: something to await for those who want to know, to drop for the others.

An event that was taken costs nothing more: all of them share one object. One that was not taken is
a dead letter already; whoever awaits it gets the reason as an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from concurrent.futures import Future
from typing import Any


class Accepted:
    """The event is in the mailbox."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


class Refused:
    """The event was not taken. Awaiting raises ``error``."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __await__(self) -> Generator[Any, None, None]:
        raise self.error
        yield


class Crossing:
    """The event is on its way to the machine's own thread."""

    __slots__ = ("arrival",)

    def __init__(self, arrival: Future[None]) -> None:
        self.arrival = arrival

    def __await__(self) -> Generator[Any, None, None]:
        return asyncio.wrap_future(self.arrival).__await__()


ACCEPTED = Accepted()

Acceptance = Awaitable[None]


def tell(arrival: Future[None], outcome: Acceptance) -> None:
    """Pass on to another thread what became of its event, unless nobody waits there any more."""
    if not arrival.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Refused):
        arrival.set_exception(outcome.error)
    elif isinstance(outcome, asyncio.Future):
        outcome.add_done_callback(lambda done: _copy(done, arrival))
    else:
        arrival.set_result(None)


def _copy(done: asyncio.Future[None], arrival: Future[None]) -> None:
    error = asyncio.CancelledError() if done.cancelled() else done.exception()
    if error is None:
        arrival.set_result(None)
    else:
        arrival.set_exception(error)
