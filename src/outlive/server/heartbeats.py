"""Heartbeats of workers: what is kept, what is lost, and what nobody has.

Owns which claims a heartbeat gives back to their queue. It must never give back one that the worker
may know of: a claim is in doubt for a whole ttl before it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from outlive.model import job as model
from outlive.model.job import JobFilter, JobState
from outlive.names import HostId, JobId
from outlive.serialization import encode_json
from outlive.server import limits, schemas
from outlive.server.claim_ids import ClaimRef, verify
from outlive.server.endpoints import Call, Reply
from outlive.server.spaces import Space, Spaces

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# What people see of an item while it is worked on, written at each heartbeat.
_PROGRESS_BYTES_MAX = 16 * 1024


class Heartbeats:
    """Answers the heartbeats of one server's workers."""

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
        return _EPOCH + timedelta(microseconds=claim.expires_at_us) <= self._spaces.clock.now()

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
            self._spaces.measuring.ended("released")
        return [*released]


def _progress(progress: Any) -> str | None:
    if progress is None:
        return None
    return encode_json(progress, "the progress", limit=_PROGRESS_BYTES_MAX)
