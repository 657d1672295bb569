"""Memory instance stores with one mistake each: letters, what commits send out, and rings.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

from contextlib import contextmanager

from msgspec.structs import replace

from outlive.model.instance import InstanceStatus
from outlive.ports.wakeups import Wakeup
from tests.conformance.planted_instances import Defective


class LetterIsDeletedWhenItIsRead(Defective):
    caught_by = (
        "test_reading_takes_nothing_out",
        "test_a_mailbox_survives_its_owners",
    )

    async def claim(self, request):
        found = await super().claim(request)
        for one in found.instances:
            self.row(one.id).letters.clear()
        return found

    async def letters(self, id, *, after, limit):  # noqa: A002 - the port's name
        found = await super().letters(id, after=after, limit=limit)
        for letter in found:
            del self.row(id).letters[letter.number]
        return found


class LetterIsDeletedBeforeTheCommit(Defective):
    caught_by = ("test_nothing_of_a_refused_commit_goes_out",)

    async def commit(self, commits):
        for commit in commits:
            for number in commit.consumed:
                self.row(commit.id).letters.pop(number, None)
        return await super().commit(commits)


class CursorInsteadOfDeletion(Defective):
    caught_by = ("test_a_commit_takes_out_what_it_names_and_no_more",)

    async def commit(self, commits):
        return await super().commit(
            [
                replace(
                    one,
                    consumed=tuple(
                        number
                        for number in self.row(one.id).letters
                        if number <= max(one.consumed, default=0)
                    ),
                )
                for one in commits
            ]
        )


class AnybodysLetterIsConsumed(Defective):
    caught_by = ("test_numbers_of_nothing_are_nothing",)

    async def commit(self, commits):
        for commit in commits:
            for row in self.table.rows.values():
                for number in commit.consumed:
                    row.letters.pop(number, None)
        return await super().commit(commits)


class ParkingForgetsTheLetters(Defective):
    caught_by = (
        "test_a_letter_that_came_before_the_parking_wakes_it",
        "test_a_commit_that_parks_with_letters_rings",
    )

    async def commit(self, commits):
        outcomes = await super().commit(commits)
        for commit in commits:
            row = self.row(commit.id)
            if commit.release and row is not None:
                self.table.definition(row.new.kind, row.new.name).mailed.remove(row.id)
        return outcomes


class LettersWakeNobody(Defective):
    caught_by = ("test_a_parked_instance_wakes_by_a_letter",)

    async def claim(self, request):
        for definition in self.table.definitions.values():
            for id_ in list(definition.mailed):
                definition.mailed.remove(id_)
        return await super().claim(request)


class LettersBeginWhatIsDelayed(Defective):
    caught_by = ("test_what_was_never_begun_waits_for_its_time_with_its_letters",)

    async def claim(self, request):
        for row in self.table.rows.values():
            if row.letters and row.owner is None and row.ended is None and not row.suspended:
                first = next(iter(row.letters.values()))
                definition = self.table.definition(row.new.kind, row.new.name)
                definition.mailed.remove(row.id)
                definition.mailed.add(row.id, first.sent_at_us, row.number)
        return await super().claim(request)


class WishesToCancelWait(Defective):
    caught_by = ("test_a_wish_to_cancel_does_not_wait_for_the_time",)

    async def claim(self, request):
        for row in self.table.rows.values():
            if not row.token:
                self.table.definition(row.new.kind, row.new.name).mailed.remove(row.id)
        return await super().claim(request)


class LastLetterIsFirst(Defective):
    caught_by = ("test_letters_are_in_the_order_of_sending",)

    async def letters(self, id, *, after, limit):  # noqa: A002 - the port's name
        return tuple(reversed(await super().letters(id, after=after, limit=limit)))


class MessagesHaveNoId(Defective):
    caught_by = (
        "test_a_second_message_of_an_id_is_nothing",
        "test_sending_again_is_a_duplicate",
    )

    async def send(self, messages):
        for message in messages:
            if (row := self.row(message.to)) is not None:
                row.seen.clear()
        return await super().send(messages)


class MessageIdsAreForgottenOnceRead(Defective):
    caught_by = ("test_a_message_that_was_read_is_not_sent_again",)

    async def commit(self, commits):
        outcomes = await super().commit(commits)
        for commit in commits:
            row = self.row(commit.id)
            row.seen = {letter.id for letter in row.letters.values()}
        return outcomes


class NumbersBeginAgain(Defective):
    caught_by = ("test_numbers_grow_after_all_were_read",)

    async def send(self, messages):
        if not any(row.letters for row in self.table.rows.values()):
            self.table.letters = 0
        return await super().send(messages)


class NoMailboxIsFull(Defective):
    caught_by = ("test_a_full_mailbox_takes_no_more_from_outside",)

    async def send(self, messages):
        with self._step() as step:
            return [step.send(message, limit=None) for message in messages]


class TheEndedGetLetters(Defective):
    caught_by = ("test_nobody_writes_to_the_ended_or_the_unknown",)

    async def send(self, messages):
        rows = [row for one in messages if (row := self.row(one.to)) is not None and row.ended]
        ended = [row.ended for row in rows]
        for row in rows:
            row.ended = None
        outcomes = await super().send(messages)
        for row, status in zip(rows, ended, strict=True):
            row.ended = status
        return outcomes


class EndKeepsTheMailbox(Defective):
    caught_by = ("test_an_end_empties_the_mailbox",)

    async def commit(self, commits):
        before = {one.id: dict(self.row(one.id).letters) for one in commits}
        outcomes = await super().commit(commits)
        for commit in commits:
            if commit.status is not InstanceStatus.RUNNING:
                self.row(commit.id).letters = before[commit.id]
        return outcomes


class RestartEmptiesTheMailbox(Defective):
    caught_by = ("test_unread_letters_stay_for_the_new_run",)

    async def commit(self, commits):
        outcomes = await super().commit(commits)
        for commit in commits:
            if commit.restart is not None:
                self.row(commit.id).letters.clear()
        return outcomes


class MessagesGoOutBeforeTheCommit(Defective):
    caught_by = (
        "test_nothing_of_a_refused_commit_goes_out",
        "test_who_lost_it_can_do_nothing_more",
    )

    async def commit(self, commits):
        await self.send([message for commit in commits for message in commit.sends])
        return await super().commit(commits)


class StartsAreOwned(Defective):
    caught_by = ("test_a_commit_starts_for_nobody",)

    async def commit(self, commits):
        for commit in commits:
            await self.start(commit.starts)
        return await super().commit(commits)


class TakenIdsAreNotTold(Defective):
    caught_by = (
        "test_an_id_that_others_have_is_taken_and_the_rest_committed",
        "test_a_commit_sent_again_is_ok_and_changes_nothing",
    )

    async def commit(self, commits):
        return [replace(one, taken=()) for one in await super().commit(commits)]


class RepliesAreForgotten(Defective):
    caught_by = ("test_a_reply_is_kept_as_long_as_the_instance",)

    async def commit(self, commits):
        for commit in commits:
            self.row(commit.id).replies.clear()
        return await super().commit(commits)


class JobsOfACommitAreForgotten(Defective):
    caught_by = ("test_jobs_are_enqueued_with_the_commit",)

    async def commit(self, commits):
        return await super().commit([replace(one, jobs=()) for one in commits])


class EndedJobsDoNotAnswer(Defective):
    caught_by = (
        "test_a_done_job_answers_with_its_result",
        "test_a_cancelled_job_answers",
        "test_a_job_that_was_lost_too_often_answers",
        "test_a_job_that_is_not_taken_answers_at_once",
    )

    def attach(self, driver):
        sound = driver.jobs._step

        @contextmanager
        def silent():
            with sound() as step:
                yield step
                step.answers.clear()

        driver.jobs._step = silent


class NobodyIsRung(Defective):
    caught_by = (
        "test_a_start_rings",
        "test_a_reclaim_rings",
        "test_a_letter_for_what_is_parked_rings",
        "test_the_owner_hears_of_each_letter",
        "test_the_owner_hears_that_it_was_taken_away",
        "test_a_watcher_hears_of_the_end",
        "test_waiting_hosts_miss_nothing",
    )

    @contextmanager
    def _step(self):
        with super()._step() as step:
            yield step
            step.fresh.clear()
            step.calls.clear()


class EverybodyIsRung(Defective):
    caught_by = ("test_who_does_not_wait_is_not_rung", "test_who_had_enough_is_not_rung")

    async def start(self, instances):
        started = await super().start(instances)
        with self._step() as step:
            for host in list(self._space.listening):
                step.calls.append((host, Wakeup("instances/flow/f")))
        return started


class SessionIsRungInsteadOfItsHost(Defective):
    caught_by = (
        "test_who_waits_for_the_session_of_another_is_rung_itself",
        "test_the_owner_is_the_host_that_claimed",
    )

    async def claim(self, request):
        host, self._host = self._host, request.session
        found = await super().claim(request)
        self._host = host
        return found


class LostRingsAreNotMadeGood(Defective):
    caught_by = ("test_a_claim_names_what_has_letters",)

    async def claim(self, request):
        return replace(await super().claim(request), letters=())
