"""Claiming: asks the store for jobs under this host's session, and waits where there are none.

Owns the requests, each with an id of its own, so that a lost reply is asked for again and nothing
is claimed twice or left behind. Fair between queues: each request begins with another one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from outlive.errors import LeaseLost, OutcomeUnknown, OutliveError
from outlive.model.job import Claimed, ClaimedJob, ClaimRequest, Return, Want
from outlive.names import JobId
from outlive.ports.job_store import JobStore
from outlive.runtime.runtime import Runtime
from outlive.runtime.session import LiveSession
from outlive.runtime.sessions import Sessions
from outlive.work.bell import Alarm, Bell
from outlive.work.repeating import until_known, while_held
from outlive.work.strays import Held, Strays

# The safety net behind wake-ups: a ring that was lost costs this much at most.
POLL_S = 5.0

# Where rings are known not to arrive.
POLL_DEAF_S = 1.0


class Claimer:
    """Makes the claims of one host."""

    def __init__(
        self,
        runtime: Runtime,
        store: JobStore,
        *,
        sessions: Sessions,
        bell: Bell,
        host: str,
        log: logging.Logger,
    ) -> None:
        self.runtime = runtime
        self.store = store
        self.sessions = sessions
        self.bell = bell
        self._host = host
        self.log = log
        self._numbers = itertools.count(1)
        self._later: set[asyncio.Task[Any]] = set()
        self._strays = Strays(runtime, log)

    @property
    def poll_s(self) -> float:
        """How long to wait for a ring before looking without one."""
        return POLL_DEAF_S if self.bell.deaf else POLL_S

    async def claim(
        self,
        wants: Sequence[Want],
        limit: int,
        *,
        job: JobId | None,
        wait_s: float,
        suspects: bool,
    ) -> tuple[LiveSession, Claimed]:
        """Claim, waiting up to ``wait_s`` for the first job.

        A caller that is cancelled while the store answers leaves nothing behind: what was claimed
        for it is given back.

        Raises:
            LeaseLost: This host's session has ended, and no new one stands yet.
            StoreError: The store did not answer.
            UsageError: The host was closed, or keeps no session.
        """
        clock, alarm = self.runtime.clock, Alarm()
        until = clock.monotonic() + wait_s
        end = self.bell.listen((want.queue for want in wants), alarm.ring) if wait_s else None
        try:
            while True:
                alarm.reset()
                left_s = max(0.0, until - clock.monotonic())
                session, claimed = await self.ask_to_the_end(
                    wants, limit, job=job, wait_s=left_s, suspects=suspects
                )
                if claimed.jobs or left_s <= 0:
                    return session, claimed
                pause_s = min(left_s, self.poll_s)
                if claimed.next_due_s is not None:
                    pause_s = min(pause_s, claimed.next_due_s)
                await alarm.sleep(pause_s)
        finally:
            if end is not None:
                end()

    async def ask(
        self,
        wants: Sequence[Want],
        limit: int,
        *,
        job: JobId | None = None,
        wait_s: float = 0.0,
        suspects: bool = True,
    ) -> tuple[LiveSession, Claimed]:
        """Claim once, asking again for a reply that was lost. Raises as ``claim``.

        Given up after a few seconds, the asking goes on by itself until the answer is known, and
        what was claimed is given back. So is what a request claims that arrives after its repeat.
        """
        session, repeated = await self.sessions.held(), False
        number = next(self._numbers)
        turned = tuple(wants)
        if len(turned) > 1:
            first = number % len(turned)
            turned = turned[first:] + turned[:first]
        request = ClaimRequest(
            session=session.id,
            worker=self._host,
            request=f"{session.id}-{number:x}",
            wants=turned,
            limit=limit,
            job=job,
            wait_us=round(wait_s * 1e6),
            suspects=suspects,
        )

        async def once(tries: int) -> Claimed:
            nonlocal repeated
            repeated = tries > 0
            return await self.store.claim(_again(request) if tries else request)

        try:
            claimed = await until_known(self.runtime, once)
        except LeaseLost:
            self.sessions.doubt(session)
            raise
        except OutcomeUnknown:
            self.later(self._find_out(request, session))
            raise
        if repeated:
            self._watch(request, session, claimed.jobs)
        return session, claimed

    async def _find_out(self, request: ClaimRequest, session: LiveSession) -> None:
        """Learn what a claim without an answer was given, and give it back."""

        async def give_back() -> None:
            claimed = await self.store.claim(_again(request))
            if claimed.jobs:
                await self.store.release([Return(each.id, each.token) for each in claimed.jobs])

        try:
            await while_held(self.runtime, session, give_back)
            self._watch(request, session)
        except OutliveError as error:
            self.log.warning(
                "lost the reply to a claim; any jobs it claimed are released when this host's "
                "session ends: %s",
                error,
            )

    def _watch(
        self, request: ClaimRequest, session: LiveSession, known: Sequence[ClaimedJob] = ()
    ) -> None:
        """Give back what is claimed under ``request`` from now on, beside what is known."""
        # Asked again for nothing, a request tells what was claimed under it, and claims no more.
        look = replace(request, again=True, limit=0, wait_us=0)

        async def find() -> list[Held]:
            return [(job.id, job.token) for job in (await self.store.claim(look)).jobs]

        async def give_back(strays: Sequence[Held]) -> None:
            await self.store.release([Return(JobId(job), token) for job, token in strays])

        self._strays.watch(find, give_back, session, [(job.id, job.token) for job in known])

    async def ask_to_the_end(
        self,
        wants: Sequence[Want],
        limit: int,
        *,
        job: JobId | None,
        wait_s: float,
        suspects: bool,
    ) -> tuple[LiveSession, Claimed]:
        """``ask`` in a task that outlives a caller who is cancelled, and then gives back."""
        asking = self.runtime.spawn(
            self.ask(wants, limit, job=job, wait_s=wait_s, suspects=suspects),
            name="outlive-claim",
        )
        try:
            # Not by `shield`: from Python 3.14 on that tells of errors which come when nobody
            # waits any more.
            await asyncio.wait((asking,))
            return asking.result()
        except asyncio.CancelledError:
            self.later(self._give_back(asking))
            raise

    async def _give_back(self, asking: asyncio.Task[tuple[LiveSession, Claimed]]) -> None:
        try:
            session, claimed = await asking
            if claimed.jobs:
                back = [Return(each.id, each.token) for each in claimed.jobs]
                await while_held(self.runtime, session, lambda: self.store.release(back))
        except (OutliveError, asyncio.CancelledError) as error:
            self.log.warning(
                "could not release the jobs of a cancelled claim; they are released when this "
                "host's session ends: %s",
                error,
            )

    def later(self, coroutine: Any) -> None:
        """Run something to its end beside the caller; ``close`` waits for it."""
        task = self.runtime.spawn(coroutine, name="outlive-work-cleanup")
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def close(self) -> None:
        """Claim no more, and wait for what goes on by itself. Repeatable."""
        self.sessions.closed = True
        here = asyncio.get_running_loop()
        while mine := [task for task in list(self._later) if task.get_loop() is here]:
            await asyncio.wait(mine)
        await self._strays.close()


def _again(request: ClaimRequest) -> ClaimRequest:
    return replace(request, again=True)
