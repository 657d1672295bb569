"""The worker's routes: next, complete, fail, release, and the way to heartbeat.

Owns what each does to the store. Everything but ``next`` goes by a claim id, which proves
namespace, item and fencing token; one that is not this bearer's is not found, and one whose claim
has ended is refused and changes nothing. Nothing is refused for its age: what is settled is free
again, and the store knows whether the token is still the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from outlive.clock import instant, microseconds
from outlive.model import job as model
from outlive.model.bearer import Scope
from outlive.model.job import ClaimedJob, JobFilter, JobRecord, JobState
from outlive.model.retry import pause_s
from outlive.names import HostId, JobId
from outlive.serialization import PAYLOAD_BYTES_MAX, describe, encode_json
from outlive.server import limits, schemas
from outlive.server.access import Principal
from outlive.server.claim_ids import ClaimRef, sign, verify
from outlive.server.claiming import Claiming
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.problems import Problem
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
