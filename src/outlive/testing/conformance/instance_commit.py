"""Cases of commits: all of one or nothing, under the newest token and the next version."""

from __future__ import annotations

from msgspec.structs import replace

from outlive.model.instance import (
    FINAL,
    InstanceStatus,
    Opened,
)
from outlive.names import InstanceId, Token
from outlive.testing.conformance.instance_runner import runner, runners
from outlive.testing.conformance.job_worker import PAST_S, SOON_S
from outlive.testing.conformance.lab import Lab, scenario


class CommitCases:
    """A commit moves its instance by one version."""

    @scenario
    async def test_a_commit_writes_one_row_of_history(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i", worker="w1")
        first = await a.commit(held, events='[{"n":1}]')
        second = await a.commit(replace(held, version=1), events='[{"n":2}]')
        assert first.ok
        assert second.ok
        assert (first.suspended, first.taken) == (False, ())
        rows = await a.history("i")
        assert [(row.version, row.token, row.worker, row.events) for row in rows] == [
            (1, 1, "w1", '[{"n":1}]'),
            (2, 1, "w1", '[{"n":2}]'),
        ]
        assert [row.at_us for row in rows] == [first.at_us, second.at_us]
        found = await a.record("i")
        assert (found.version, found.base, found.status) == (2, 0, InstanceStatus.RUNNING)
        assert found.owner == a.id

    @scenario
    async def test_rows_name_the_host_and_the_token_that_wrote_them(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i", worker="first")
        await a.advance(held, release=True, due_at_us=0)
        claimed = await b.claim_one(worker="second")
        await b.advance(claimed)
        rows = await a.history("i")
        assert [(row.token, row.worker) for row in rows] == [(1, "first"), (2, "second")]

    @scenario
    async def test_a_stale_token_commits_nothing(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        old = await a.own("i")
        await a.release(old, due=True)
        new = await b.claim_one()
        before = await b.record("i")
        assert not (await a.commit(old)).ok
        assert not (await a.commit(replace(new, token=Token(new.token + 1)))).ok
        assert await b.record("i") == before
        assert await b.versions("i") == []
        assert (await b.commit(new)).ok

    @scenario
    async def test_only_the_next_version_is_committed(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.advance(await a.advance(await a.own("i")))
        before = await a.record("i")
        for version in (0, 1, 2, 4, 100):
            assert not (await a.send_commit(a.next(held, version=version))).ok
        assert await a.record("i") == before
        assert await a.versions("i") == [1, 2]
        assert (await a.commit(held)).ok

    @scenario
    async def test_who_gave_it_up_commits_nothing_more(self, lab: Lab) -> None:
        a = await runner(lab)
        for id_, way in (("i", "release"), ("j", "commit")):
            held = await a.own(id_)
            if way == "release":
                assert await a.release(held)
            else:
                held = await a.advance(held, release=True)
            before = await a.record(id_)
            assert not (await a.commit(held)).ok
            assert await a.record(id_) == before

    @scenario
    async def test_nothing_is_committed_after_the_end(self, lab: Lab) -> None:
        a = await runner(lab)
        for status in FINAL:
            held = await a.own(status)
            await a.finish(held, status)
            before = await a.record(status)
            assert not (await a.commit(replace(held, version=1))).ok
            assert not (await a.commit(held)).ok
            assert await a.record(status) == before

    @scenario
    async def test_what_never_was_is_not_committed(self, lab: Lab) -> None:
        a = await runner(lab)
        held = replace(await a.own("i"), id=InstanceId("never"))
        assert not (await a.commit(held)).ok
        assert not await a.exists("never")

    @scenario
    async def test_what_nobody_claimed_is_not_committed(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.put("j")
        assert not (await a.commit(replace(held, id=InstanceId("j"), token=Token(0)))).ok
        assert (await a.record("j")).version == 0

    @scenario
    async def test_one_refused_commit_hinders_no_other(self, lab: Lab) -> None:
        a = await runner(lab)
        x, y, z = [await a.own(id_) for id_ in "xyz"]
        y = replace(y, token=Token(7))
        outcomes = await a.instances.commit([a.next(one) for one in (x, y, z)])
        assert [outcome.ok for outcome in outcomes] == [True, False, True]
        assert [(await a.record(id_)).version for id_ in "xyz"] == [1, 0, 1]

    @scenario
    async def test_a_commit_shows_what_it_says(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i", attributes='{"a":1}')
        due_us = await a.now_us() + 90_000_000
        held = await a.advance(held, custom='"half"', attributes='{"b":2}', due_at_us=due_us)
        found = await a.record("i")
        assert (found.custom, found.attributes) == ('"half"', '{"b":2}')
        assert found.due_at is not None
        assert round(found.due_at.timestamp() * 1e6) == due_us
        await a.advance(held, release=True, due_at_us=0)
        claimed = await a.claim_one()
        assert (claimed.custom, claimed.attributes) == ('"half"', '{"b":2}')
        await a.advance(claimed)
        found = await a.record("i")
        assert (found.custom, found.attributes, found.due_at) == ('"half"', '{"b":2}', None)

    @scenario
    async def test_a_commit_says_that_somebody_suspended_it(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        await b.suspend("i")
        outcome = await a.commit(held)
        assert (outcome.ok, outcome.suspended) == (True, True)
        await b.resume("i")
        outcome = await a.commit(replace(held, version=1))
        assert (outcome.ok, outcome.suspended) == (True, False)

    @scenario
    async def test_what_is_given_up_with_a_commit_waits_for_its_time(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        due_us = await a.now_us() + round(SOON_S * 1e6)
        await a.advance(held, release=True, due_at_us=due_us)
        found = await a.record("i")
        assert (found.owner, found.owned_by) == (None, None)
        assert found.status is InstanceStatus.RUNNING
        await lab.advance(SOON_S + PAST_S)
        claimed = await b.claim_one()
        assert (claimed.version, claimed.token) == (1, 2)

    @scenario
    async def test_a_due_time_that_passed_is_due_now(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.advance(await a.own("i"), release=True, due_at_us=1)
        assert await b.ids() == ["i"]


class EndCases:
    """An end is final, and leaves nothing to do."""

    @scenario
    async def test_an_end_releases_and_keeps_the_outcome(self, lab: Lab) -> None:
        a = await runner(lab)
        for status in (InstanceStatus.COMPLETED, InstanceStatus.FAILED, InstanceStatus.CANCELLED):
            held = await a.own(status)
            outcome = f'{{"was":"{status}"}}'
            await a.finish(held, status, outcome, due_at_us=1, events='[{"last":true}]')
            found = await a.record(status)
            assert (found.status, found.outcome) == (status, outcome)
            assert (found.owner, found.owned_by, found.due_at) == (None, None, None)
            assert found.ended_at is not None
            assert found.version == 1
            assert [row.events for row in await a.history(status)] == ['[{"last":true}]']
        assert await a.ids() == []

    @scenario
    async def test_an_end_empties_the_mailbox(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.send("i", "m1")
        await a.finish(held)
        assert await a.mail("i") == []
        assert (await a.ask(0)).letters == ()

    @scenario
    async def test_a_suspended_one_may_end(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.suspend("i")
        await a.finish(held)
        assert await a.status("i") is InstanceStatus.COMPLETED
        assert await a.resume("i") is Opened.REFUSED


class RestartCases:
    """A new run of the same instance begins with the commit that asks for it."""

    @scenario
    async def test_a_restart_begins_again(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i", attributes='{"a":1}')
        held = await a.advance(await a.advance(held, custom='"c"'))
        began_us = (await a.record("i")).began_at_us
        await lab.advance(SOON_S)
        committed = await a.commit(held, restart='{"run":2}', events='[{"n":3}]')
        assert committed.ok
        found = await a.record("i")
        assert (found.version, found.base, found.input) == (3, 2, '{"run":2}')
        assert found.began_at_us == committed.at_us > began_us
        assert (found.custom, found.attributes) == ('"c"', '{"a":1}')
        assert round(found.created_at.timestamp() * 1e6) == began_us
        (row,) = await a.history("i")
        assert (row.version, row.events) == (3, '[{"n":3}]')
        await a.advance(replace(held, version=3))
        assert await a.versions("i") == [3, 4]
        assert await a.versions("i", after=3) == [4]

    @scenario
    async def test_a_claim_brings_the_input_of_the_new_run(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.advance(await a.own("i"))
        committed = await a.commit(held, restart='"again"', release=True, due_at_us=0)
        claimed = await b.claim_one()
        assert (claimed.input, claimed.version, claimed.base) == ('"again"', 2, 1)
        assert claimed.began_at_us == committed.at_us

    @scenario
    async def test_unread_letters_stay_for_the_new_run(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        for id_ in ("m1", "m2", "m3"):
            await a.send("i", id_)
        first, *_ = await a.mail("i")
        await a.advance(held, restart="2", consumed=(first.number,))
        assert await a.mail_ids("i") == ["m2", "m3"]
        assert await a.send("i", "m1") == "duplicate"
