"""Memory job stores with one mistake each, as a driver author might make it.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

import asyncio
import dataclasses

from msgspec.structs import replace

from outlive.drivers.memory import MemoryFactory
from outlive.drivers.memory.job_claim import leave_notes
from outlive.drivers.memory.job_store import MemoryJobStore
from outlive.drivers.memory.lines import Line
from outlive.model.job import (
    ALL_PARTS,
    FINAL,
    Changed,
    Enqueued,
    Entry,
    JobState,
    LimitsBy,
    Reclaimed,
    Settled,
    Tended,
)
from outlive.ports.wakeups import Wakeup


class PlantedJobFactory(MemoryFactory):
    """Opens memory drivers whose job store is the given one."""

    def __init__(self, defect):
        self._defect = defect

    async def open(self, location, context):
        driver = await super().open(location, context)
        space = driver.leases._space
        jobs = self._defect(space, context.clock, context.host, driver.wakeups.ring_host)
        jobs.store = driver._store
        driver.jobs = jobs
        return driver


class Defective(MemoryJobStore):
    """A sound store still: the control of the experiment."""

    caught_by: tuple[str, ...] = ()

    @property
    def table(self):
        return self._space.jobs

    def row(self, job):
        return self.table.rows[job]


class ClaimAsksForNoSession(Defective):
    caught_by = (
        "test_a_session_that_ended_claims_nothing",
        "test_no_claim_outlives_a_session_that_ends_meanwhile",
    )

    def _check_session(self, step, session):
        pass


class LateSessionMayClaim(Defective):
    caught_by = ("test_a_session_whose_time_ran_out_claims_nothing",)

    def _check_session(self, step, session):
        if session in self._space.sessions:
            self._space.sessions[session].expires_us = 2**62
        super()._check_session(step, session)


class IdMeansNoQueue(Defective):
    caught_by = (
        "test_an_id_of_another_queue_is_a_conflict",
        "test_a_conflict_is_that_of_its_job_alone",
    )

    async def enqueue(self, jobs):
        added = await super().enqueue(jobs)
        return [
            Enqueued(one.id, Entry.CREATED) if one.entry is Entry.CONFLICT else one for one in added
        ]


class CompletionAsksForNoToken(Defective):
    caught_by = (
        "test_a_stale_token_changes_nothing",
        "test_a_token_nobody_has_yet_changes_nothing",
    )

    async def complete(self, completions):
        rows = self.table.rows
        return await super().complete(
            [
                replace(one, token=rows[one.id].token) if one.id in rows else one
                for one in completions
            ]
        )


class ExtendAsksForNoToken(Defective):
    caught_by = (
        "test_a_stale_token_changes_nothing",
        "test_who_lost_its_claim_can_do_nothing_more",
    )

    async def extend(self, extensions):
        return [Settled.OK for _ in extensions]


class NothingIsPromoted(Defective):
    caught_by = ("test_a_delayed_job_is_claimed_when_due", "test_a_retry_is_claimed_when_due")

    async def claim(self, request):
        for queue in self.table.queues.values():
            queue.due = Line()
        return await super().claim(request)


class SomeOfThePromotedAreLost(Defective):
    caught_by = ("test_many_that_come_due_together_are_all_claimed",)

    async def claim(self, request):
        found = await super().claim(request)
        for queue in self.table.queues.values():
            if len(queue.ready) > 400:
                queue.ready.remove(next(iter(queue.ready)))
        return found


class DelaysAreIgnored(Defective):
    caught_by = ("test_a_delayed_job_is_scheduled", "test_a_delayed_job_is_not_claimed_early")

    async def enqueue(self, jobs):
        return await super().enqueue([replace(job, delay_us=0) for job in jobs])


class LastInIsFirstOut(Defective):
    caught_by = ("test_jobs_are_claimed_in_order_of_enqueueing",)

    async def enqueue(self, jobs):
        self.table.seqs = -abs(self.table.seqs) - 2 * len(jobs)
        return await super().enqueue(jobs)


class PrioritiesAreIgnored(Defective):
    caught_by = ("test_a_higher_priority_goes_first",)

    async def enqueue(self, jobs):
        return await super().enqueue([replace(job, priority=0) for job in jobs])


class UniqueKeysAreIgnored(Defective):
    caught_by = (
        "test_a_second_job_of_a_live_key_is_rejected",
        "test_of_many_with_one_unique_key_one_lives",
    )

    async def enqueue(self, jobs):
        return await super().enqueue([replace(job, unique_key=None) for job in jobs])


class OrderingKeysAreIgnored(Defective):
    caught_by = (
        "test_one_job_of_a_key_is_claimed_at_a_time",
        "test_an_ordering_key_is_kept_under_load",
    )

    async def enqueue(self, jobs):
        added = await super().enqueue(jobs)
        with self._step() as step:
            for row in self.table.rows.values():
                if row.blocked:
                    row.blocked = False
                    step.ready(row)
        return added


class RetryingJobLosesItsTurn(Defective):
    caught_by = ("test_a_retry_holds_up_those_behind",)

    async def fail(self, failures):
        outcomes = await super().fail(failures)
        with self._step() as step:
            for row in self.table.rows.values():
                if row.blocked:
                    row.blocked = False
                    step.ready(row)
        return outcomes


class ReclaimTakesFromTheLiving(Defective):
    caught_by = ("test_the_living_lose_nothing",)

    async def reclaim(self, *, limit):
        sessions, self._space.sessions = self._space.sessions, {}
        taken = await super().reclaim(limit=limit)
        self._space.sessions = sessions
        return taken


class ReclaimTakesFromTheLate(Defective):
    caught_by = ("test_an_expired_session_keeps_its_claims_until_it_is_reaped",)

    async def reclaim(self, *, limit):
        now_us = round(self._clock.monotonic() * 1e6)
        sessions = self._space.sessions
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
        for host in set(self.table.claims) - set(self._space.sessions):
            del self.table.claims[host]
        return taken


class LossesAreNotCounted(Defective):
    caught_by = ("test_a_loss_is_kept_and_counted_apart", "test_too_many_losses_are_the_end")

    async def reclaim(self, *, limit):
        taken = await super().reclaim(limit=limit)
        for found in taken:
            self.row(found.id).losses = 0
        return taken


class TheLostGoToTheEnd(Defective):
    caught_by = ("test_what_was_taken_is_ready_at_its_old_place",)

    async def reclaim(self, *, limit):
        taken = await super().reclaim(limit=limit)
        with self._step() as step:
            for found in taken:
                step.wait(self.row(found.id), step.now_us, JobState.READY)
        return [Reclaimed(found.id, found.queue, JobState.READY) for found in taken]


class ReleaseCountsAnAttempt(Defective):
    caught_by = ("test_a_released_job_counts_nothing",)

    async def release(self, returns):
        outcomes = await super().release(returns)
        for returned in returns:
            self.row(returned.id).attempts += 1
        return outcomes


class TheReleasedGoToTheEnd(Defective):
    caught_by = ("test_a_released_job_keeps_its_place",)

    async def release(self, returns):
        outcomes = await super().release(returns)
        with self._step() as step:
            for returned in returns:
                step.wait(self.row(returned.id), step.now_us, JobState.READY)
        return outcomes


class RepeatedFailureCountsTwice(Defective):
    caught_by = ("test_failing_again_is_ok_and_counts_once",)

    async def fail(self, failures):
        repeated = [one for one in failures if self.row(one.id).state is not JobState.CLAIMED]
        outcomes = await super().fail(failures)
        for failure in repeated:
            self.row(failure.id).attempts += 1
        return outcomes


class RepeatedCompletionIsLost(Defective):
    caught_by = ("test_completing_again_is_ok_and_changes_nothing",)

    async def complete(self, completions):
        late = [self.table.rows[one.id].state in FINAL for one in completions]
        outcomes = await super().complete(completions)
        return [Settled.LOST if was else now for was, now in zip(late, outcomes, strict=True)]


class RepeatedClaimTakesOthers(Defective):
    caught_by = (
        "test_a_claim_asked_again_returns_the_same_claims",
        "test_a_claim_asked_again_that_had_too_little_takes_no_more",
    )

    async def claim(self, request):
        return await super().claim(replace(request, again=False))


class RepeatedClaimIsForAnybody(Defective):
    caught_by = ("test_nobody_gets_the_claims_of_another_by_asking_again",)

    async def claim(self, request):
        if request.again:
            for row in self.table.rows.values():
                if row.claim is not None and row.claim.request == request.request:
                    mine = self.table.claims.setdefault(request.session, {})
                    mine[row.job.id] = None
        return await super().claim(request)


class NoteIsWrittenAfterTheLook(Defective):
    caught_by = ("test_nothing_slips_between_the_look_and_the_note",)

    async def claim(self, request):
        found = await super().claim(replace(request, wait_us=0))
        if request.wait_us and len(found.jobs) < request.limit:
            await asyncio.sleep(0.005)
            with self._step() as step:
                leave_notes(step, request, self._host)
        return found


class NobodyIsRung(Defective):
    caught_by = ("test_an_enqueue_rings", "test_a_reclaim_rings", "test_waiting_hosts_miss_nothing")

    def __init__(self, space, clock, host, ring):
        super().__init__(space, clock, host, lambda _host, _wakeup: None)


class EverybodyIsRung(Defective):
    caught_by = ("test_who_does_not_wait_is_not_rung", "test_a_note_is_for_one_ring")

    async def enqueue(self, jobs):
        added = await super().enqueue(jobs)
        for host in list(self._space.listening):
            self._ring(host, Wakeup("work/q"))
        return added


class SessionIsRungInsteadOfItsHost(Defective):
    caught_by = ("test_who_waits_for_the_session_of_another_is_rung_itself",)

    async def claim(self, request):
        host, self._host = self._host, request.session
        found = await super().claim(request)
        self._host = host
        return found


class TokensRestart(Defective):
    caught_by = (
        "test_tokens_grow_with_each_claim",
        "test_tokens_grow_for_an_id_that_is_used_again",
    )

    async def claim(self, request):
        self.table.tokens = 0
        return await super().claim(request)


class PausedQueueGives(Defective):
    caught_by = ("test_a_paused_queue_takes_jobs_and_gives_none",)

    async def claim(self, request):
        for queue in self.table.queues.values():
            queue.settings = None
        return await super().claim(request)


class DrainingQueueTakes(Defective):
    caught_by = ("test_a_draining_queue_gives_jobs_and_takes_none",)

    async def enqueue(self, jobs):
        for queue in self.table.queues.values():
            queue.settings = None
        return await super().enqueue(jobs)


class LimitIsLookedAtOnce(Defective):
    caught_by = (
        "test_no_more_jobs_are_claimed_than_may_run",
        "test_a_limit_holds_under_load",
    )

    async def claim(self, request):
        counts = {name: dict(queue.counts) for name, queue in self.table.queues.items()}
        for queue in self.table.queues.values():
            queue.counts[JobState.CLAIMED] = 0
        found = await super().claim(request)
        for name, queue in self.table.queues.items():
            mine = sum(1 for job in found.jobs if job.queue == name)
            queue.counts[JobState.CLAIMED] = counts[name].get(JobState.CLAIMED, 0) + mine
        return found


class TheExpiredIsClaimed(Defective):
    caught_by = ("test_an_expired_job_is_never_claimed",)

    async def claim(self, request):
        for row in self.table.rows.values():
            row.expires_us = None
        return await super().claim(request)


class CancellationIsForgotten(Defective):
    caught_by = ("test_a_claimant_that_gives_up_ends_a_cancelled_job",)

    async def fail(self, failures):
        for failure in failures:
            self.row(failure.id).cancel = None
        return await super().fail(failures)


class CancelEndsWhatRuns(Defective):
    caught_by = ("test_a_claimant_hears_that_its_job_is_to_be_cancelled",)

    async def cancel(self, ids, *, reason):
        with self._step() as step:
            for id_ in ids:
                if id_ in self.table.rows and self.row(id_).state is JobState.CLAIMED:
                    step.end(self.row(id_), JobState.CANCELLED)
        return [Changed.CHANGED for _ in ids]


class TheEndedLiveAgain(Defective):
    caught_by = ("test_an_id_that_has_ended_does_not_live_again",)

    async def enqueue(self, jobs):
        await self.purge([job.id for job in jobs])
        return await super().enqueue(jobs)


class TheLivingAreDeleted(Defective):
    caught_by = ("test_only_the_ended_are_deleted",)

    async def purge(self, ids):
        await self.cancel(ids, reason="deleted")
        return await super().purge(ids)


class NothingIsPruned(Defective):
    caught_by = ("test_an_ended_job_is_kept_for_its_retention",)

    async def tend(self, *, limit):
        tended = await super().tend(limit=0)
        return Tended(tended.expired, 0)


class JobsLeakIntoOtherNamespaces(Defective):
    caught_by = ("test_namespaces_do_not_see_each_other",)

    async def get(self, id):  # noqa: A002 - the port's name
        for space in self.store._spaces.values():
            own, self._space = self._space, space
            found = await super().get(id)
            self._space = own
            if found is not None:
                return found
        return None


class PagesSkipWhatChanged(Defective):
    caught_by = ("test_pages_are_in_order_and_skip_nothing",)

    async def list(self, wanted, *, after, limit):
        page = await super().list(wanted, after=after, limit=limit)
        return [record for record in page if after is None or record.token == 0]


class DeclarationOverrulesTheOperator(Defective):
    caught_by = (
        "test_limits_of_an_operator_stay_until_they_are_lifted",
        "test_limits_that_an_operator_sets_first_are_kept_too",
        "test_an_operator_a_handler_and_a_pause_at_once_lose_nothing",
    )

    async def put_queue(self, settings, *, parts=ALL_PARTS):
        held = self.table.queue(settings.name)
        if held.settings is not None:
            held.settings = dataclasses.replace(held.settings, limits_by=LimitsBy.HANDLER)
        await super().put_queue(settings, parts=parts)


DEFECTS: tuple[type[Defective], ...] = tuple(Defective.__subclasses__())
