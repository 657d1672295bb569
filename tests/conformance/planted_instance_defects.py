"""Memory instance stores with one mistake each, as a driver author might make it: ownership.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from holdfast.drivers.memory import MemoryFactory
from holdfast.drivers.memory.instance_claim import leave_notes
from holdfast.drivers.memory.instance_rows import OwnerRow
from holdfast.drivers.memory.instance_store import MemoryInstanceStore
from holdfast.model.instance import Entry, Opened
from holdfast.names import HostId


class PlantedInstanceFactory(MemoryFactory):
    """Opens memory drivers whose instance store is the given one."""

    def __init__(self, defect):
        self._defect = defect

    async def open(self, location, context):
        driver = await super().open(location, context)
        instances = self._defect(driver._instances._space, context.host, driver._jobs.step)
        instances.store = driver._store
        instances.attach(driver)
        driver._instances = instances
        return driver


class Defective(MemoryInstanceStore):
    """A sound store still: the control of the experiment."""

    caught_by: tuple[str, ...] = ()

    def attach(self, driver):
        pass

    @property
    def table(self):
        return self._space.instances

    def row(self, id_):
        return self.table.rows.get(id_)


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


class CommitAsksForNoToken(Defective):
    caught_by = (
        "test_a_stale_token_commits_nothing",
        "test_who_lost_it_can_do_nothing_more",
        "test_nothing_of_a_refused_commit_goes_out",
    )

    async def commit(self, commits):
        rows = self.table.rows
        return await super().commit(
            [replace(one, token=rows[one.id].token) if one.id in rows else one for one in commits]
        )


class CommitAsksForNoVersion(Defective):
    caught_by = (
        "test_only_the_next_version_is_committed",
        "test_another_commit_of_the_same_version_is_refused",
        "test_of_many_commits_of_a_version_one_counts",
    )

    async def commit(self, commits):
        return await super().commit(
            [replace(one, version=self.row(one.id).version + 1) for one in commits]
        )


class CommitAsksForNoOwner(Defective):
    caught_by = (
        "test_who_gave_it_up_commits_nothing_more",
        "test_the_former_owner_of_a_reopened_one_is_fenced",
    )

    async def commit(self, commits):
        for commit in commits:
            row = self.row(commit.id)
            if row is not None and row.owner is None and row.ended is None:
                row.owner = OwnerRow(HostId("x"), HostId("x"), "x", "", 0)
                self.table.owned.setdefault(HostId("x"), {})[row.id] = None
        return await super().commit(commits)


class CommitIdIsNotRecognised(Defective):
    caught_by = (
        "test_a_commit_sent_again_is_ok_and_changes_nothing",
        "test_a_commit_that_ended_or_parked_is_known_when_sent_again",
    )

    async def commit(self, commits):
        outcomes = await super().commit(commits)
        for commit in commits:
            row = self.row(commit.id)
            if row is not None and (written := row.row_of(commit.version)) is not None:
                written.commit = "forgotten"
        return outcomes


class OnlyTheNewestCommitIsRecognised(Defective):
    caught_by = ("test_a_commit_is_known_after_somebody_else_took_over",)

    async def commit(self, commits):
        for commit in commits:
            for written in self.row(commit.id).history[:-1]:
                written.commit = "forgotten"
        return await super().commit(commits)


class VersionAloneIsRecognised(Defective):
    caught_by = ("test_another_commit_of_the_same_version_is_refused",)

    async def commit(self, commits):
        known = [self.row(one.id).row_of(one.version) for one in commits]
        return await super().commit(
            [
                one if written is None else replace(one, commit=written.commit)
                for one, written in zip(commits, known, strict=True)
            ]
        )


class BatchStopsAtTheFirstRefusal(Defective):
    caught_by = ("test_one_refused_commit_hinders_no_other",)

    async def commit(self, commits):
        outcomes = []
        for commit in commits:
            if outcomes and not outcomes[-1].ok:
                outcomes.append(outcomes[-1])
            else:
                outcomes.extend(await super().commit([commit]))
        return outcomes


class RestartKeepsHistory(Defective):
    caught_by = (
        "test_a_restart_begins_again",
        "test_a_claim_brings_the_input_of_the_new_run",
    )

    async def commit(self, commits):
        kept = {one.id: list(self.row(one.id).history) for one in commits if one.restart}
        bases = {id_: self.row(id_).base for id_ in kept}
        outcomes = await super().commit(commits)
        for id_, history in kept.items():
            self.row(id_).history[:0] = history
            self.row(id_).base = bases[id_]
        return outcomes


class RestartKeepsTheTimeItBegan(Defective):
    caught_by = ("test_a_restart_begins_again",)

    async def commit(self, commits):
        began = {one.id: self.row(one.id).began_us for one in commits}
        outcomes = await super().commit(commits)
        for id_, began_us in began.items():
            self.row(id_).began_us = began_us
        return outcomes


class SuspensionIsNotTold(Defective):
    caught_by = ("test_a_commit_says_that_somebody_suspended_it",)

    async def commit(self, commits):
        return [replace(one, suspended=False) for one in await super().commit(commits)]


class ReclaimKeepsTheToken(Defective):
    caught_by = ("test_each_reclaim_makes_the_token_greater",)

    async def reclaim(self, *, limit):
        taken = await super().reclaim(limit=limit)
        for found in taken:
            self.row(found.id).token -= 1
        return taken


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


class TerminationKeepsTheToken(Defective):
    caught_by = ("test_a_terminated_instance_is_taken_from_its_owner",)

    async def terminate(self, id, **fields):  # noqa: A002 - the port's name
        token = self.row(id).token
        outcome = await super().terminate(id, **fields)
        self.row(id).token = token
        return outcome


class TerminationEndsTheEnded(Defective):
    caught_by = ("test_what_has_ended_otherwise_stays_so",)

    async def terminate(self, id, **fields):  # noqa: A002 - the port's name
        if (row := self.row(id)) is not None:
            row.ended = None
        return await super().terminate(id, **fields)


class ResumeWaitsForALetter(Defective):
    caught_by = (
        "test_a_suspended_instance_is_claimed_when_it_is_resumed",
        "test_a_resumed_instance_rings",
    )

    async def resume(self, id):  # noqa: A002 - the port's name
        due_us = self.row(id).due_us
        with self._step() as step:
            row = self.row(id)
            row.suspended = False
            row.due_us = due_us
            step.place(row)
        return Opened.CHANGED


class ResumeRunsWhatIsNotDue(Defective):
    caught_by = ("test_one_that_never_ran_keeps_its_time",)

    async def resume(self, id):  # noqa: A002 - the port's name
        outcome = await super().resume(id)
        with self._step() as step:
            self.row(id).due_us = step.now_us
            step.place(self.row(id))
        return outcome


class ReopeningAsksForNoVersion(Defective):
    caught_by = ("test_only_the_version_after_the_newest_reopens",)

    async def reopen(self, id, *, version, events):  # noqa: A002 - the port's name
        del version
        row = self.row(id)
        return await super().reopen(id, version=row.version + 1, events=events)


class ReopeningIsNotRecognised(Defective):
    caught_by = (
        "test_wishes_of_operators_may_be_repeated",
        "test_reopening_again_is_known_after_it_was_claimed",
    )

    async def reopen(self, id, *, version, events):  # noqa: A002 - the port's name
        if self.row(id).version >= version:
            return Opened.REFUSED
        return await super().reopen(id, version=version, events=events)


class TheLivingArePurged(Defective):
    caught_by = ("test_only_the_ended_are_forgotten",)

    async def purge(self, ids):
        for id_ in ids:
            if self.row(id_) is not None:
                await self.terminate(id_, outcome="null")
        return await super().purge(ids)


class NothingIsPruned(Defective):
    caught_by = ("test_an_ended_instance_is_kept_for_its_retention",)

    async def tend(self, *, limit):
        return await super().tend(limit=limit * 0)


class InstancesLeakIntoOtherNamespaces(Defective):
    caught_by = ("test_namespaces_do_not_see_each_other",)

    async def get(self, id, *, wait_us=0):  # noqa: A002 - the port's name
        own = self._space
        for space in self.store._spaces.values():
            self._space = space
            found = await super().get(id, wait_us=wait_us)
            self._space = own
            if found is not None:
                return found
        return None


class PagesSkipWhatChanged(Defective):
    caught_by = ("test_pages_are_in_order_and_skip_nothing",)

    async def list(self, wanted, *, after, limit):
        page = await super().list(wanted, after=after, limit=limit)
        return [record for record in page if after is None or record.token == 0]


class TruthIsOne(Defective):
    caught_by = ("test_attributes_are_compared_as_the_values_they_are",)

    def attach(self, driver):
        for row in self.table.rows.values():
            row.attributes = row.attributes.replace("true", "1")

    async def list(self, wanted, *, after, limit):
        self.attach(None)
        return await super().list(wanted, after=after, limit=limit)


OWNERSHIP: tuple[type[Defective], ...] = tuple(Defective.__subclasses__())
