"""Cases of operators: what may be done to instances from outside, and what may not."""

from __future__ import annotations

from msgspec.structs import replace

from outlive.model.instance import FINAL, ClaimedInstance, InstanceStatus, Opened, Reply
from outlive.names import InstanceId
from outlive.testing.conformance.instance_runner import EVENTS, Runner, message, runner, runners
from outlive.testing.conformance.job_worker import PAST_S, SOON_S
from outlive.testing.conformance.lab import LONG_S, Lab, scenario


class TerminateCases:
    """Whoever owns it, it ends."""

    @scenario
    async def test_a_terminated_instance_is_taken_from_its_owner(self, lab: Lab) -> None:
        a, operator = await runners(lab, 2)
        held = await a.own("i")
        await a.send("i", "m")
        assert await operator.terminate("i", '"enough"') is Opened.CHANGED
        found = await a.record("i")
        assert (found.status, found.outcome) == (InstanceStatus.TERMINATED, '"enough"')
        assert (found.owner, found.owned_by, found.due_at) == (None, None, None)
        assert found.token > held.token
        assert found.ended_at is not None
        assert not (await a.commit(held)).ok
        assert not await a.release(held)
        assert await a.mail("i") == []
        assert await a.ids() == []

    @scenario
    async def test_every_live_instance_can_be_terminated(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("pending", "suspended")
        await a.suspend("suspended")
        await a.park("parked", due=LONG_S)
        for id_ in ("pending", "suspended", "parked"):
            assert await a.terminate(id_) is Opened.CHANGED
            assert await a.status(id_) is InstanceStatus.TERMINATED
        assert await a.ids() == []

    @scenario
    async def test_what_has_ended_otherwise_stays_so(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("ended")
        before = await a.record("ended")
        assert await a.terminate("ended", sends=[message("ended", "m")]) is Opened.REFUSED
        assert await a.record("ended") == before
        assert await a.terminate("never") is Opened.NOT_FOUND

    @scenario
    async def test_a_termination_tells_those_it_names(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("parent")
        await a.put_ended("gone")
        await a.own("i")
        sends = [message(to, "end", '"i"', kind="child") for to in ("gone", "never", "parent")]
        assert await a.terminate("i", sends=sends) is Opened.CHANGED
        (letter,) = await a.mail("parent")
        assert (letter.id, letter.kind, letter.payload) == ("end", "child", '"i"')

    @scenario
    async def test_a_refused_termination_tells_nobody(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("parent")
        await a.put_ended("i")
        for id_ in ("i", "never"):
            await a.terminate(id_, sends=[message("parent", "end")])
        assert await a.mail("parent") == []


class SuspendCases:
    """A suspended instance begins nothing new, and keeps its owner."""

    @scenario
    async def test_a_suspended_instance_keeps_its_owner(self, lab: Lab) -> None:
        a, operator = await runners(lab, 2)
        held = await a.own("i")
        assert await operator.suspend("i") is Opened.CHANGED
        found = await a.record("i")
        assert (found.status, found.owner) == (InstanceStatus.SUSPENDED, a.id)
        assert found.token == held.token
        held = await a.advance(held)
        assert await operator.resume("i") is Opened.CHANGED
        assert await a.status("i") is InstanceStatus.RUNNING
        await a.advance(held)

    @scenario
    async def test_a_suspended_instance_is_claimed_when_it_is_resumed(self, lab: Lab) -> None:
        a, operator = await runners(lab, 2)
        held = await a.own("i")
        await operator.suspend("i")
        await a.advance(held, release=True)
        assert await a.ids() == []
        assert await operator.resume("i") is Opened.CHANGED
        claimed = await a.claim_one()
        assert (claimed.id, claimed.version) == ("i", 1)

    @scenario
    async def test_a_due_time_passes_over_a_suspended_one(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.park("i", due=SOON_S)
        await a.suspend("i")
        await lab.advance(SOON_S + PAST_S)
        assert await a.ids() == []
        await a.resume("i")
        assert await a.ids() == ["i"]

    @scenario
    async def test_one_that_never_ran_keeps_its_time(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("later", delay=LONG_S)
        await a.put("now")
        for id_ in ("later", "now"):
            await a.suspend(id_)
            assert await a.status(id_) is InstanceStatus.SUSPENDED
            await a.resume(id_)
            assert await a.status(id_) is InstanceStatus.PENDING
        assert await a.ids() == ["now"]

    @scenario
    async def test_only_the_living_are_suspended_and_resumed(self, lab: Lab) -> None:
        a = await runner(lab)
        for status in FINAL:
            await a.finish(await a.own(status), status)
            before = await a.record(status)
            assert await a.suspend(status) is Opened.REFUSED
            assert await a.resume(status) is Opened.REFUSED
            assert await a.record(status) == before
        assert await a.suspend("never") is Opened.NOT_FOUND
        assert await a.resume("never") is Opened.NOT_FOUND

    @scenario
    async def test_resuming_what_goes_on_changes_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        assert await a.resume("i") is Opened.CHANGED
        assert (await a.record("i")).owner == a.id
        assert (await a.commit(held)).ok


class ReopenCases:
    """An ended instance lives again, under one more row of its history."""

    @scenario
    async def test_a_reopened_instance_lives_again(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        held = await a.own("i")
        held = await a.advance(held, custom='"c"')
        await a.finish(held, InstanceStatus.FAILED, '"boom"')
        assert await a.reopen("i", 3, '[{"event":"retried","at":1,"to":1}]') is Opened.CHANGED
        found = await a.record("i")
        assert found.status in (InstanceStatus.RUNNING, InstanceStatus.PENDING)
        assert (found.outcome, found.ended_at, found.version) == (None, None, 3)
        assert await a.versions("i") == [1, 2, 3]
        *_, row = await a.history("i")
        assert row.events == '[{"event":"retried","at":1,"to":1}]'
        claimed = await b.claim_one()
        assert (claimed.version, claimed.custom) == (3, '"c"')
        assert claimed.token > held.token
        await b.finish(claimed)
        assert await a.status("i") is InstanceStatus.COMPLETED

    @scenario
    async def test_a_terminated_instance_can_be_reopened(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.advance(await a.own("i"))
        await a.terminate("i")
        assert await a.reopen("i", 2) is Opened.CHANGED
        assert not (await a.commit(held)).ok
        claimed = await a.claim_one()
        assert claimed.version == 2
        assert claimed.token > held.token + 1

    @scenario
    async def test_only_the_version_after_the_newest_reopens(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.advance(await a.own("i"))
        await a.finish(held)
        before = await a.record("i")
        for version in (0, 1, 2, 4):
            assert await a.reopen("i", version) is Opened.REFUSED
        assert await a.record("i") == before
        assert await a.versions("i") == [1, 2]

    @scenario
    async def test_the_living_are_not_reopened(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("pending")
        await a.own("running")
        for id_ in ("pending", "running"):
            before = await a.record(id_)
            assert await a.reopen(id_, 1) is Opened.REFUSED
            assert await a.record(id_) == before
        assert await a.reopen("never", 1) is Opened.NOT_FOUND

    @scenario
    async def test_a_commit_of_the_same_events_is_no_reopening(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.advance(await a.own("i"), events=EVENTS)
        await a.finish(held)
        assert await a.reopen("i", 1, EVENTS) is Opened.REFUSED

    @scenario
    async def test_the_former_owner_of_a_reopened_one_is_fenced(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.finish(held)
        await a.reopen("i", 2)
        before = await a.record("i")
        assert not (await a.send_commit(a.next(held, version=3))).ok
        assert await a.record("i") == before

    @scenario
    async def test_a_reopened_instance_gets_letters_again(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.send("i", "m1")
        await a.finish(held)
        await a.reopen("i", 2)
        assert await a.send("i", "m1") == "duplicate"
        assert await a.send("i", "m2") == "sent"
        claimed = await a.claim_one()
        assert [letter.id for letter in claimed.letters] == ["m2"]


class PurgeCases:
    """What has ended is forgotten when somebody says so, or when its time is over."""

    @scenario
    async def test_the_ended_are_forgotten_with_all_that_hangs_on_them(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        await a.send("i", "m")
        held = await a.advance(held, replies=(Reply("m", "1"),))
        await a.finish(held)
        assert await a.purge("i") is Opened.CHANGED
        assert not await a.exists("i")
        assert await a.versions("i") == []
        assert await a.mail("i") == []
        assert await a.instances.reply(InstanceId("i"), "m") is None
        assert await a.list() == []
        assert await a.purge("i") is Opened.NOT_FOUND

    @scenario
    async def test_an_id_that_was_forgotten_is_new(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        await a.send("i", "m")
        held = await a.claim_one()
        await a.finish(held)
        await a.purge("i")
        await a.put("i", input="2")
        found = await a.record("i")
        assert (found.input, found.version, found.token) == ("2", 0, 0)
        assert await a.mail("i") == []
        assert await a.send("i", "m") == "sent"
        assert await a.versions("i") == []

    @scenario
    async def test_who_owned_what_was_forgotten_owns_nothing_of_the_new(self, lab: Lab) -> None:
        a = await runner(lab)
        newest = 0
        for forgets in (self._purge, self._tend):
            for starts in (self._own, self._claim):
                old = await starts(a)
                assert old.token > newest
                stale = a.next(old)
                await a.finish(await a.advance(old))
                await forgets(a)
                held = await starts(a)
                assert held.token > old.token
                assert not (await a.instances.commit([stale]))[0].ok
                assert not await a.release(old)
                assert (await a.record("i")).version == 0
                await a.commit(held)
                # Known by its id it would be told that it was written.
                assert not (await a.instances.commit([stale]))[0].ok
                newest = held.token
                await a.finish(await a.advance(replace(held, version=1)))
                await forgets(a)

    @scenario
    async def test_a_start_that_is_repeated_tells_the_token_it_was_given(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("i")
        await a.purge("i")
        new = a.new("i", session=a.id, worker="a")
        first = await a.start(new)
        assert first[0].token > 1
        assert await a.start(new) == first
        held = await a.instances.get(InstanceId("i"))
        assert held is not None
        assert held.token == first[0].token

    async def _own(self, a: Runner) -> ClaimedInstance:
        return await a.own("i", retention=0)

    async def _claim(self, a: Runner) -> ClaimedInstance:
        await a.put("i", retention=0)
        return await a.claim_one()

    async def _purge(self, a: Runner) -> None:
        assert await a.purge("i") is Opened.CHANGED

    async def _tend(self, a: Runner) -> None:
        assert await a.instances.tend(limit=10) == 1

    @scenario
    async def test_only_the_ended_are_forgotten(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("pending", "suspended")
        await a.suspend("suspended")
        await a.own("running")
        await a.put_ended("ended")
        ids = [InstanceId(id_) for id_ in ("pending", "ended", "suspended", "never", "running")]
        assert list(await a.instances.purge(ids)) == [
            Opened.REFUSED,
            Opened.CHANGED,
            Opened.REFUSED,
            Opened.NOT_FOUND,
            Opened.REFUSED,
        ]
        assert await a.list() == ["pending", "suspended", "running"]

    @scenario
    async def test_an_ended_instance_is_kept_for_its_retention(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("short", retention=SOON_S)
        await a.put_ended("long", retention=LONG_S)
        await a.put("live", retention=0)
        await lab.advance(SOON_S + PAST_S)
        assert await a.instances.tend(limit=100) == 1
        assert await a.list() == ["long", "live"]
        assert await a.versions("short") == []

    @scenario
    async def test_what_is_kept_for_ever_ends_as_well(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("i", retention_us=2**63 - 1)
        await a.put("j", retention_us=2**63 - 1)
        assert await a.instances.terminate(InstanceId("j"), outcome="1") is Opened.CHANGED
        assert await a.instances.tend(limit=10) == 0
        assert await a.list() == ["i", "j"]

    @scenario
    async def test_tending_keeps_to_its_limit(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended(*(f"i{number}" for number in range(5)), retention=SOON_S)
        await lab.advance(SOON_S + PAST_S)
        assert [await a.instances.tend(limit=2) for _ in range(4)] == [2, 2, 1, 0]

    @scenario
    async def test_a_reopened_instance_is_not_removed(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("i", retention=SOON_S)
        await a.reopen("i", 2)
        await lab.advance(SOON_S + PAST_S)
        assert await a.instances.tend(limit=100) == 0
        assert await a.exists("i")

    @scenario
    async def test_a_terminated_instance_is_kept_for_its_retention_too(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", retention=SOON_S)
        await a.terminate("i")
        assert await a.exists("i")
        await lab.advance(SOON_S + PAST_S)
        assert await a.instances.tend(limit=100) == 1
