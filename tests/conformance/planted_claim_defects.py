"""Memory instance stores with one mistake each: starting, claiming, giving up and taking back.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from outlive.drivers.memory.instance_claim import leave_notes
from outlive.model.instance import Entry
from tests.conformance.planted_instances import Defective


class ClaimAsksForNoSession(Defective):
    caught_by = (
        "test_a_session_that_ended_claims_nothing",
        "test_a_session_that_does_not_live_starts_nothing",
        "test_no_owner_outlives_a_session_that_ends_meanwhile",
    )

    def _check_session(self, step, session):
        pass


class LateSessionMayClaim(Defective):
    caught_by = (
        "test_a_session_whose_time_ran_out_claims_nothing",
        "test_a_session_whose_time_ran_out_starts_nothing",
    )

    def _check_session(self, step, session):
        if session in self._space.sessions:
            self._space.sessions[session].expires_us = 2**62
        super()._check_session(step, session)


class ReclaimKeepsTheToken(Defective):
    caught_by = ("test_each_reclaim_makes_the_token_greater",)

    async def reclaim(self, *, limit):
        taken = await super().reclaim(limit=limit)
        for found in taken:
            self.row(found.id).token -= 1
        return taken


class ReclaimMovesTheBeginning(Defective):
    caught_by = ("test_the_time_that_something_was_recorded_by_stays",)

    async def reclaim(self, *, limit):
        taken = await super().reclaim(limit=limit)
        with self._step() as step:
            for found in taken:
                self.row(found.id).began_us = min(self.row(found.id).began_us, step.now_us)
        return taken


class WhatIsClaimedEarlyHasItsTimeInTheFuture(Defective):
    caught_by = ("test_the_time_of_what_is_claimed_before_it_is_due_begins_then",)

    async def claim(self, request):
        began = {id_: row.began_us for id_, row in self.table.rows.items()}
        answer = await super().claim(request)
        for one in answer.instances:
            self.row(one.id).began_us = began[one.id]
        found = [replace(one, began_at_us=began[one.id]) for one in answer.instances]
        return replace(answer, instances=tuple(found))


class ReclaimTakesFromTheLiving(Defective):
    caught_by = ("test_the_living_lose_nothing",)

    async def reclaim(self, *, limit):
        sessions, self._space.sessions = self._space.sessions, {}
        taken = await super().reclaim(limit=limit)
        self._space.sessions = sessions
        return taken


class ReclaimTakesFromTheLate(Defective):
    caught_by = ("test_an_expired_session_keeps_what_it_has_until_it_is_reaped",)

    async def reclaim(self, *, limit):
        sessions = self._space.sessions
        with self._step() as step:
            now_us = step.clock_us
        self._space.sessions = {
            id_: row for id_, row in sessions.items() if row.expires_us > now_us
        }
        taken = await super().reclaim(limit=limit)
        self._space.sessions = sessions
        return taken


class ReclaimHappensOnce(Defective):
    caught_by = ("test_reclaiming_keeps_to_its_limit",)

    async def reclaim(self, *, limit):
        taken = await super().reclaim(limit=limit)
        for host in set(self.table.owned) - set(self._space.sessions):
            del self.table.owned[host]
        return taken


class TheReclaimedWaitForTheirTime(Defective):
    caught_by = ("test_what_was_taken_can_be_claimed_at_once",)

    async def reclaim(self, *, limit):
        before = {id_: row.due_us for id_, row in self.table.rows.items()}
        taken = await super().reclaim(limit=limit)
        with self._step() as step:
            for found in taken:
                self.row(found.id).due_us = before[found.id]
                step.place(self.row(found.id))
        return taken


class StartIsNotIdempotent(Defective):
    caught_by = (
        "test_a_batch_started_again_adds_nothing",
        "test_a_start_is_known_whatever_became_of_it",
    )

    async def start(self, instances):
        there = {new.id for new in instances if self.row(new.id) is not None}
        return [
            replace(one, entry=Entry.EXISTING) if one.id in there else one
            for one in await super().start(instances)
        ]


class StartOverwrites(Defective):
    caught_by = (
        "test_an_id_that_is_there_is_existing_and_stays",
        "test_an_id_that_has_ended_does_not_live_again",
    )

    async def start(self, instances):
        for new in instances:
            if (row := self.row(new.id)) is not None:
                self.table.remove(row)
        return await super().start(instances)


class StartAddsSomeOfABatch(Defective):
    caught_by = ("test_a_session_that_does_not_live_starts_nothing",)

    async def start(self, instances):
        started = []
        for new in instances:
            started.extend(await super().start([new]))
        return started


class StartForgetsTheFork(Defective):
    caught_by = ("test_a_history_to_begin_with_is_its_history",)

    async def start(self, instances):
        return await super().start([replace(new, history=()) for new in instances])


class TheSuspendedIsClaimed(Defective):
    caught_by = (
        "test_the_ended_and_the_suspended_are_not_claimed",
        "test_a_suspended_instance_is_claimed_when_it_is_resumed",
    )

    async def claim(self, request):
        with self._step() as step:
            for row in self.table.rows.values():
                row.suspended = False
                step.place(row)
        return await super().claim(request)


class ClaimIsTooEarly(Defective):
    caught_by = (
        "test_a_delayed_instance_is_not_claimed_early",
        "test_a_parked_instance_waits_for_its_time",
        "test_it_is_never_claimed_before_its_time_by_the_clock_of_the_store",
    )

    async def claim(self, request):
        with self._step() as step:
            for row in self.table.rows.values():
                if row.due_us is not None:
                    row.due_us = min(row.due_us, step.now_us)
                    step.place(row)
        return await super().claim(request)


class NothingComesDue(Defective):
    caught_by = (
        "test_a_delayed_instance_is_claimed_when_due",
        "test_a_parked_instance_waits_for_its_time",
    )

    async def claim(self, request):
        for definition in self.table.definitions.values():
            for id_ in list(definition.due):
                if self.row(id_).due_us > self.row(id_).updated_us:
                    definition.due.remove(id_)
        return await super().claim(request)


class AnyDefinitionIsClaimed(Defective):
    caught_by = ("test_only_the_definitions_that_are_named_are_claimed",)

    async def claim(self, request):
        names = tuple(name for kind, name in self.table.definitions if kind == request.kind)
        return await super().claim(replace(request, names=names))


class TokensStandStill(Defective):
    caught_by = ("test_tokens_grow_with_each_claim", "test_a_stale_token_commits_nothing")

    async def claim(self, request):
        found = await super().claim(request)
        for one in found.instances:
            self.row(one.id).token = 1
        return replace(found, instances=tuple(replace(one, token=1) for one in found.instances))


class RepeatedClaimTakesOthers(Defective):
    caught_by = (
        "test_a_claim_asked_again_returns_the_same",
        "test_a_claim_asked_again_that_had_too_little_takes_no_more",
    )

    async def claim(self, request):
        return await super().claim(replace(request, again=False))


class RepeatedClaimBringsTheCommitted(Defective):
    caught_by = ("test_only_what_is_still_owned_and_not_committed_comes_back",)

    async def claim(self, request):
        for row in self.table.rows.values():
            if row.owner is not None:
                row.owner.version = row.version
        return await super().claim(request)


class NoteIsWrittenAfterTheLook(Defective):
    caught_by = ("test_nothing_slips_between_the_look_and_the_note",)

    async def claim(self, request):
        found = await super().claim(replace(request, wait_us=0))
        if request.wait_us and len(found.instances) < request.limit:
            await asyncio.sleep(0.005)
            with self._step() as step:
                leave_notes(step, request, self._host)
        return found


class HandbackAsksForNoToken(Defective):
    caught_by = ("test_only_its_owner_gives_it_up", "test_who_lost_it_can_do_nothing_more")

    async def release(self, handbacks):
        return await super().release(
            [replace(one, token=self.row(one.id).token) for one in handbacks]
        )


class HandbackForgetsItsTime(Defective):
    caught_by = ("test_what_is_given_up_waits_for_what_it_waited_for",)

    async def release(self, handbacks):
        return await super().release([replace(one, due=True) for one in handbacks])
