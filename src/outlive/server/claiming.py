"""One request for an item: asks the store, and waits for a ring in between.

Owns the wait. The session is kept alive through it, the bearer is looked at again before each new
attempt, and an item that was claimed for somebody who hung up meanwhile goes back at once.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from outlive.errors import LeaseLost
from outlive.model.job import ClaimedJob, ClaimRequest, Return, Want
from outlive.names import JobId
from outlive.server import limits, schemas
from outlive.server.claim_ids import derived
from outlive.server.endpoints import Call
from outlive.server.sessions import WorkerSession
from outlive.server.spaces import Space, Spaces

# A session that ends under a claim is opened again; one that keeps ending has a ttl of no use.
_OPEN_TRIES_MAX = 3


class Claiming:
    """The claim of one item for one request."""

    def __init__(self, spaces: Spaces, space: Space, call: Call) -> None:
        wanted: schemas.Next = call.body
        self._spaces = spaces
        self._space = space
        self._principal = call.principal
        self._authorise = call.authorise
        self._wanted = wanted
        self._until = spaces.clock.monotonic() + min(wanted.wait, spaces.bounds.wait_s)
        # A worker that asks once for each item begins anywhere, so that the first of its queues
        # does not starve the others.
        self._start = spaces.runtime.random.randrange(len(wanted.queues))
        self._request = self._request_id()

    def _request_id(self) -> str:
        """The store's name of this request; another bearer cannot ask for what it got."""
        wanted = self._wanted
        given = wanted.request_id or self._spaces.runtime.new_id()
        key = self._principal.key
        return derived(key, "request", self._principal.namespace, wanted.worker_id, given)

    async def run(self, gone: asyncio.Future[None]) -> tuple[ClaimedJob, WorkerSession] | None:
        """The item and its session, or ``None``: nothing came, or nobody waits any more.

        Raises:
            Problem: The bearer was refused while it waited, or the session has ended.
        """
        wanted = self._wanted
        waiting = (
            self._spaces.waiters.waiting(self._principal.id, self._space.namespace, wanted.queues)
            if wanted.wait > 0
            else nullcontext(asyncio.Event())
        )
        with waiting as bell:
            while True:
                bell.clear()
                job, session, due_s = await self._claim()
                if job is not None:
                    if gone.done() and wanted.request_id is None:
                        # Nobody will ever ask for it again under this request.
                        await self._space.jobs.release([Return(job.id, job.token)])
                        return None
                    return job, session
                left_s = self._until - self._spaces.clock.monotonic()
                if left_s <= 0 or gone.done() or self._spaces.waiters.stopping.is_set():
                    return None
                pause_s = min(left_s, self._pause_s(), due_s if due_s is not None else left_s)
                await _first(bell, gone, pause_s)
                if gone.done():
                    return None
                await self._authorise()

    async def _claim(self) -> tuple[ClaimedJob | None, WorkerSession, float | None]:
        wanted = self._wanted
        tries = 0
        while True:
            tries += 1
            session = await self._space.sessions.ensure(
                self._principal, wanted.worker_id, wanted.session, wanted.ttl
            )
            try:
                return await self._attempt(session)
            except LeaseLost:
                # It ended between the look and the claim. With a nonce of the worker's own the
                # next look says so; otherwise there is a new one.
                self._space.sessions.forget(session.id)
                if tries == _OPEN_TRIES_MAX:
                    raise

    async def _attempt(
        self, session: WorkerSession
    ) -> tuple[ClaimedJob | None, WorkerSession, float | None]:
        wanted = self._wanted
        # Each attempt of one request begins with another queue.
        start = self._start % len(wanted.queues)
        self._start += 1
        queues = wanted.queues[start:] + wanted.queues[:start]
        left_s = self._until - self._spaces.clock.monotonic()
        self._space.handed.asked(session.id, wanted.queues)
        claimed = await self._space.jobs.claim(
            ClaimRequest(
                session=session.id,
                worker=wanted.worker_id,
                request=self._request,
                wants=tuple(Want(queue, 1) for queue in dict.fromkeys(queues)),
                limit=1,
                job=None if wanted.item is None else JobId(wanted.item),
                again=wanted.request_id is not None,
                wait_us=max(0, round(left_s * 1e6)) if wanted.wait > 0 else 0,
            )
        )
        job = claimed.jobs[0] if claimed.jobs else None
        return job, session, claimed.next_due_s

    def _pause_s(self) -> float:
        deaf = self._space.driver.wakeups.deaf
        own_s = limits.POLL_DEAF_S if deaf else limits.POLL_S
        return min(own_s, self._wanted.ttl / 3)


async def _first(bell: asyncio.Event, gone: asyncio.Future[None], pause_s: float) -> None:
    """Return when the bell rings, the client hangs up, or the pause is over."""
    ringing = asyncio.ensure_future(bell.wait())
    try:
        await asyncio.wait([ringing, gone], timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        ringing.cancel()
