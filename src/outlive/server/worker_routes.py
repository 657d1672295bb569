"""The worker's routes: next, complete, fail, release, and the way to heartbeat.

Owns what each does to the store, and the wait for an item. Everything but ``next`` goes by a claim
id, which proves namespace, item and fencing token; one that is not this bearer's is not found, and
one whose claim has ended is refused and changes nothing. Nothing is refused for its age: what is
settled is free again, and the store knows whether the token is still the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import msgspec

from outlive.clock import instant, microseconds
from outlive.errors import LeaseLost
from outlive.model import job as model
from outlive.model.bearer import Scope
from outlive.model.job import ClaimedJob, ClaimRequest, JobFilter, JobRecord, JobState, Return, Want
from outlive.model.retry import pause_s
from outlive.names import HostId, JobId
from outlive.serialization import PAYLOAD_BYTES_MAX, describe, encode_json
from outlive.server import limits, schemas
from outlive.server.access import Principal
from outlive.server.claim_ids import ClaimRef, derived, sign, verify
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.problems import Problem
from outlive.server.sessions import WorkerSession
from outlive.server.spaces import Space, Spaces
from outlive.server.waiting import disconnected
from outlive.telemetry import Span, events

# What people see of an item while it is worked on, written at each heartbeat.
_PROGRESS_BYTES_MAX = 16 * 1024


class WorkerRoutes:
    """What workers ask for."""

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces
        self._heartbeats = Heartbeats(spaces)

    def endpoints(self) -> list[Endpoint]:
        """The routes."""
        taken = {
            200: ("An item, claimed for this worker.", schemas.ClaimedItem),
            204: ("No item was ready within the wait time.", None),
        }
        settled = {200: ("Done.", schemas.Settled)}
        return [
            Endpoint(
                method="GET",
                path="/worker/next",
                name="next",
                summary="Claim the next item.",
                run=self.next,
                scope=Scope.WORK,
                query=schemas.Next,
                answers=taken,
                problems=("not-found", "session-ended"),
            ),
            Endpoint(
                method="POST",
                path="/worker/next",
                name="postNext",
                summary="Claim the next item.",
                run=self.next,
                scope=Scope.WORK,
                body=schemas.Next,
                answers=taken,
                problems=("not-found", "session-ended"),
            ),
            *(
                Endpoint(
                    method="POST",
                    path=f"/worker/{name}",
                    name=name,
                    summary=summary,
                    run=run,
                    scope=Scope.WORK,
                    body=body,
                    answers=settled,
                    problems=("not-found", "claim-stale"),
                )
                for name, summary, run, body in (
                    ("complete", "The item is done.", self.complete, schemas.Complete),
                    ("fail", "The item failed.", self.fail, schemas.Fail),
                    ("release", "Release the item untried.", self.release, schemas.Release),
                )
            ),
            Endpoint(
                method="POST",
                path="/worker/heartbeat",
                name="heartbeat",
                summary="Extend claims, and report which are lost or to be cancelled.",
                run=self._heartbeats.run,
                scope=Scope.WORK,
                body=schemas.Heartbeat,
                answers={200: ("The state of each claim.", schemas.Beaten)},
            ),
        ]

    async def next(self, call: Call) -> Reply:
        """Claim one item, waiting for it if asked to."""
        wanted: schemas.Next = call.body
        space = self._spaces.of(call.principal)
        claiming = Claiming(self._spaces, space, call)
        gone = asyncio.create_task(disconnected(call.request), name="outlive-disconnect")
        try:
            taken = await claiming.run(gone)
        finally:
            gone.cancel()
            await asyncio.wait([gone])
        if taken is None:
            await self._check_item(space, wanted)
            return Reply(204)
        job, session = taken
        if space.handed.gave(session.id, job.id, job.token):
            self._spaces.measuring.claimed(job)
        return Reply(200, self._claimed(call.principal, job, session))

    async def _check_item(self, space: Space, wanted: schemas.Next) -> None:
        """Tell who asked for an item that cannot be had from those that are not there.

        Raises:
            Problem: None of the queues has such an item.
        """
        if wanted.item is not None:
            record = await space.jobs.get(JobId(wanted.item))
            if record is None or record.queue not in wanted.queues:
                raise Problem("not-found", f"No item {wanted.item!r} in these queues.")

    def _claimed(self, principal: Principal, job: ClaimedJob, session: Any) -> Any:
        now = self._spaces.clock.now()
        expires_at = now + timedelta(seconds=limits.CLAIM_AGE_MAX_S)
        claim = ClaimRef(
            namespace=principal.namespace,
            session=session.id,
            job=job.id,
            queue=job.queue,
            token=job.token,
            expires_at_us=microseconds(expires_at),
        )
        deadline, left_s = self._spaces.at(session.deadline)
        return schemas.ClaimedItem(
            id=job.id,
            queue=job.queue,
            claim_id=sign(principal.key, claim),
            token=job.token,
            payload=msgspec.Raw(job.payload.encode()),
            headers=msgspec.json.decode(job.headers, type=dict[str, Any]),
            attempt=job.attempts + 1,
            priority=job.priority,
            enqueued_at=instant(job.enqueued_at_us),
            deadline=deadline,
            expires_in=left_s,
        )

    async def complete(self, call: Call) -> Reply:
        """End the item as done."""
        wanted: schemas.Complete = call.body
        space, claim = self._claim(call, wanted.claim_id)
        result = None
        if wanted.result is not None:
            result = encode_json(wanted.result, "the result", limit=PAYLOAD_BYTES_MAX)
        completion = model.Completion(claim.job, claim.token, result)
        with self._spaces.measuring.settling("complete", call.request, claim) as span:
            outcomes = await space.jobs.complete([completion])
            return self._settled(space, claim, outcomes, "completed", span)

    async def fail(self, call: Call) -> Reply:
        """End the claim; the item is tried again as the request or its policy says."""
        wanted: schemas.Fail = call.body
        space, claim = self._claim(call, wanted.claim_id)
        with self._spaces.measuring.settling("fail", call.request, claim) as span:
            return await self._fail(space, claim, wanted, span)

    async def _fail(self, space: Space, claim: ClaimRef, wanted: schemas.Fail, span: Span) -> Reply:
        record = await space.jobs.get(claim.job)
        if record is None or record.token != claim.token:
            return self._settled(space, claim, (model.Settled.LOST,), "", span)
        retry_s = self._retry_s(record, wanted)
        document = {"message": wanted.error}
        if wanted.error_type is not None:
            document["type"] = wanted.error_type
        failure = model.Failure(
            claim.job,
            claim.token,
            describe(document),
            None if retry_s is None else round(retry_s * 1e6),
        )
        outcomes = await space.jobs.fail([failure])
        failed = "dead" if retry_s is None else "failed"
        return self._settled(space, claim, outcomes, failed, span)

    def _retry_s(self, record: JobRecord, wanted: schemas.Fail) -> float | None:
        if wanted.dead:
            return None
        chance = self._spaces.runtime.random.random()
        return pause_s(record, wanted.error_type, chance, asked_s=wanted.retry_in)

    async def release(self, call: Call) -> Reply:
        """Give the item back untried."""
        wanted: schemas.Release = call.body
        space, claim = self._claim(call, wanted.claim_id)
        returned = model.Return(claim.job, claim.token, round(wanted.delay * 1e6))
        with self._spaces.measuring.settling("release", call.request, claim) as span:
            outcomes = await space.jobs.release([returned])
            return self._settled(space, claim, outcomes, "released", span)

    def _settled(
        self,
        space: Space,
        claim: ClaimRef,
        outcomes: Sequence[model.Settled],
        how: str,
        span: Span,
    ) -> Reply:
        """The answer to who ended a claim ``how``; the store says whether it was still theirs."""
        (outcome,) = outcomes
        space.handed.heard(claim.session, claim.job)
        if outcome is model.Settled.LOST:
            how = "lost"
        span.set(outcome=how)
        self._spaces.measuring.ended(claim.queue, how)
        if outcome is model.Settled.LOST:
            raise _stale()
        return Reply(200, schemas.Settled(state=outcome.value))

    def _claim(self, call: Call, claim_id: str) -> tuple[Space, ClaimRef]:
        space = self._spaces.of(call.principal)
        claim = verify(call.principal.key, space.namespace, claim_id)
        if claim is None:
            raise Problem("not-found", "This bearer token has no claim with this claim_id.")
        return space, claim


def _stale() -> Problem:
    return Problem(
        "claim-stale",
        "Another worker has claimed the item, or it has ended. Nothing was changed: stop work on "
        "the item.",
    )


class Heartbeats:
    """Answers the heartbeats of one server's workers.

    It must never give back a claim that the worker may know of: a claim is in doubt for a whole ttl
    before it is given back.
    """

    def __init__(self, spaces: Spaces) -> None:
        self._spaces = spaces

    async def run(self, call: Call) -> Reply:
        """Renew the worker's sessions, and say what became of each claim."""
        wanted: schemas.Heartbeat = call.body
        space = self._spaces.of(call.principal)
        refs = [
            verify(call.principal.key, space.namespace, beat.claim_id) for beat in wanted.claims
        ]
        sessions = space.sessions.named(call.principal, wanted.worker_id, wanted.session)
        sessions |= {ref.session for ref in refs if ref is not None}
        alive = {session: await space.sessions.renew(session, wanted.ttl) for session in sessions}
        deadlines = {session: end for session, end in alive.items() if end is not None}
        states = await self._extend(space, wanted, refs, frozenset(deadlines))
        released: list[str] = []
        if wanted.complete:
            named = {ref.job for ref in refs if ref is not None}
            for session in deadlines:
                await self._look(space, session, named)
            released = await self._release_lost(call, space, deadlines)
        deadline, left_s = self._spaces.at(min(deadlines.values(), default=0.0))
        beats = [
            schemas.Beat(claim_id=beat.claim_id, state=state)
            for beat, state in zip(wanted.claims, states, strict=True)
        ]
        answer = schemas.Beaten(
            claims=beats, released=released, deadline=deadline, expires_in=left_s
        )
        return Reply(200, answer)

    async def _extend(
        self,
        space: Space,
        wanted: schemas.Heartbeat,
        refs: list[ClaimRef | None],
        alive: frozenset[str],
    ) -> list[str]:
        """The state of each claim; one that is not ours, too old, or of no session, is lost."""
        states = [model.Settled.LOST.value] * len(refs)
        known = [(place, ref) for place, ref in enumerate(refs) if ref is not None]
        for _, ref in known:
            space.handed.heard(ref.session, ref.job)
        asked = [(place, ref) for place, ref in known if ref.session in alive]
        # The worker drops what it hears is lost, and its session would keep it claimed for ever.
        old = [ref for _, ref in asked if self._too_old(ref)]
        await self._release(space, [model.Return(ref.job, ref.token) for ref in old])
        asked = [(place, ref) for place, ref in asked if not self._too_old(ref)]
        extensions = [
            model.Extension(ref.job, ref.token, _progress(wanted.claims[place].progress))
            for place, ref in asked
        ]
        if extensions:
            for (place, _), state in zip(asked, await space.jobs.extend(extensions), strict=True):
                states[place] = state.value
        return states

    def _too_old(self, claim: ClaimRef) -> bool:
        return instant(claim.expires_at_us) <= self._spaces.clock.now()

    async def _look(self, space: Space, session: HostId, named: set[JobId]) -> None:
        """Find what the store has for the session and the worker does not name.

        Another server of the fleet may have given it out, or this one before it was restarted.
        """
        for queue in space.handed.to_look(session, space.sessions.ttl_s(session)):
            wanted = JobFilter(queue=queue, states=(JobState.CLAIMED,), session=session)
            after: str | None = None
            while True:
                page = await space.jobs.list(wanted, after=after, limit=limits.PAGE_READ_MAX)
                for record in page:
                    if record.id not in named:
                        space.handed.found(session, record.id, record.token)
                if len(page) < limits.PAGE_READ_MAX:
                    break
                after = page[-1].cursor

    async def _release_lost(
        self, call: Call, space: Space, sessions: Iterable[HostId]
    ) -> list[str]:
        """Give back what these sessions were given in replies that never reached their worker."""
        lost = {
            (session, job): model.Return(job, token)
            for session in sessions
            for job, token in space.handed.lost(session, space.sessions.ttl_s(session))
        }
        if not lost or await call.request.is_disconnected():
            # Who hung up may have written this long ago, before it had what it does not name.
            return []
        released = await self._release(space, [*lost.values()])
        for session, job in lost:
            space.handed.heard(session, job)
        return released

    async def _release(self, space: Space, returns: list[model.Return]) -> list[str]:
        """Give claims back; the items that really went."""
        outcomes = await space.jobs.release(returns) if returns else ()
        released = [
            returned.id
            for returned, outcome in zip(returns, outcomes, strict=True)
            if outcome is not model.Settled.LOST
        ]
        for _ in released:
            self._spaces.measuring.ended(events.OTHER, "released")
        return [*released]


def _progress(progress: Any) -> str | None:
    if progress is None:
        return None
    return encode_json(progress, "the progress", limit=_PROGRESS_BYTES_MAX)


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
