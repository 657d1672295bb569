"""How instances change owners: claimed by a living session, given up, and taken from the dead.

Owns what the answer of a claim means. A host that wants to wait looks once more after its note is
committed, because an instance that was on its way meanwhile could see no note, and is told to look
again soon (see ``doubts``). Where its note from before stands yet, it looks once. So is one that
got less than it wanted of what it saw, because others were taking it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from outlive.drivers.postgres import instance_claim_sql, job_record_sql, job_sql
from outlive.drivers.postgres.coalescer import Coalescer
from outlive.drivers.postgres.doubts import Doubts
from outlive.drivers.postgres.job_tables import JobTables, judge_session, place
from outlive.drivers.postgres.transactions import Run
from outlive.errors import OutcomeUnknown, StoreUnavailable
from outlive.model.instance import (
    CLAIM_MAX,
    ClaimedInstance,
    ClaimedInstances,
    Handback,
    InstanceClaimRequest,
    Letter,
    ReclaimedInstance,
)
from outlive.names import InstanceId, Token

# Whoever else claims takes some of what was seen: so many more are looked at than are wanted.
_SPARE = 10

# Others took what was seen: looked for again so often. Each round lost means that they got some, or
# keep it locked; who lost all rounds looks once, until he gets some.
_ROUNDS_MAX = 3

# One step must end within the command timeout whatever its caller asks for.
_RECLAIM_MAX = 10_000

_decode_letters = msgspec.json.Decoder(tuple[Letter, ...]).decode


@dataclass(slots=True)
class _Answer:
    """What the attempts of one claim brought so far."""

    instances: list[ClaimedInstance]
    at_us: int = 0
    next_due_us: int | None = None
    boxes: Sequence[str] = ()
    # Whether more was seen than was had; whether the host's notes from before last long enough.
    more: bool = False
    standing: bool = False


class InstanceClaimer:
    """Claims in the tables of one namespace, and gives up."""

    def __init__(self, tables: JobTables) -> None:
        self._tables = tables
        self._claim_sql = tables.text(instance_claim_sql.CLAIM)
        self._waiting_sql = tables.text(instance_claim_sql.CLAIM_WAITING)
        self._again_sql = tables.text(instance_claim_sql.AGAIN)
        self._release_sql = tables.text(instance_claim_sql.RELEASE)
        self._owned_sql = tables.text(instance_claim_sql.LOOK_OWNED)
        self._reclaim_sql = tables.text(instance_claim_sql.RECLAIM)
        self._flight_sql = tables.text(job_sql.IN_FLIGHT)
        self._session_sql = tables.text(job_record_sql.SESSION)
        self._lock_session_sql = tables.text(job_record_sql.LOCK_SESSION)
        self._doubts = Doubts()
        # One that is carried out late meets its own token, or changes nothing.
        self._releasing = Coalescer[Handback, bool](
            self._release, abandons=tables.abandons, lone=True
        )

    async def claim(self, request: InstanceClaimRequest) -> ClaimedInstances:
        """Claim for a living session; see the port."""
        answer = _Answer([])
        limit = max(0, min(request.limit, CLAIM_MAX))
        if request.again:
            await self._tables.transact(lambda run: self._claimed_before(run, request, answer))
            if answer.instances:
                limit = len(answer.instances)
        try:
            await self._take_all(request, limit, answer)
        except StoreUnavailable as error:
            if not answer.instances:
                raise
            # Not "nothing was applied": something was. Asked again, the claims come back.
            raise OutcomeUnknown(
                "the second part of a claim failed; the first part was applied: repeat the claim"
            ) from error
        new = {one.id for one in answer.instances}
        due_s = None
        if len(new) < limit and answer.next_due_us is not None:
            due_s = max(0, answer.next_due_us - answer.at_us) / 1e6
        return ClaimedInstances(
            tuple(answer.instances),
            answer.at_us,
            due_s,
            tuple(InstanceId(box) for box in answer.boxes if box not in new),
        )

    async def release(self, handbacks: Sequence[Handback]) -> Sequence[bool]:
        """Give instances up; see the port."""
        if len(handbacks) == 1:
            return [await self._releasing.submit(handbacks[0].id, handbacks[0])]
        return await self._release(handbacks)

    async def reclaim(self, *, limit: int) -> Sequence[ReclaimedInstance]:
        """Take from sessions that are gone; see the port."""
        rows = await self._tables.fetch(
            self._reclaim_sql, max(0, min(limit, _RECLAIM_MAX)), self._tables.channel
        )
        return [ReclaimedInstance(InstanceId(row["id"]), row["kind"], row["name"]) for row in rows]

    async def close(self) -> None:
        """End the batches. Repeatable."""
        await self._releasing.close()

    # -- claims ---------------------------------------------------------------------------------

    async def _take_all(self, request: InstanceClaimRequest, limit: int, answer: _Answer) -> None:
        """Fill ``answer`` up to ``limit``, and leave a note if there was less and one is wanted."""
        topics = [f"instances/{request.kind}/{name}" for name in request.names]
        standing = False
        for number in range(1 if self._doubts.behind(topics) else _ROUNDS_MAX):
            await self._attempt(request, limit, answer, wait_us=request.wait_us)
            if number == 0:
                # The rounds behind it see the note that it left.
                standing = answer.standing
            if len(answer.instances) >= limit or not answer.more:
                break
        if answer.instances:
            self._doubts.served(topics)
        if len(answer.instances) >= limit:
            return
        pauses_s: list[float | None] = []
        if request.wait_us > 0:
            pauses_s += await self._look_again(request, limit, answer, topics, standing=standing)
        if answer.more and len(answer.instances) < limit:
            pauses_s.append(self._doubts.outrun(topics))
        else:
            self._doubts.served(topics)
        soon_s = min((pause_s for pause_s in pauses_s if pause_s is not None), default=None)
        if soon_s is not None:
            soon_us = answer.at_us + round(soon_s * 1e6)
            answer.next_due_us = min(soon_us, answer.next_due_us or soon_us)

    async def _look_again(
        self,
        request: InstanceClaimRequest,
        limit: int,
        answer: _Answer,
        topics: Sequence[str],
        *,
        standing: bool,
    ) -> tuple[float | None, ...]:
        """Look for what passed by a note; returns how soon to look for what may yet."""
        doubts, clock = self._doubts, self._tables.clock
        if not standing:
            # Also where one lasted yet: whoever came while it was written anew passed over it.
            doubts.noted(topics, clock.monotonic())
        busy_s = None
        if not standing or doubts.unseen(topics):
            (flight,) = await self._tables.fetch(self._flight_sql, topics, write=False)
            await self._attempt(request, limit, answer, wait_us=0)
            if flight["busy"]:
                busy_s = doubts.busy(topics)
            else:
                doubts.calm(topics)
        return busy_s, doubts.pause_s(topics, clock.monotonic(), wait_us=request.wait_us)

    async def _attempt(
        self, request: InstanceClaimRequest, limit: int, answer: _Answer, *, wait_us: int
    ) -> None:
        left = max(0, limit - len(answer.instances))
        waits = wait_us > 0 and left > 0
        rows = await self._tables.fetch(
            self._waiting_sql if waits else self._claim_sql,
            request.session,
            request.worker,
            request.request,
            request.kind,
            list(request.names),
            left,
            2 * left + _SPARE,
            self._tables.host,
            *((wait_us,) if waits else ()),
        )
        first = rows[0]
        if not first["alive"]:
            await self._refuse(request)
            raise StoreUnavailable("the session was renewed during the claim; try again")
        taken = [] if first["id"] is None else rows
        if len(taken) > 1:
            taken.sort(key=lambda row: (row["since_us"], row["number"]))
        answer.instances += [_claimed(row, _OFFSET, first=row["first"]) for row in taken]
        answer.at_us = first["at_us"]
        answer.next_due_us = first["next_due_us"]
        answer.boxes = first["boxes"]
        answer.standing = first["standing"]
        answer.more = first["seen"] > len(taken)

    async def _claimed_before(
        self, run: Run, request: InstanceClaimRequest, answer: _Answer
    ) -> None:
        """What an earlier call of the same request claimed, once it cannot claim any more."""
        judge_session(await run(self._lock_session_sql, request.session), request.session)
        rows = await run(self._again_sql, request.session, request.request)
        answer.instances = [_claimed(row, 0) for row in rows]

    async def _refuse(self, request: InstanceClaimRequest) -> None:
        """Raise what is wrong with the session, if anything still is."""
        rows = await self._tables.fetch(self._session_sql, request.session, write=False)
        judge_session(rows, request.session)

    # -- handbacks ------------------------------------------------------------------------------

    async def _release(self, batch: Sequence[Handback]) -> Sequence[bool]:
        given: set[int] = set()
        left = list(range(len(batch)))
        for _ in range(_ROUNDS_MAX):
            part = [batch[index] for index in left]
            if not part:
                break
            ids, tokens = [one.id for one in part], [one.token for one in part]
            rows = await self._tables.fetch(
                self._release_sql, ids, tokens, [one.due for one in part], self._tables.channel
            )
            given.update(left[place(row)] for row in rows)
            if len(rows) == len(part):
                break
            # A row that changed between the snapshot and the lock is met again.
            owned = await self._tables.fetch(self._owned_sql, ids, tokens, write=False)
            left = [left[place(row)] for row in owned]
        return [index in given for index in range(len(batch))]


# Where the columns of an instance begin: behind what is said of the attempt.
_OFFSET = 9


def _claimed(row: Any, offset: int, *, first: bool = False) -> ClaimedInstance:
    # By position: a claim of a hundred looks up a thousand values.
    (
        id_,
        kind,
        name,
        token,
        version,
        base,
        input_,
        began_at_us,
        parent,
        headers,
        attributes,
        custom,
        letters,
    ) = row[offset:]
    return ClaimedInstance(
        InstanceId(id_),
        kind,
        name,
        Token(token),
        version,
        base,
        input_,
        began_at_us,
        None if parent is None else InstanceId(parent),
        headers,
        attributes,
        custom,
        () if letters is None else _decode_letters(letters),
        first,
    )
