"""The worker's routes: next, complete, fail, release, and the way to heartbeat.

Owns what each does to the store. Everything but ``next`` goes by a claim id, which proves
namespace, item and fencing token; one that is not this bearer's is not found, and one whose claim
has ended is refused and changes nothing. Nothing is refused for its age: what is settled is free
again, and the store knows whether the token is still the newest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from outlive.model import job as model
from outlive.model.bearer import Scope
from outlive.model.job import ClaimedJob, JobRecord
from outlive.model.retry import pause_s
from outlive.names import JobId
from outlive.serialization import PAYLOAD_BYTES_MAX, describe, encode_json
from outlive.server import limits, schemas
from outlive.server.access import Principal
from outlive.server.claim_ids import ClaimRef, sign, verify
from outlive.server.claiming import Claiming
from outlive.server.endpoints import Call, Endpoint, Reply
from outlive.server.heartbeats import Heartbeats
from outlive.server.problems import Problem
from outlive.server.spaces import Space, Spaces
from outlive.server.waiting import disconnected
from outlive.telemetry import Span

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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
            token=job.token,
            expires_at_us=round((expires_at - _EPOCH) / timedelta(microseconds=1)),
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
            enqueued_at=_EPOCH + timedelta(microseconds=job.enqueued_at_us),
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
        self._spaces.measuring.ended(how)
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
