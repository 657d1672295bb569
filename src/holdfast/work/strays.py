"""Strays: claims that a store makes for a request after that request was answered without them.

A server that stood still may carry a request out long after its sender gave up waiting and asked
again elsewhere. Nobody knows of what it claims then, and the session that it claims for lives on.
Owns the looks at such requests, and gives back what they bring to light.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.model.job import ClaimedJob, ClaimRequest, Return
from holdfast.names import JobId, Token
from holdfast.ports.job_store import JobStore
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.runtime import Runtime
from holdfast.runtime.session import LiveSession

# A network gives up what it could not deliver within a quarter of an hour.
_WATCHED_S = 900.0

# Soon at first, because most servers stand still for seconds; rarely at last.
_FIRST_S, _MOST_S = 1.0, 60.0


class Strays:
    """Watches the requests of one host whose reply was lost."""

    def __init__(self, runtime: Runtime, store: JobStore, log: logging.Logger) -> None:
        self._runtime = runtime
        self._store = store
        self._log = log
        self._watches: set[asyncio.Task[Any]] = set()

    def watch(
        self, request: ClaimRequest, session: LiveSession, known: Sequence[ClaimedJob] = ()
    ) -> None:
        """Give back whatever is claimed under ``request`` from now on, beside what is known."""
        mine = {(job.id, job.token) for job in known}
        # Asked again for nothing, a request tells what was claimed under it, and claims no more.
        look = replace(request, again=True, limit=0, wait_us=0)
        task = self._runtime.spawn(self._watch(look, session, mine), name="holdfast-strays")
        self._watches.add(task)
        task.add_done_callback(self._watches.discard)

    async def _watch(
        self, look: ClaimRequest, session: LiveSession, mine: set[tuple[JobId, Token]]
    ) -> None:
        clock = self._runtime.clock
        backoff = Backoff(_FIRST_S, _MOST_S, self._runtime.random)
        until = clock.monotonic() + _WATCHED_S
        # With the session its claims end as well.
        while session.held and clock.monotonic() < until:
            await clock.sleep(backoff.next_s())
            try:
                found = (await self._store.claim(look)).jobs
                strays = [job for job in found if (job.id, job.token) not in mine]
                if strays:
                    await self._store.release([Return(job.id, job.token) for job in strays])
                    self._log.warning("gave %d jobs back that were claimed late", len(strays))
            except LeaseLost:
                return
            except HoldfastError as error:
                self._log.debug("no look at claims that may come late: %s", error)

    async def close(self) -> None:
        """Watch no more: the session ends, and with it its claims. Repeatable."""
        here = asyncio.get_running_loop()
        mine = [task for task in list(self._watches) if task.get_loop() is here]
        for task in mine:
            task.cancel()
        if mine:
            await asyncio.wait(mine)
