"""Memory instance stores with one mistake each: commits of what they must refuse, or forget.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

from msgspec.structs import replace

from outlive.drivers.memory.instance_rows import OwnerRow
from outlive.names import HostId
from tests.conformance.planted_instances import Defective


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


class RepeatedCommitHasTheTimeOfTheRepeat(Defective):
    caught_by = ("test_a_commit_sent_again_is_answered_with_the_time_of_its_row",)

    async def commit(self, commits):
        outcomes = await super().commit(commits)
        with self._step() as step:
            return [replace(one, at_us=step.now_us) for one in outcomes]


class SuspensionIsNotTold(Defective):
    caught_by = ("test_a_commit_says_that_somebody_suspended_it",)

    async def commit(self, commits):
        return [replace(one, suspended=False) for one in await super().commit(commits)]
