"""Strays: claims that a store makes for a request after that request was answered without them.

A server that stood still may carry a request out long after its sender gave up waiting and asked
again elsewhere. Nobody knows of what it claims then, and the session that it claims for lives on.
Owns the looks at such requests, and gives back what they bring to light.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from outlive.errors import LeaseLost, OutliveError
from outlive.names import Token
from outlive.runtime.backoff import Backoff
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession

# A network gives up what it could not deliver within a quarter of an hour.
_WATCHED_S = 900.0

# Soon at first, because most servers stand still for seconds; rarely at last.
_FIRST_S, _MOST_S = 1.0, 60.0

Held = tuple[str, Token]
"""What is claimed, and the token of its claim."""

Find = Callable[[], Awaitable[Sequence[Held]]]
GiveBack = Callable[[Sequence[Held]], Awaitable[None]]


class Strays:
    """Watches the requests of one host whose reply was lost."""

    def __init__(self, runtime: Runtime, log: logging.Logger) -> None:
        self._runtime = runtime
        self._log = log
        self._watches: set[asyncio.Task[Any]] = set()

    def watch(
        self, find: Find, give_back: GiveBack, session: LiveSession, known: Iterable[Held] = ()
    ) -> None:
        """Give back whatever ``find`` shows of one request from now on, beside what is known."""
        watching = self._watch(find, give_back, session, set(known))
        task = self._runtime.spawn(watching, name="outlive-strays")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _watch(
        self, find: Find, give_back: GiveBack, session: LiveSession, mine: set[Held]
    ) -> None:
        clock = self._runtime.clock
        backoff = Backoff(_FIRST_S, _MOST_S, self._runtime.random)
        until = clock.monotonic() + _WATCHED_S
        # With the session its claims end as well.
        while session.held and clock.monotonic() < until:
            await clock.sleep(backoff.next_s())
            try:
                strays = [held for held in await find() if held not in mine]
                if strays:
                    await give_back(strays)
                    self._log.warning("released late claims: %d", len(strays))
            except LeaseLost:
                return
            except OutliveError as error:
                self._log.debug("could not check for late claims, will retry: %s", error)

    async def close(self) -> None:
        """Watch no more: the session ends, and with it its claims. Repeatable."""
        here = asyncio.get_running_loop()
        mine = [task for task in list(self._watches) if task.get_loop() is here]
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.wait(mine)
