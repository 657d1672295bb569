"""Cases of repeats: a call whose reply was lost is made again, and means the same."""

from __future__ import annotations

from msgspec.structs import replace

from outlive.model.instance import (
    ClaimedInstance,
    ClaimedInstances,
    Entry,
    InstanceStatus,
    Opened,
    Reply,
    Sent,
)
from outlive.names import InstanceId
from outlive.testing.conformance.instance_runner import message, runner, runners
from outlive.testing.conformance.job_worker import SOON_S
from outlive.testing.conformance.lab import Lab, scenario


class RepeatCases:
    """Whatever was applied is not applied twice, and the answer is the first one."""

    @scenario
    async def test_a_batch_started_again_adds_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("there")
        batch = [a.new("x"), a.new("there"), a.new("y", session=a.id, worker="a")]
        first = await a.start(*batch)
        assert [one.entry for one in first] == [Entry.CREATED, Entry.EXISTING, Entry.CREATED]
        assert [one.token for one in first] == [0, 0, 1]
        assert await a.start(*batch) == first
        assert await a.list() == ["there", "x", "y"]

    @scenario
    async def test_a_start_is_known_whatever_became_of_it(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        new = a.new("i")
        first = await a.start(new)
        held = await b.claim_one()
        held = await b.advance(held, restart='"other"')
        assert await a.start(new) == first
        await b.finish(held)
        assert await a.start(new) == first
        assert await a.status("i") is InstanceStatus.COMPLETED

    @scenario
    async def test_a_claim_asked_again_returns_the_same(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put(*(f"i{number}" for number in range(5)))
        request = a.request(3)
        first = await a.instances.claim(request)
        again = await a.ask(3, request=request.request, again=True)
        assert sorted(_told(again), key=lambda found: found.id) == sorted(
            _told(first), key=lambda found: found.id
        )
        assert len(await a.ids()) == 2

    @scenario
    async def test_a_claim_asked_again_that_had_too_little_takes_no_more(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i")
        request = a.request(3)
        first = await a.instances.claim(request)
        await a.put("j")
        again = await a.ask(3, request=request.request, again=True)
        assert _told(again) == _told(first)
        assert await a.status("j") is InstanceStatus.PENDING

    @scenario
    async def test_only_what_is_still_owned_and_not_committed_comes_back(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("committed", "parked", "taken", "kept")
        request = a.request(4)
        found = {one.id: one for one in (await a.instances.claim(request)).instances}
        await a.advance(found[InstanceId("committed")])
        await a.advance(found[InstanceId("parked")], release=True)
        await a.release(found[InstanceId("taken")], due=True)
        assert await b.ids() == ["taken"]
        again = await a.ask(4, request=request.request, again=True)
        assert _told(again) == [replace(found[InstanceId("kept")], first=False)]

    @scenario
    async def test_a_claim_asked_again_that_never_arrived_is_a_claim(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("x")
        assert await a.ids(1, again=True) == ["x"]
        assert (await a.record("x")).owner == a.id

    @scenario
    async def test_nobody_gets_the_claims_of_another_by_asking_again(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        await a.put("x")
        request = a.request(1)
        await a.instances.claim(request)
        await a.put("y")
        assert await b.ids(1, request=request.request, again=True) == ["y"]
        assert (await a.record("x")).owner == a.id

    @scenario
    async def test_what_was_started_as_owned_is_no_claim_to_be_asked_again(self, lab: Lab) -> None:
        a = await runner(lab)
        new = a.new("i", session=a.id, worker="a")
        await a.start(new)
        assert await a.ids(1, again=True) == []

    @scenario
    async def test_a_commit_sent_again_is_ok_and_changes_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("to", "theirs")
        held = await a.own("i")
        await a.send("i", "m")
        (letter,) = await a.mail("i")
        commit = a.next(
            held,
            consumed=(letter.number,),
            sends=(message("to", "out"),),
            starts=(a.new("theirs"), a.new("child")),
            replies=(Reply("m", "1"),),
            custom='"c"',
        )
        first = await a.send_commit(commit)
        before = [await a.record(id_) for id_ in ("i", "to", "theirs", "child")]
        again = await a.send_commit(commit)
        assert (again.ok, again.taken) == (first.ok, first.taken) == (True, ("theirs",))
        assert [await a.record(id_) for id_ in ("i", "to", "theirs", "child")] == before
        assert await a.versions("i") == [1]
        assert await a.mail_ids("to") == ["out"]
        await a.advance(replace(held, version=1))

    @scenario
    async def test_a_commit_that_ended_or_parked_is_known_when_sent_again(self, lab: Lab) -> None:
        a = await runner(lab)
        ends = a.next(await a.own("x"), status=InstanceStatus.COMPLETED, outcome="1")
        parks = a.next(await a.own("y"), release=True)
        begins = a.next(await a.own("z"), restart="2")
        for commit in (ends, parks, begins):
            assert (await a.send_commit(commit)).ok
            before = await a.record(commit.id)
            assert (await a.send_commit(commit)).ok
            assert await a.record(commit.id) == before

    @scenario
    async def test_a_commit_sent_again_is_answered_with_the_time_of_its_row(self, lab: Lab) -> None:
        a = await runner(lab)
        plain, ends, begins = await a.own("x"), await a.own("y"), await a.own("z")
        commits = [
            a.next(plain),
            a.next(ends, status=InstanceStatus.COMPLETED, outcome="1"),
            a.next(begins, restart="2"),
        ]
        first = await a.instances.commit(commits)
        assert not any(answer.repeated for answer in first)
        await lab.advance(SOON_S)
        alone = [await a.send_commit(commit) for commit in commits]
        for again in (alone, await a.instances.commit(commits)):
            assert [answer.at_us for answer in again] == [answer.at_us for answer in first]
            assert all(answer.repeated for answer in again)
        for answer, commit in zip(first, commits, strict=True):
            assert [row.at_us for row in await a.history(commit.id)] == [answer.at_us]
        assert (await a.record("z")).began_at_us == first[-1].at_us

    @scenario
    async def test_a_commit_is_known_after_somebody_else_took_over(self, lab: Lab) -> None:
        a, b = await runners(lab, 2)
        commit = a.next(await a.own("i"), release=True, due_at_us=0)
        assert (await a.send_commit(commit)).ok
        new = await b.claim_one()
        assert (await a.send_commit(commit)).ok
        assert (await a.record("i")).owner == b.id
        await b.advance(new)
        assert (await a.send_commit(commit)).ok
        assert await a.versions("i") == [1, 2]

    @scenario
    async def test_another_commit_of_the_same_version_is_refused(self, lab: Lab) -> None:
        a = await runner(lab)
        held = await a.own("i")
        assert (await a.commit(held, events="[1]")).ok
        assert not (await a.commit(held, events="[1]")).ok
        assert [row.events for row in await a.history("i")] == ["[1]"]

    @scenario
    async def test_sending_again_is_a_duplicate(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("x", "y")
        batch = [message("x", "m"), message("never", "m"), message("y", "m")]
        assert list(await a.instances.send(batch)) == [Sent.SENT, Sent.NOT_FOUND, Sent.SENT]
        again = list(await a.instances.send(batch))
        assert again == [Sent.DUPLICATE, Sent.NOT_FOUND, Sent.DUPLICATE]
        assert await a.mail_ids("x") == await a.mail_ids("y") == ["m"]

    @scenario
    async def test_wishes_of_operators_may_be_repeated(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("suspended", "terminated")
        await a.put_ended("reopened")
        for _ in range(2):
            assert await a.suspend("suspended") is Opened.CHANGED
            assert await a.terminate("terminated", '"first"') is Opened.CHANGED
            assert await a.reopen("reopened", 2) is Opened.CHANGED
        assert await a.status("suspended") is InstanceStatus.SUSPENDED
        assert await a.versions("reopened") == [1, 2]
        for _ in range(2):
            assert await a.resume("suspended") is Opened.CHANGED

    @scenario
    async def test_terminating_again_changes_nothing(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put("i", "parent")
        await a.terminate("i", '"first"', sends=[message("parent", "end")])
        before = await a.record("i")
        assert await a.terminate("i", '"second"', sends=[message("parent", "end")]) == "changed"
        assert await a.record("i") == before
        assert await a.mail_ids("parent") == ["end"]

    @scenario
    async def test_reopening_again_is_known_after_it_was_claimed(self, lab: Lab) -> None:
        a = await runner(lab)
        await a.put_ended("i")
        assert await a.reopen("i", 2, "[1]") is Opened.CHANGED
        claimed = await a.claim_one()
        assert await a.reopen("i", 2, "[1]") is Opened.CHANGED
        assert await a.reopen("i", 2, "[2]") is Opened.REFUSED
        assert (await a.commit(claimed)).ok
        assert await a.versions("i") == [1, 2, 3]


def _told(answer: ClaimedInstances) -> list[ClaimedInstance]:
    """What a claim gives, without what a store need not know when it is asked again."""
    return [replace(one, first=False) for one in answer.instances]
