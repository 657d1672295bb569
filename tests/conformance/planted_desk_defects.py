"""Memory instance stores with one mistake each: what operators see and do.

Each class is named for what is wrong with it, and carries the sentences of the suite that find it.
"""

from __future__ import annotations

from msgspec.structs import replace

from outlive.model.instance import Opened
from tests.conformance.planted_instances import Defective


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


class TerminationForgetsTheChildren(Defective):
    caught_by = ("test_a_termination_reaches_children_and_their_children",)

    async def terminate(self, id, *, below=None, **fields):  # noqa: A002 - the port's name
        del below
        return await super().terminate(id, **fields)


class TerminationForgetsTheGrandchildren(Defective):
    caught_by = ("test_a_termination_reaches_children_and_their_children",)

    async def terminate(self, id, *, below=None, **fields):  # noqa: A002 - the port's name
        children = list(self.table.children.get(id, ())) if below is not None else ()
        outcome = await super().terminate(id, **fields)
        for child in children:
            await super().terminate(child, outcome=below)
        return outcome


class TerminationKnowsNoPolicy(Defective):
    caught_by = (
        "test_a_termination_spares_those_that_are_to_outlive_it",
        "test_a_child_that_a_commit_started_keeps_its_policy",
    )

    async def terminate(self, id, **fields):  # noqa: A002 - the port's name
        for row in self.table.rows.values():
            row.new = replace(row.new, outlives=False)
        return await super().terminate(id, **fields)


class TerminationReachesEarlierRuns(Defective):
    caught_by = ("test_a_run_that_began_anew_has_left_its_children_alone",)

    async def terminate(self, id, **fields):  # noqa: A002 - the port's name
        if (row := self.row(id)) is not None:
            row.began_us = 0
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


class ReopeningMovesTheBeginning(Defective):
    caught_by = ("test_the_time_that_something_was_recorded_by_stays",)

    async def reopen(self, id, *, version, events):  # noqa: A002 - the port's name
        opened = await super().reopen(id, version=version, events=events)
        if opened is Opened.CHANGED:
            self.row(id).began_us = min(self.row(id).began_us, self.row(id).updated_us)
        return opened


class ReopeningKeepsTheTimeOfTomorrow(Defective):
    caught_by = ("test_the_time_of_what_is_reopened_before_it_was_due_begins_then",)

    async def reopen(self, id, *, version, events):  # noqa: A002 - the port's name
        row = self.row(id)
        began_us = None if row is None else row.began_us
        opened = await super().reopen(id, version=version, events=events)
        if row is not None:
            row.began_us = began_us
        return opened


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
