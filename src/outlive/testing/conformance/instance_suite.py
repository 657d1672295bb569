"""The suite of the ``InstanceStore`` port, joined from its parts.

Owns the opening and closing of a driver; each part owns the cases of one noun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from outlive.errors import StoreUnavailable
from outlive.model.instance import ClaimedInstance, InstanceFilter
from outlive.names import InstanceId
from outlive.testing.conformance.instance_claim import AnswerCases, ClaimCases
from outlive.testing.conformance.instance_commit import CommitCases, EndCases, RestartCases
from outlive.testing.conformance.instance_concurrency import ConcurrencyCases
from outlive.testing.conformance.instance_family import FamilyCases
from outlive.testing.conformance.instance_hearing import OwnerCases, WatcherCases
from outlive.testing.conformance.instance_jobs import CommittedJobCases, JobAnswerCases
from outlive.testing.conformance.instance_mailbox import LetterCases, SendCases
from outlive.testing.conformance.instance_names import NameCases, NamespaceCases
from outlive.testing.conformance.instance_operate import (
    PurgeCases,
    ReopenCases,
    SuspendCases,
    TerminateCases,
)
from outlive.testing.conformance.instance_outgoing import AllOrNothingCases
from outlive.testing.conformance.instance_reading import FilterCases, ListCases, ReadCases
from outlive.testing.conformance.instance_repeats import RepeatCases
from outlive.testing.conformance.instance_runner import Runner, runner
from outlive.testing.conformance.instance_sessions import (
    ReclaimCases,
    ReleaseCases,
    SessionCases,
)
from outlive.testing.conformance.instance_start import (
    DueCases,
    ForkCases,
    StartCases,
    StartOwnedCases,
)
from outlive.testing.conformance.instance_transact import TransactCases
from outlive.testing.conformance.instance_waiting import (
    SilenceCases,
    SlipCases,
    WaitingCases,
)
from outlive.testing.conformance.lab import Lab, scenario

Call = Callable[[], Awaitable[object]]


class InstanceStoreSuite(
    StartCases,
    StartOwnedCases,
    DueCases,
    ForkCases,
    ClaimCases,
    AnswerCases,
    CommitCases,
    EndCases,
    RestartCases,
    AllOrNothingCases,
    TransactCases,
    SendCases,
    LetterCases,
    SessionCases,
    ReclaimCases,
    ReleaseCases,
    RepeatCases,
    TerminateCases,
    FamilyCases,
    SuspendCases,
    ReopenCases,
    PurgeCases,
    ReadCases,
    ListCases,
    FilterCases,
    WaitingCases,
    OwnerCases,
    WatcherCases,
    SilenceCases,
    SlipCases,
    CommittedJobCases,
    JobAnswerCases,
    NameCases,
    NamespaceCases,
    ConcurrencyCases,
):
    """What every instance store does. A subclass defines the ``lab`` fixture."""

    @pytest.fixture
    def lab(self) -> Lab:
        raise AssertionError("a driver's suite defines a fixture that returns its Lab")

    @scenario
    async def test_instances_are_offered_exactly_where_promised(self, lab: Lab) -> None:
        driver = await lab.open()
        assert (driver.instances is not None) == lab.capabilities.instances

    @scenario
    async def test_every_call_after_close_says_unavailable(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.member.driver.close()
        for call in _every_call(a, held):
            with pytest.raises(StoreUnavailable):
                await call()

    @scenario
    async def test_an_owner_outlives_the_driver_that_made_it(self, lab: Lab) -> None:
        a, b = await runner(lab, "a"), await runner(lab, "b")
        held = await a.own("i")
        await a.member.driver.close()
        assert await b.ids() == []
        assert (await b.commit(held)).ok

    @scenario
    async def test_instances_and_tokens_outlive_everybody(self, lab: Lab) -> None:
        if lab.capabilities.across == "process":
            pytest.skip("a store within the process does not outlive its last driver")
        a = await runner(lab)
        held = await a.advance(await a.own("i"), release=True)
        await a.put_ended("ended")
        await a.send("i", "m")
        await a.member.driver.close()
        b = await runner(lab, "b")
        assert (await b.record("ended")).outcome == "1"
        claimed = await b.claim_one()
        assert (claimed.id, claimed.version) == ("i", 1)
        assert claimed.token > held.token
        assert [letter.id for letter in claimed.letters] == ["m"]


def _every_call(a: Runner, held: ClaimedInstance) -> list[Call]:
    id_ = InstanceId("i")
    return [
        lambda: a.start(a.new("j")),
        a.claim,
        lambda: a.commit(held),
        lambda: a.release(held),
        lambda: a.mail("i"),
        lambda: a.send("i", "m"),
        a.reclaim,
        lambda: a.instances.tend(limit=1),
        lambda: a.instances.get(id_),
        lambda: a.instances.get(id_, wait_us=1),
        lambda: a.instances.reply(id_, "m"),
        lambda: a.instances.history(id_, after=0, limit=1),
        a.list,
        lambda: a.instances.count(InstanceFilter()),
        lambda: a.terminate("i"),
        lambda: a.suspend("i"),
        lambda: a.resume("i"),
        lambda: a.reopen("i", 1),
        lambda: a.purge("i"),
        lambda: a.instances.ring([id_]),
    ]
