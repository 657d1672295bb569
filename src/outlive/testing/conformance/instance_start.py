"""Cases of starting: an id is one instance, whoever asks, and however often."""

from __future__ import annotations

from typing import Any

import pytest

from outlive.errors import Fenced, LeaseExpired, UnsupportedByDriver, UsageError
from outlive.model.instance import CANCEL_KIND, START_MAX, Entry, InstanceStatus, Started
from outlive.names import HostId, InstanceId, Token
from outlive.testing.conformance.instance_runner import runner, runners
from outlive.testing.conformance.job_worker import PAST_S, SOON_S
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class StartCases:
    """What is started is there, once, as it was asked for."""

    @scenario
    async def test_a_started_instance_is_there_as_it_was_asked_for(self, lab: Lab) -> None:
        a = await runner(lab)
        new = a.new(
            "i",
            "order",
            kind="chart",
            input='{"x":[1,2]}',
            parent=InstanceId("boss"),
            attributes='{"who":"me"}',
            headers='{"traceparent":"00-1"}',
        )
        (started,) = await a.start(new)
        found = await a.record("i")
        assert (found.kind, found.name, found.input) == ("chart", "order", '{"x":[1,2]}')
        assert (found.attributes, found.headers) == ('{"who":"me"}', '{"traceparent":"00-1"}')
        assert (found.parent, found.status) == ("boss", InstanceStatus.PENDING)
        assert (found.token, found.version, found.base) == (0, 0, 0)
        assert (found.owner, found.owned_by) == (None, None)
        assert (found.outcome, found.custom, found.ended_at) == (None, None, None)
        assert found.began_at_us == started.began_at_us
        assert round(found.created_at.timestamp() * 1e6) == started.began_at_us
        assert await a.history("i") == []

    @scenario
    async def test_the_answers_are_in_order(self, lab: Lab) -> None:
        a = await runner(lab)
        parent = InstanceId("p")
        first, second = await a.start(a.new("x", "f", parent=parent), a.new("y", "g"))
        assert (first.id, first.name, first.parent, first.token) == ("x", "f", "p", 0)
        assert (second.id, second.name, second.parent, second.token) == ("y", "g", None, 0)
        assert {first.entry, second.entry} == {Entry.CREATED}

    @scenario
    async def test_an_id_that_is_there_is_existing_and_stays(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        (first,) = await a.start(a.new("i", "f", input="1", parent=InstanceId("p")))
        before = await a.record("i")
        (second,) = await b.start(b.new("i", "g", input="2", attributes='{"a":1}'))
        assert second == Started(
            InstanceId("i"), Entry.EXISTING, "f", InstanceId("p"), Token(0), first.began_at_us
        )
        assert await a.record("i") == before

    @scenario
    async def test_an_id_that_has_ended_does_not_live_again(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("i")
        before = await a.record("i")
        (again,) = await a.start(a.new("i"))
        assert (again.entry, again.token) == (Entry.EXISTING, 0)
        assert await a.record("i") == before
        assert await a.ids() == []

    @scenario
    async def test_an_existing_one_does_not_hinder_the_others(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("y")
        found = await a.start(a.new("x"), a.new("y"), a.new("z"), a.new("z"))
        assert [one.entry for one in found] == [
            Entry.CREATED,
            Entry.EXISTING,
            Entry.CREATED,
            Entry.EXISTING,
        ]
        assert sorted(await a.ids()) == ["x", "y", "z"]

    @scenario
    async def test_starting_nothing_is_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        assert await a.start() == []
        assert list(await a.instances.commit([])) == []
        assert list(await a.instances.send([])) == []
        assert list(await a.instances.release([])) == []

    @scenario
    async def test_as_many_as_allowed_are_started_at_once(self, lab: Lab) -> None:
        a = await runner(lab)
        many = [a.new(f"i{number}") for number in range(START_MAX + 1)]
        with pytest.raises(UsageError):
            await a.start(*many)
        assert await a.list() == []
        found = await a.start(*many[:START_MAX])
        assert {one.entry for one in found} == {Entry.CREATED}
        assert len(found) == START_MAX

    @scenario
    async def test_no_transaction_is_joined_that_is_none(self, lab: Lab) -> None:
        a = await runner(lab)
        with pytest.raises((UsageError, UnsupportedByDriver)):
            await a.instances.start_in([a.new("i")], object())
        assert not await a.exists("i")


class StartOwnedCases:
    """A host may own from the start what it starts itself."""

    @scenario
    async def test_what_is_started_for_a_session_is_its_own(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i", worker="the worker")
        found = await a.record("i")
        assert (found.status, found.token, found.version) == (InstanceStatus.RUNNING, 1, 0)
        assert (found.owner, found.owned_by) == (a.id, "the worker")
        assert await b.ids() == []
        assert (await a.commit(held)).ok

    @scenario
    async def test_a_delay_does_not_keep_it_from_its_owner(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i", delay=LONG_S)
        assert (await a.record("i")).owner == a.id
        assert await a.release(held)
        assert await b.ids() == []

    @scenario
    async def test_a_session_that_does_not_live_starts_nothing(self, lab: Lab) -> None:
        a, gone = await runners(lab, 2)
        await gone.end()
        for session in (gone.id, HostId("never-was")):
            with pytest.raises(Fenced):
                await a.start(a.new("x"), a.new("y", session=session), a.new("z"))
        assert await a.list() == []

    @scenario
    async def test_a_session_whose_time_ran_out_starts_nothing(self, lab: Lab) -> None:
        a, late = await runner(lab, "a"), await runner(lab, "late", ttl=lab.short_s)
        await lab.expire()
        with pytest.raises(LeaseExpired):
            await a.start(a.new("x"), a.new("y", session=late.id))
        assert await a.list() == []

    @scenario
    async def test_given_up_before_it_ran_it_can_be_claimed(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        assert await a.release(held)
        claimed = await b.claim_one()
        assert (claimed.id, claimed.token, claimed.version) == ("i", 2, 0)


class DueCases:
    """Not claimable before its time, by the store's clock."""

    @scenario
    async def test_a_delayed_instance_is_not_claimed_early(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", delay=LONG_S)
        assert await a.ids() == []
        assert await a.status("i") is InstanceStatus.PENDING
        found = await a.record("i")
        assert found.due_at is not None
        assert (found.due_at - found.created_at).total_seconds() == LONG_S
        # Its own time begins then: whatever it waits for by the clock is counted from there.
        assert found.began_at_us == round(found.due_at.timestamp() * 1e6)

    @scenario
    async def test_a_delayed_instance_is_claimed_when_due(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", delay=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == ["i"]

    @scenario
    async def test_an_instant_to_begin_at_is_kept(self, lab: Lab) -> None:
        a = await runner(lab)
        now_us = await a.now_us()
        await a.put("later", due_at_us=now_us + round(LONG_S * 1e6))
        await a.put("soon", due_at_us=now_us + round(SOON_S * 1e6))
        await a.put("past", due_at_us=now_us - 1_000_000)
        past = await a.record("past")
        assert past.began_at_us == round(past.created_at.timestamp() * 1e6)
        assert "past" in await a.ids()
        await lab.advance(SOON_S + PAST_S)
        await a.ids()
        assert await a.status("soon") is InstanceStatus.RUNNING
        assert await a.status("later") is InstanceStatus.PENDING

    @scenario
    async def test_the_time_of_what_is_claimed_before_it_is_due_begins_then(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("i", delay=LONG_S)
        await a.send("i", "enough", kind=CANCEL_KIND)
        request = a.request()
        (claimed,) = (await a.instances.claim(request)).instances
        assert claimed.began_at_us <= await a.now_us()
        (again,) = (await a.ask(1, request=request.request, again=True)).instances
        assert again.began_at_us == claimed.began_at_us
        await a.release(claimed, due=True)
        assert (await b.claim_one()).began_at_us == claimed.began_at_us

    @scenario
    async def test_the_time_of_what_is_reopened_before_it_was_due_begins_then(
        self, lab: Lab
    ) -> None:
        a = await runner(lab)
        await a.put("i", delay=LONG_S)
        await a.terminate("i")
        await a.reopen("i", 1)
        assert (await a.claim_one()).began_at_us <= await a.now_us()

    @scenario
    async def test_the_time_that_something_was_recorded_by_stays(self, lab: Lab) -> None:
        # As if the store's clock had been set back since.
        a, gone = await runners(lab, 2)
        past: dict[str, Any] = {"delay": LONG_S, "history": ("[]",)}
        await a.put("claimed", "reopened", **past)
        await gone.own("taken", **past)
        began = {id_: (await a.record(id_)).began_at_us for id_ in await a.list()}
        await a.send("claimed", "enough", kind=CANCEL_KIND)
        await a.terminate("reopened")
        await a.reopen("reopened", 2)
        await gone.end()
        assert await a.reclaim() == ["taken"]
        found = {one.id: one.began_at_us for one in (await a.ask(3)).instances}
        assert found == began
        assert min(found.values()) > await a.now_us()


class ForkCases:
    """A fork brings along what came before."""

    @scenario
    async def test_a_history_to_begin_with_is_its_history(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", history=('[{"n":1}]', '[{"n":2}]', "[]"))
        rows = await a.history("i")
        assert [(row.version, row.events) for row in rows] == [
            (1, '[{"n":1}]'),
            (2, '[{"n":2}]'),
            (3, "[]"),
        ]
        claimed = await a.claim_one()
        assert (claimed.version, claimed.base, claimed.token) == (3, 0, 1)
        assert not (await a.send_commit(a.next(claimed, version=1))).ok
        await a.advance(claimed)
        assert await a.versions("i") == [1, 2, 3, 4]

    @scenario
    async def test_a_fork_may_be_owned_from_the_start(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i", history=('[{"n":1}]',))
        await a.advance(held)
        assert await a.versions("i") == [1, 2]
